"""Synthetic evidence of losses: a topology text, flows with what they sent and lost, and counters by name of their object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Final, cast

import numpy as np

from etloop.contract.model.topology import PRIORITIES
from etloop.results.diagnosis.evidence import Evidence, Flows, Hosts, Lanes, LaneSamples, Ports, Streams
from etloop.results.diagnosis.rule import Found
from etloop.results.schema.findings import FindingKind
from etloop.results.schema.network_needs import Needs
from tests.results.diagnosis.given_switches import topology_of

STAR: Final = "single: {rate: 100Gbps, ports: [a/p0, b/p0, c/p0, d/p0]}"
"""switch/0 to switch/3 lead to a/p0 to d/p0."""
LEAVES: Final = (
    "leaf_spine: {rate: 100Gbps, spines: 2, leaves: [{ports: [a/p0, b/p0]}, {ports: [c/p0, d/p0]}]}"
)
LOSSLESS: Final = Needs("dcqcn", reacts_to_marks=True, needs_lossless=True, data_dscp=26, cnp_dscp=48)
SPRAYED: Final = Needs("nscc", keeps_order=False, sprays=True, data_dscp=26, trims=True)
Counts = Mapping[str, Mapping[Any, float]]


def all_pairs(hosts: Sequence[str], sent: float = 10_000) -> dict[tuple[str, str], tuple[float, float]]:
    """Return flows between all pairs of hosts that lost nothing."""
    return {(src, dst): (sent, 0.0) for src in hosts for dst in hosts if src != dst}


def evidence_of(
    text: str = STAR,
    flows: Mapping[tuple[str, str], tuple[float, float]] | None = None,
    *,
    needs: Needs = LOSSLESS,
    ports: Counts | None = None,
    lanes: Counts | None = None,
    hosts: Counts | None = None,
    received: Counts | None = None,
    samples: Mapping[tuple[str, int], Sequence[tuple[int, int]]] | None = None,
    is_described: bool = True,
    timeline: Sequence[Any] = (),
    reconciliation: Sequence[Any] = (),
    spread: Mapping[tuple[str, str], Sequence[str]] | None = None,
) -> Evidence:
    """Return evidence of a run.

    `flows`: packets sent and lost by source and destination host; by default all pairs without losses. `ports`, `lanes` (by
    port and number) and `hosts`: counters, 0 for all objects that are not named. `received`: further counters of receiving
    ends by flow. `samples`: time in ns and packets sent so far, by lane. `spread`: egress ports by flow.
    """
    topology = topology_of(text)
    names = tuple(f"{switch.name}/{port.name}" for switch in topology.switches for port in switch.ports)
    peers = dict(topology.cables()) | {topology.port_name(a.end): a.rig_port for a in topology.attachments}
    rig = tuple(attachment.rig_port for attachment in topology.attachments)
    row = {name: number for number, name in enumerate(names)}
    loads = all_pairs(rig) if flows is None else flows
    src, dst = (np.array([rig.index(pair[end]) for pair in loads], np.int64) for end in (0, 1))
    sent, lost = (np.array([load[end] for load in loads.values()], np.float64) for end in (0, 1))
    lane_keys = [(name, number) for name in names for number in range(PRIORITIES)]
    steps = [[row[port] for port in (spread or {}).get(pair, ())] for pair in loads]
    way_first = np.cumsum([0, *(len(ways) for ways in steps)])
    way_port = np.array([port for ways in steps for port in ways], np.int64)
    table = sorted(
        (lane_keys.index(lane), *point) for lane, series in (samples or {}).items() for point in series
    )
    points = np.array(table, np.int64).reshape(len(table), 3)
    dut = SimpleNamespace(reconciliation=tuple(reconciliation))
    return Evidence(
        run=cast("Any", SimpleNamespace(summary=SimpleNamespace(timeline=tuple(timeline), dut=dut))),
        ports=Ports(
            names,
            tuple(name.partition("/")[0] for name in names),
            tuple(peers[name] for name in names),
            np.array([row.get(peers[name], -1) for name in names]),
            np.array([rig.index(peers[name]) if peers[name] in rig else -1 for name in names]),
            np.full(len(names), 1e11),
            _columns(ports, names),
        ),
        lanes=Lanes(
            np.repeat(np.arange(len(names)), PRIORITIES),
            np.tile(np.arange(PRIORITIES), len(names)),
            _columns(lanes, lane_keys),
        ),
        samples=LaneSamples(points[:, 0], points[:, 1], {"tx_packets": points[:, 2].astype(float)}),
        hosts=Hosts(
            rig,
            rig,
            np.full(len(rig), 1e11),
            np.array([row[topology.port_name(a.end)] for a in topology.attachments]),
            _columns(hosts, rig),
        ),
        flows=Flows(
            src,
            dst,
            src,
            dst,
            {"tx_packets": sent},
            {"rx_packets": sent - lost, **_columns(received, list(loads))},
            sent * 4096,
            np.zeros(len(sent) + 1, np.int64),
            np.empty(0, np.int64),
        ),
        streams=Streams(
            src_host=src,
            dst_host=dst,
            src_address=src,
            dst_address=dst,
            source_port=np.arange(len(src)),
            queue_pair=np.arange(len(src)),
            ports=np.ones(len(src), np.int64),
            payload_bytes=sent * 4096,
            sent_packets=sent,
            lost_packets=lost,
            way_first=way_first,
            way_port=way_port,
            way_choice=np.full(len(way_port), -1),
            way_share=np.ones(len(way_port)),
        ),
        choices=(),
        needs=needs,
        topology=topology if is_described else None,
        duration_ns=10_000_000,
    )


def _columns(counts: Counts | None, keys: Sequence[Any]) -> dict[str, Any]:
    return {
        name: np.array([values.get(key, 0.0) for key in keys], np.float64)
        for name, values in (counts or {}).items()
    }


def outcome(result: Found, kind: FindingKind) -> str:
    """Return the outcome of a kind."""
    return next(str(examined.outcome) for examined in result.examinations if examined.kind is kind)


def places(result: Found) -> list[list[str]]:
    """Return the names of the places of each finding."""
    return [[place.name for place in finding.places] for finding in result.findings]
