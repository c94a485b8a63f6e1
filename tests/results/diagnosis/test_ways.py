"""Ports that the data of a run crosses: the bytes that switches count there are those that the ways of streams foretell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import etloop
from etloop.controller.run.device_facts import device_facts
from etloop.results.artifacts import kpi_input
from etloop.results.diagnosis.build import evidence_of
from etloop.results.diagnosis.evidence import Evidence
from etloop.results.diagnosis.ways import ways_of
from etloop.results.kpis.run_kpis import key_figures
from etloop.results.schema.network_needs import FlowWays, pack, unpack
from etloop.results.store.run_dir import PROFILE_FILE, TOPOLOGY_FILE, read_artifacts, read_input, read_kpis

LEAVES = [{"ports": [f"{name}{number}/p0" for number in range(3)]} for name in "ab"]
HEADERS_SHARE = 0.05
"""Headers, acknowledgements and notifications, in addition to the payload of large packets."""


def evidence_in_twin(
    directory: Path, leaf: dict[str, Any], transport: dict[str, Any], **changes: Any
) -> Evidence:
    scenario = {
        "workload": {"collective": {"kind": "all_to_all", "ranks": 6, "size": "512KiB"}},
        "mapping": {"placement": "round_robin"},
        "transport": transport,
    }
    topology = {"leaf_spine": {"rate": "100Gbps", "spines": 3, "leaves": LEAVES, "leaf": leaf}, **changes}
    run_dir = directory / "run"
    etloop.run_twin(scenario, None, run_dir, topology=topology, seed=41)
    run, basis = read_artifacts(run_dir), read_kpis(run_dir).basis
    inputs = kpi_input(run, basis)
    files = {name: read_input(run_dir, name) for name in (TOPOLOGY_FILE, PROFILE_FILE)}
    return evidence_of(inputs, basis, key_figures(inputs, basis), device_facts(files, run_dir).topology)


def foretold_bytes(evidence: Evidence) -> np.ndarray[Any, Any]:
    streams = evidence.streams
    row_bytes = streams.payload_bytes[streams.way_stream] * streams.way_share
    return np.bincount(streams.way_port, row_bytes, len(evidence.ports.names))


@pytest.mark.parametrize(
    ("leaf", "transport"),
    [
        ({}, {}),
        ({"hash": ["src_ip", "in_port"]}, {"qps_per_connection": 2}),
        ({"hash": ["dest_qp"]}, {}),
        ({"balancing": "structured"}, {"qps_per_connection": 2}),
        ({"port_weights": {"3": 3}}, {"qps_per_connection": 4}),
    ],
)
def test_ways_foretell_the_bytes_of_every_port(
    tmp_path: Path, leaf: dict[str, Any], transport: dict[str, Any]
) -> None:
    evidence = evidence_in_twin(tmp_path, leaf, transport)
    foretold, counted = foretold_bytes(evidence), evidence.ports.counter("tx_bytes")
    largest = counted.max()
    assert np.abs(counted - foretold).max() < HEADERS_SHARE * largest
    assert all(choice.is_hashed for choice in evidence.choices)
    assert len(evidence.flows.way_port) >= len(evidence.flows.src_rank)


def test_spread_packets_may_use_all_ports(tmp_path: Path) -> None:
    evidence = evidence_in_twin(tmp_path, {"balancing": "spray"}, {"kind": "mrc"})
    assert [choice.is_hashed for choice in evidence.choices] == [False, False]
    crossing = evidence.streams.way_choice >= 0
    assert np.allclose(evidence.streams.way_share[crossing], 1 / 3, atol=1e-5)


def test_links_that_go_down_leave_the_hash_open(tmp_path: Path) -> None:
    outage = {"port": "leaf0/3", "from": "10us", "until": "20us"}
    evidence = evidence_in_twin(tmp_path, {}, {}, outages=[outage])
    assert not any(choice.is_hashed for choice in evidence.choices)


def test_packed_columns_return_and_damaged_ones_are_no_ways() -> None:
    column = np.array([0, 1, 2**32 - 1])
    assert unpack(pack(column)).tolist() == column.tolist()
    ways = FlowWays(("a/0",), (), (), pack(column[:2]), "damaged", *(pack(column[:1]) for _ in range(3)))
    assert not len(ways_of(ways, {"a/0": 0}).values)
