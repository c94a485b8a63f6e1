"""Schedules for any byte count: NCCL's algorithm for large messages, on one channel."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from etloop.traffic.collectives.algorithms.registry import ALGORITHMS
from etloop.traffic.collectives.core.cutting import KIB, Cutting, PeerParts, Request
from etloop.traffic.collectives.core.table import Protocol, Schedule
from etloop.traffic.collectives.selection import CollectiveName

_RING: Final = Cutting(Protocol.SIMPLE, 1, 2048 * KIB, 2, 32 * KIB, 4)
_CHAIN: Final = Cutting(Protocol.SIMPLE, 1, 512 * KIB, 1, 16 * KIB, 8)
_P2P: Final = Cutting(
    Protocol.SIMPLE, 1, 128 * KIB, 1, 16 * KIB, 8, peers=PeerParts(1, 1, 1, 64 * KIB, 128 * KIB)
)
SEND_RECV: Final = ALGORITHMS["p2p"].build(Request("point-to-point", 2, 1, _P2P))
"""The schedule of every send (position 0) and receive (position 1)."""


@lru_cache(maxsize=64)
def schedule_for(collective: CollectiveName, size: int, *, ranks_per_host: int = 1) -> Schedule:
    """The schedule of a collective over `size` positions, of which each host has `ranks_per_host` consecutive ones."""
    algorithm, cutting = {
        CollectiveName.REDUCE: ("chain", _CHAIN),
        CollectiveName.BROADCAST: ("chain", _CHAIN),
        CollectiveName.ALL_TO_ALL: ("p2p", _P2P),
        CollectiveName.GATHER: ("linear", _P2P),
        CollectiveName.SCATTER: ("linear", _P2P),
    }.get(collective, ("ring", _RING))
    hosts = min(ranks_per_host, size) if collective is CollectiveName.ALL_TO_ALL else 1
    name = collective.name.removesuffix("_BLOCK").lower().replace("_", "-")
    return ALGORITHMS[algorithm].build(Request(name, size, hosts, cutting))


def schedule_for_splits(splits: tuple[tuple[int, ...], ...], *, ranks_per_host: int = 1) -> Schedule:
    """The schedule of an all-to-all in which position i sends `splits[i][j]` bytes to position j."""
    size = len(splits)
    hosts = min(ranks_per_host, size)
    return ALGORITHMS["p2p"].build(Request("uneven all-to-all", size, hosts, _P2P, splits=splits))
