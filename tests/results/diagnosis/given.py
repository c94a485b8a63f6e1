"""Small evidence for tests of rules: a device of two leaves and a spine with four hosts, and tables by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Final

import numpy as np

from etloop.results.diagnosis.evidence import Evidence, Flows, Hosts, Lanes, LaneSamples, Ports, Streams
from etloop.results.schema.findings import Fact, Finding, FindingKind, Place, PlaceKind
from etloop.results.schema.network_needs import Needs

CABLES: Final = {
    "leaf0/0": "spine/0",
    "leaf0/1": "a/p0",
    "leaf0/2": "b/p0",
    "leaf1/0": "spine/1",
    "leaf1/1": "c/p0",
    "leaf1/2": "d/p0",
}
HOSTS: Final = ("a/p0", "b/p0", "c/p0", "d/p0")
PORTS: Final = (*CABLES, "spine/0", "spine/1")
PEERS: Final = (*CABLES.values(), "leaf0/0", "leaf1/0")
DURATION_NS: Final = 1_000_000
_NO_ROWS: Final = np.empty(0, np.int64)
_NO_FIGURES: Final = np.empty(0)
NO_STREAMS: Final = Streams(
    *(_NO_ROWS,) * 7,
    *(_NO_FIGURES,) * 3,
    way_first=np.zeros(1, np.int64),
    way_port=_NO_ROWS,
    way_choice=_NO_ROWS,
    way_share=_NO_FIGURES,
)


def finding(kind: FindingKind, place: Place | str, **changes: Any) -> Finding:
    """Return a finding at a place, or at a port by name."""
    where = Place(PlaceKind.PORT, place) if isinstance(place, str) else place
    values = {"sentence": f"{kind} at {where}", "evidence": (), "confidence": 1.0, "remedy": "repair"}
    return Finding(kind, (where,), **{**values, **changes})


def rate(value: float, expected: float) -> Fact:
    """Return a drain rate with the stated one."""
    return Fact("drain_bps", value, "bit/s", expected)


def evidence(
    *,
    ways: Sequence[tuple[str, str, Sequence[str]]] = (),
    samples: Mapping[str, Sequence[tuple[int, float]]] | None = None,
    queue_counters: Mapping[str, Mapping[str, float]] | None = None,
    host_counters: Mapping[str, Mapping[str, float]] | None = None,
    ops: Mapping[str, Sequence[Any]] | None = None,
    figures: Mapping[str, float] | None = None,
    transport: Mapping[str, int] | None = None,
    is_virtual: bool = False,
    overload_frames: int = 0,
) -> Evidence:
    """Return evidence with one lane a port.

    `ways`: source host, destination host and egress ports of each flow. `samples`: (time, queued bytes) by port.
    `queue_counters` by counter and port, `host_counters` by counter and host. `ops`: columns of ops.parquet.
    """
    row = {name: number for number, name in enumerate(PORTS)}
    host_row = {name: number for number, name in enumerate(HOSTS)}
    points = [(row[port], time, queued) for port, rows in (samples or {}).items() for time, queued in rows]
    points.sort()
    steps = [[row[port] for port in ports] for _, _, ports in ways]
    run = SimpleNamespace(
        plan=SimpleNamespace(port_names=HOSTS),
        frames={"ops": SimpleNamespace(rows=len((ops or {}).get("rank", ())))},
        column=lambda table, name: np.array((ops or {})[name], np.float64),
        summary=SimpleNamespace(
            transport={"local_ack_timeout_err": 0, "naks_rx": 0, **(transport or {})},
            overload_frames=overload_frames,
            clock=SimpleNamespace(between_agents_error_ns=0),
        ),
    )
    return Evidence(
        run=run,  # type: ignore[arg-type]
        ports=Ports(
            names=PORTS,
            switch=tuple(name.partition("/")[0] for name in PORTS),
            peers=PEERS,
            peer_row=np.array([row.get(peer, -1) for peer in PEERS], np.int64),
            host=np.array([host_row.get(peer, -1) for peer in PEERS], np.int64),
            described_bps=np.full(len(PORTS), 100e9),
            counters={},
        ),
        lanes=Lanes(
            port=np.arange(len(PORTS)),
            number=np.full(len(PORTS), 3),
            counters={
                name: np.array([values.get(port, 0.0) for port in PORTS])
                for name, values in (queue_counters or {}).items()
            },
        ),
        samples=LaneSamples(
            lane=np.array([point[0] for point in points], np.int64),
            time_ns=np.array([point[1] for point in points], np.int64),
            values={"queued_bytes": np.array([point[2] for point in points], np.float64)},
        ),
        hosts=Hosts(
            names=HOSTS,
            agent=tuple(name.partition("/")[0] for name in HOSTS),
            link_bps=np.full(len(HOSTS), 100e9),
            port=np.array([row[port] for port, peer in CABLES.items() if peer in HOSTS], np.int64),
            counters={
                name: np.array([values.get(host, 0.0) for host in HOSTS])
                for name, values in (host_counters or {}).items()
            },
        ),
        flows=Flows(
            src_rank=np.array([host_row[source] for source, _, _ in ways], np.int64),
            dst_rank=np.array([host_row[target] for _, target, _ in ways], np.int64),
            src_host=np.array([host_row[source] for source, _, _ in ways], np.int64),
            dst_host=np.array([host_row[target] for _, target, _ in ways], np.int64),
            sent={},
            received={},
            payload_bytes=np.full(len(ways), 1e6),
            way_first=np.cumsum([0, *(len(part) for part in steps)]),
            way_port=np.array([port for part in steps for port in part], np.int64),
        ),
        streams=NO_STREAMS,
        choices=(),
        needs=Needs(),
        topology=None,
        duration_ns=DURATION_NS,
        figures=dict(figures or {}),
        is_virtual=is_virtual,
    )
