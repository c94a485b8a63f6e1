"""Evidence by hand for the rules of `etloop certify`: two leaves with two hosts each, and two spines.

Ports of the device: leaf0/0, leaf0/1 (hosts h0, h1), leaf0/2, leaf0/3 (to spine0, spine1), leaf1/0 .. leaf1/3 likewise (hosts
h2, h3), then spine0/0, spine0/1, spine1/0, spine1/1 (to leaf0, leaf1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Final

import numpy as np

from etloop.results.diagnosis.evidence import Evidence, Flows, Hosts, Lanes, LaneSamples, Ports
from etloop.results.schema.network_needs import Needs

GBPS: Final = 1e9
NAMES: Final = (
    *(f"leaf{leaf}/{port}" for leaf in range(2) for port in range(4)),
    *(f"spine{spine}/{port}" for spine in range(2) for port in range(2)),
)
HOSTS: Final = ("h0/p0", "h1/p0", "h2/p0", "h3/p0")
PEERS: Final = (
    *("h0/p0", "h1/p0", "spine0/0", "spine1/0"),
    *("h2/p0", "h3/p0", "spine0/1", "spine1/1"),
    *("leaf0/2", "leaf1/2", "leaf0/3", "leaf1/3"),
)
PAIRS: Final = tuple((source, to) for source in range(4) for to in range(4) if source != to)
"""Source and destination of each flow."""


def evidence_by_hand(
    *,
    port_counters: Mapping[str, Sequence[float]] | None = None,
    queues: Mapping[tuple[str, int], Mapping[str, float]] | None = None,
    samples: Mapping[tuple[str, int], Sequence[tuple[float, ...]]] | None = None,
    lost: Mapping[tuple[int, int], float] | None = None,
    ops: Mapping[str, Sequence[Any]] | None = None,
    link_bps: float = 100 * GBPS,
    lost_by_soft_switch: int = 0,
) -> Evidence:
    """Return evidence of the fabric.

    `queues`: by port and queue, counters by name. `samples`: by port and queue, rows of time (ns), bytes waiting, bytes and
    packets sent, packets marked. `lost_by_soft_switch`: frames. `lost`: of 10,000 packets, by source and destination.
    """
    row_of = {name: row for row, name in enumerate(NAMES)}
    lanes = list(dict.fromkeys([*(queues or {}), *(samples or {})]))
    counters = sorted({name for values in (queues or {}).values() for name in values})
    rows = [(lane, *reading) for lane, key in enumerate(lanes) for reading in (samples or {}).get(key, ())]
    columns = np.array(rows, float).reshape(-1, 6).T
    names = ("queued_bytes", "tx_bytes", "tx_packets", "marked_packets")
    sent = np.full(len(PAIRS), 10_000.0)
    missing = np.array([(lost or {}).get(pair, 0.0) for pair in PAIRS])
    run = SimpleNamespace(
        frames={
            "ops": SimpleNamespace(columns={name: np.array(values) for name, values in (ops or {}).items()})
        },
        plan=SimpleNamespace(port_names=HOSTS),
        summary=SimpleNamespace(overload_frames=lost_by_soft_switch, transport={}),
    )
    return Evidence(
        run=run,  # type: ignore[arg-type]
        ports=Ports(
            names=NAMES,
            switch=tuple(name.partition("/")[0] for name in NAMES),
            peers=PEERS,
            peer_row=np.array([row_of.get(peer, -1) for peer in PEERS]),
            host=np.array([HOSTS.index(peer) if peer in HOSTS else -1 for peer in PEERS]),
            described_bps=np.full(len(NAMES), link_bps),
            counters={name: np.array(values, float) for name, values in (port_counters or {}).items()},
        ),
        lanes=Lanes(
            port=np.array([row_of[port] for port, _ in lanes], np.int64),
            number=np.array([number for _, number in lanes], np.int64),
            counters={
                name: np.array([(queues or {}).get(key, {}).get(name, np.nan) for key in lanes])
                for name in counters
            },
        ),
        samples=LaneSamples(
            columns[0].astype(np.int64),
            columns[1].astype(np.int64),
            {name: columns[2 + number] for number, name in enumerate(names)}
            | {"paused_ns": np.zeros(columns.shape[1])},
        ),
        hosts=Hosts(
            names=HOSTS,
            agent=tuple(name.partition("/")[0] for name in HOSTS),
            link_bps=np.full(len(HOSTS), link_bps),
            port=np.array([NAMES.index(port) for port in ("leaf0/0", "leaf0/1", "leaf1/0", "leaf1/1")]),
            counters={"rx_icrc_encapsulated": np.zeros(len(HOSTS))},
        ),
        flows=Flows(
            src_rank=np.array([source for source, _ in PAIRS]),
            dst_rank=np.array([to for _, to in PAIRS]),
            src_host=np.array([source for source, _ in PAIRS]),
            dst_host=np.array([to for _, to in PAIRS]),
            sent={"tx_packets": sent},
            received={"rx_packets": sent - missing},
            payload_bytes=sent * 4096,
            way_first=np.zeros(len(PAIRS) + 1, np.int64),
            way_port=np.empty(0, np.int64),
        ),
        streams=None,  # type: ignore[arg-type]  # the rules of certify do not read it
        choices=(),
        needs=Needs(data_dscp=26, needs_lossless=True),
        topology=None,
        duration_ns=1_000_000,
    )
