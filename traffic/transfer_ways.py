"""Ways of single transfers between the endpoints of a topology, for transfers that no plan has. Pure.

The links of a way are the egress of the source and the egress ports of all switches on it. Where switches hash, the five-tuple of
the pair's queue pair selects the way, so all transfers of a pair take the same; switches that spread packets use all ways.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from etloop.contract.base.errors import PlanError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.topology import Topology
from etloop.traffic import _native
from etloop.traffic.flow_limits import REMEDY, refuse_switches
from etloop.traffic.flow_values import FIRST_PORT, PORTS
from etloop.traffic.flow_walk import BY_KEY, Fabric, Rows, has_choice, walk
from etloop.traffic.topology.routes import routes

_SPREAD: Final = 2_654_435_761
"""Multiplier by which consecutive pairs have distant UDP source ports (Knuth, The Art of Computer Programming 3, 6.4)."""


@dataclass(frozen=True, slots=True, eq=False)
class TransferWay:
    """Links of one ordered pair of endpoints, and its latency."""

    links: NDArray[np.int32]
    parts: NDArray[np.float32]
    """Share of the transfer on each link."""
    latency_ns: int
    store_ns_per_bit: float
    """Additional time per bit of a packet, because switches store it before they forward it."""
    bottleneck_bps: float
    """Rate of a transfer that shares no link."""


class TransferWays:
    """Links of a topology and the ways between its endpoints, each computed when its source is first used."""

    def __init__(self, topology: Topology, addresses: Sequence[str]) -> None:
        """Read a topology; `addresses` has one of each attachment. Raises `PlanError` for settings that
        the flow level does not model.
        """
        table = routes(topology)
        refuse_switches(topology, table)
        if topology.outages:
            raise PlanError(
                Problem("topology: outages", "the flow level does not model links that go down", REMEDY)
            )
        self._fabric = Fabric(topology, table)
        self._addresses = list(addresses)
        self._is_hashed = has_choice(self._fabric, lambda switch: switch.balancing in BY_KEY)
        self.endpoints = tuple(attachment.rig_port for attachment in topology.attachments)
        self.link_names = (*(f"{endpoint} out" for endpoint in self.endpoints), *self._fabric.names)
        out_bps = self._fabric.link_bps[self._fabric.last_link]
        self.link_bps = np.concatenate([out_bps, self._fabric.link_bps])
        self._by_source: dict[int, list[TransferWay | None]] = {}

    def way(self, src: int, dst: int) -> TransferWay | None:
        """Return the way between two endpoints, by number; None if there is none."""
        if src not in self._by_source:
            self._by_source[src] = self._from(src)
        return self._by_source[src][dst]

    def _from(self, src: int) -> list[TransferWay | None]:
        """Return the ways from one endpoint to all."""
        fabric, count = self._fabric, len(self.endpoints)
        reached = [dst for dst in range(count) if dst != src and fabric.table[fabric.home[src]][dst]]
        dst = np.array(reached, np.int64)
        pair = np.arange(len(dst))
        ports = (FIRST_PORT + (src * count + dst) * _SPREAD % PORTS).astype(np.uint16)
        rows = Rows(
            pair,
            np.ones(len(dst)),
            np.full(len(dst), fabric.home[src]),
            dst,
            pair,
            ports,
            np.full(len(dst), fabric.first_in_port[src]),
            np.zeros(len(dst), np.int64),
            np.zeros(len(dst)),
        )

        @cache
        def keys(fields: int) -> NDArray[np.uint64]:
            addresses = [self._addresses[number] for number in reached]
            raw = _native.five_tuple_keys(self._addresses[src], addresses, ports.tolist(), fields)
            return np.frombuffer(raw, np.uint64)

        parts = walk(fabric, rows, len(dst), keys if self._is_hashed else None)
        last = fabric.last_link[dst]
        latency_ns = parts.elapsed_ns + fabric.delay_ns[fabric.last_link[src]] + fabric.hop_ns[last]
        store = parts.store + fabric.store[last]
        bounds = np.searchsorted(parts.flow, np.arange(len(dst) + 1))
        ways: list[TransferWay | None] = [None] * count
        for row, number in enumerate(reached):
            span = slice(bounds[row], bounds[row + 1])
            links = np.concatenate([[src], count + parts.link[span], [count + last[row]]]).astype(np.int32)
            shares = np.concatenate([[1], parts.share[span], [1]]).astype(np.float32)
            ways[number] = TransferWay(
                links,
                shares,
                int(latency_ns[row]),
                float(store[row]),
                float((self.link_bps[links] / shares).min()),
            )
        return ways
