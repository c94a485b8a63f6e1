"""A known link that carried nothing counts as zero: in the balance over links, in tables, and in conditions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import etloop
from etloop.contract.model.counters import CountedObject, CounterBatch, CounterObject, CounterReading
from etloop.contract.model.device_counts import CountedDevice, SamplePhase
from etloop.contract.model.switch_counters import SWITCH_PORT_COUNTERS
from etloop.counters.source_log import SourceLog
from etloop.results.device.cos import device_cos_table
from etloop.results.device.index import index_device
from etloop.results.store.run_dir import read_kpis
from etloop.results.tables.frames import frame_of
from etloop.results.text.switches import render_switches
from etloop.traffic.topology.topology_file import parse_topology


def fabric(**leaf: Any) -> dict[str, Any]:
    """Two leaves of two ports below four spines."""
    return {
        "leaf_spine": {
            "leaves": [{"ports": ["a/p", "b/p"]}, {"ports": ["c/p", "d/p"]}],
            "spines": 4,
            "rate": "100Gbps",
            "leaf": leaf,
        }
    }


def run_over(directory: Path, topology: dict[str, Any], *checks: str) -> etloop.Run:
    """Run an all-to-all over the fabric."""
    scenario: dict[str, Any] = {
        "workload": {"collective": {"kind": "all_to_all", "ranks": 4, "size": "1MiB", "count": 1}},
        "mapping": {"placement": "round_robin"},
    }
    if checks:
        scenario["verdict"] = {"checks": [{"check": check} for check in checks]}
    return etloop.run_twin(scenario, out_dir=directory / "run", topology=topology)


def test_one_of_four_spines_has_an_index_of_a_quarter(tmp_path: Path) -> None:
    idle = 'sum(switches[peer == "spine0/0"].queue_bytes) > 0'
    run = run_over(tmp_path, fabric(hash=["dst_port"]), "uplinks_jain >= 0.8", idle)
    kpis = read_kpis(run.path)
    assert kpis.value("uplinks_jain") == pytest.approx(0.25, rel=0.001)
    assert kpis.value("uplinks_max_to_mean") == pytest.approx(4.0, rel=0.001)
    assert run.summary.verdict is not None
    assert [check.result for check in run.summary.verdict.checks] == ["fail", "fail"]


def test_every_port_has_a_row_of_every_class(tmp_path: Path) -> None:
    frame = frame_of("switches", run_over(tmp_path, fabric(hash=["dst_port"])).table("switches"))
    ports = {(str(a), str(b)) for a, b in zip(frame.columns["switch"], frame.columns["port"], strict=True)}
    assert len(ports) == 2 * (2 + 4) + 4 * 2
    assert frame.rows == 8 * len(ports)
    assert set(frame.columns["cos"].tolist()) == set(range(8))


@pytest.mark.parametrize(
    "check",
    [
        "sum(switches[cos == 5].queue_bytes) == 0",
        "switches[cos == 5].queue_dropped_packets == 0",
        "count(switches[cos == 5].queue_bytes) == 20",
        'max(switches[peer == "spine0/1" and cos == 1].pfc_tx) == 0',
        "all(switches[cos == 7].queue_watermark_bytes == 0)",
    ],
)
def test_a_condition_on_an_idle_class_finds_zeros(tmp_path: Path, check: str) -> None:
    verdict = run_over(tmp_path, fabric(), check).summary.verdict
    assert verdict is not None
    assert [one.result for one in verdict.checks] == ["pass"]


def test_the_text_has_a_line_of_zeros_for_an_idle_link_between_switches() -> None:
    """Of two leaves under two spines, one spine carries everything, in class 3; class 0 is used towards hosts only."""
    text = b"leaf_spine: {leaves: [{ports: [a/p]}, {ports: [b/p]}], spines: 2, rate: 100Gbps}"
    topology = parse_topology(text, "topology.yaml")
    counted = tuple(np.zeros(len(switch.ports), SWITCH_PORT_COUNTERS) for switch in topology.switches)
    for switch, port, cos in ((0, 0, 3), (0, 1, 3), (1, 0, 3), (2, 1, 3), (0, 0, 0)):
        counted[switch]["queues"]["bytes"][port, cos] = 5000
        counted[switch]["queues"]["watermark_bytes"][port, cos] = 5000
    lines = [line.split() for line in render_switches(topology, counted).splitlines()]
    sent = {(line[0], line[2]): line[3] for line in lines if line and "/" in line[0]}
    assert sent["leaf0/2", "3"] == sent["spine1/0", "3"] == sent["spine1/1", "3"] == "0"
    assert ("leaf0/2", "0") not in sent
    assert len(sent) == 1 + 3 + 8, (
        "the heading, three lanes towards hosts, both ends of four links in class 3"
    )


def test_a_port_without_any_reading_is_not_counted_rather_than_idle() -> None:
    """Two links between switches carry the same; of a third the source reports nothing."""
    readings = [
        CounterReading(CountedObject(CounterObject.QUEUE, port, 3), "bytes", 7_000) for port in ("s/1", "s/2")
    ]
    log = SourceLog("lab", frozenset(), 0)
    for at_ns, phase, batch in (
        (1, SamplePhase.BEFORE, [one._replace(value=0) for one in readings]),
        (2, SamplePhase.DRAINED, readings),
    ):
        log.add(CounterBatch(at_ns, at_ns, tuple(batch), ()), phase)
    peers = (("s/1", "t/1"), ("s/2", "t/2"), ("s/3", "t/3"))
    source = log.finish(3, "lab", 0, peers, several=True, host_side=False)
    table = device_cos_table(index_device(CountedDevice("lab", 0, (source,))))
    assert table is not None
    assert table.column("port").to_pylist() == ["1", "2", "3"]
    assert table.column("queue_bytes").to_pylist() == [7000, 7000, None]
    assert table.column("cos").to_pylist() == [3, 3, 3]
