"""Evidence of ports by hand, with readings of their queues over time: one lane a port, of number 3."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from etloop.results.diagnosis.evidence import Evidence, Flows, Hosts, Lanes, LaneSamples, Ports
from etloop.results.schema.network_needs import Needs

GBPS: Final = 1e9
STEP_NS: Final = 10_000
FRAME_BYTES: Final = 4_170
LINE_BYTES: Final = FRAME_BYTES + 20


@dataclass(frozen=True)
class Readings:
    """What one port did between readings: frames sent, and what it held and for how long it was paused."""

    frames: Sequence[float]
    """Sent in each step."""
    queued: Sequence[float]
    """Bytes at each reading, one more than steps."""
    paused: Sequence[float] = ()
    """Share of each step; none: never."""
    sent_pauses: Sequence[float] = ()
    """In each step; none: never."""


def at_rate(gbps: float, steps: int = 40, queued: float = 400_000, *, paused: float = 0.0) -> Readings:
    """Return the readings of a port that sends at a rate with a constant queue."""
    frames = gbps * GBPS * STEP_NS / 8e9 / LINE_BYTES
    return Readings([frames] * steps, [queued] * (steps + 1), [paused] * steps)


def held(steps: int = 200, queued: float = 400_000, **changes: Sequence[float]) -> Readings:
    """Return the readings of a port that is paused all the time."""
    return replace(Readings([0.0] * steps, [queued] * (steps + 1), [1.0] * steps), **changes)


def ports_with(
    cables: Mapping[str, str],
    readings: Mapping[str, Readings],
    *,
    gbps: Mapping[str, float] | None = None,
    stated: Mapping[str, float] | None = None,
    flows: Sequence[tuple[str, str, float, Sequence[str]]] = (),
    counters: Mapping[str, Mapping[str, float]] | None = None,
) -> Evidence:
    """Return evidence of the ports of `cables` (port -> other end; an end with "/p0" is a host) and their readings.

    `gbps`: described rates other than 100 Gb/s by port; `stated`: those of the rig by host. `flows`: source host, destination
    host, payload bytes and egress ports; no ways if none has ports. `counters`: of lanes by port, beyond those of readings.
    """
    names = tuple(cables)
    hosts = tuple(end for end in cables.values() if end.endswith("/p0"))
    row, host_row = ({name: number for number, name in enumerate(part)} for part in (names, hosts))
    columns: dict[str, list[float]] = {
        name: []
        for name in (
            "lane",
            "time",
            "queued_bytes",
            "tx_bytes",
            "tx_packets",
            "paused_ns",
            "pfc_tx",
            "pfc_rx",
        )
    }
    for name in names:
        if name in readings:
            _add_rows(columns, row[name], readings[name])
    last = {row_: number for number, row_ in enumerate(columns["lane"])}

    def final(column: str) -> np.ndarray:
        return np.array([columns[column][last[r]] if r in last else 0.0 for r in range(len(names))])

    totals = {
        "pfc_tx": final("pfc_tx"),
        "pfc_rx": final("pfc_rx"),
        "queue_paused_ns": final("paused_ns"),
    } | {
        counter: np.array([values.get(name, 0.0) for name in names])
        for counter, values in (counters or {}).items()
    }
    ways = [[row[port] for port in ports] for *_, ports in flows]
    ends = [np.array([host_row[str(flow[side])] for flow in flows], np.int64) for side in (0, 1)]
    peers = tuple(cables.values())
    return Evidence(
        run=None,  # type: ignore[arg-type]
        needs=Needs(),
        topology=None,
        is_virtual=True,
        ports=Ports(
            names=names,
            switch=tuple(name.partition("/")[0] for name in names),
            peers=peers,
            peer_row=np.array([row.get(peer, -1) for peer in peers], np.int64),
            host=np.array([host_row.get(peer, -1) for peer in peers], np.int64),
            described_bps=np.array([(gbps or {}).get(name, 100.0) * GBPS for name in names]),
            counters={"tx_bytes": final("tx_bytes")},
        ),
        lanes=Lanes(np.arange(len(names)), np.full(len(names), 3), totals),
        samples=LaneSamples(
            np.array(columns["lane"], np.int64),
            np.array(columns["time"], np.int64),
            {name: np.array(values) for name, values in columns.items() if name not in ("lane", "time")},
        ),
        hosts=Hosts(
            names=hosts,
            agent=tuple(name.partition("/")[0] for name in hosts),
            link_bps=np.array([(stated or {}).get(name, 100.0) * GBPS for name in hosts]),
            port=np.array([names.index(port) for port, end in cables.items() if end in host_row], np.int64),
            counters={"paused_ns": np.full(len(hosts), 1e6)},
        ),
        flows=Flows(
            src_rank=ends[0],
            dst_rank=ends[1],
            src_host=ends[0],
            dst_host=ends[1],
            sent={},
            received={},
            payload_bytes=np.array([flow[2] for flow in flows], np.float64),
            way_first=np.cumsum([0, *(len(part) for part in ways)]),
            way_port=np.array([port for part in ways for port in part], np.int64),
        ),
        duration_ns=int(max(columns["time"], default=0)),
    )


def _add_rows(columns: Mapping[str, list[float]], lane: int, readings: Readings) -> None:
    steps = len(readings.frames)
    paused = np.array(readings.paused or [0.0] * steps) * STEP_NS
    rows = {
        "lane": np.full(steps + 1, lane),
        "time": np.arange(steps + 1) * STEP_NS,
        "queued_bytes": np.array(readings.queued),
        "tx_packets": np.r_[0.0, np.cumsum(readings.frames)],
        "tx_bytes": np.r_[0.0, np.cumsum(readings.frames)] * FRAME_BYTES,
        "paused_ns": np.r_[0.0, np.cumsum(paused)],
        "pfc_rx": np.r_[0.0, np.cumsum(paused > 0)],
        "pfc_tx": np.r_[0.0, np.cumsum(readings.sent_pauses or [0.0] * steps)],
    }
    for name, values in rows.items():
        columns[name].extend(values.tolist())
