"""Ring all-reduce, all-gather, reduce-scatter and barrier as NCCL 2.30 runs them, on any number of channels.

Every position receives from the one before it in the ring and sends to the one behind it. Sources: NCCL
device/all_reduce.h, all_gather.h, reduce_scatter.h. A channel has its share of the bytes and a ring of its own
(`hosts.ring_order`); of a bidirectional ring every other channel runs backwards. Chunks, slices and slots come with the
request. Each position sends 2(n-1)/n of an all-reduce's bytes, n-1 blocks otherwise.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from traffic.collectives.draft import on_channels, schedule_of
from traffic.collectives.hosts import hosts_of, ring_order
from traffic.collectives.steps import (
    recv,
    recv_copy_send,
    recv_reduce_copy,
    recv_reduce_copy_send,
    recv_reduce_send,
    send,
)
from traffic.collectives.table import Entry, Lane

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from traffic.collectives.cutting import Request
    from traffic.collectives.table import Schedule


def ring(request: Request) -> Schedule:
    """All channels run the same way round."""
    return _ring(request, "ring", bidirectional=False)


def bidirectional_ring(request: Request) -> Schedule:
    """Channels 1, 3, ... run the other way round, so that both directions of every link are used."""
    return _ring(request, "bidirectional_ring", bidirectional=True)


def all_reduce_entries(place: int, size: int) -> tuple[Entry, ...]:
    """What the position at a place of the ring does in a loop; chunk and block of that number are final there first."""
    first, last = (place - 1) % size, (place + 1) % size
    return (
        send(first, first),
        *(recv_reduce_send(c, c) for c in _backwards(place, range(2, size), size)),
        recv_reduce_copy_send(place, place),
        *(recv_copy_send(c, c) for c in _backwards(place, range(1, size - 1), size)),
        recv(last, last),
    )


def _all_gather_entries(order: Sequence[int], place: int) -> tuple[Entry, ...]:
    size = len(order)
    return (
        send(0, order[place]),
        *(recv_copy_send(0, order[p]) for p in _backwards(place, range(1, size - 1), size)),
        recv(0, order[(place + 1) % size]),
    )


def _reduce_scatter_entries(order: Sequence[int], place: int) -> tuple[Entry, ...]:
    size = len(order)
    first, own = order[(place - 1) % size], order[place]
    passed = (order[p] for p in _backwards(place, range(2, size), size))
    return (
        send(first, first),
        *(recv_reduce_send(block, block) for block in passed),
        recv_reduce_copy(own, own),
    )


def _backwards(place: int, distances: range, size: int) -> tuple[int, ...]:
    return tuple((place - distance) % size for distance in distances)


def _ring(request: Request, algorithm: str, *, bidirectional: bool) -> Schedule:
    size, channels = request.size, request.cutting.channels
    assert size >= 2
    hosts = hosts_of(size, request.ranks_per_host)
    tables: list[list[tuple[Lane, ...]]] = [[] for _ in range(size)]
    for channel in range(channels):
        order = ring_order(hosts, channel)
        if bidirectional and channel % 2:
            order = order[::-1]
        entries = _entries_of(request.collective, order)
        for place, position in enumerate(order):
            following, preceding = order[(place + 1) % size], order[place - 1]
            tables[position].append((Lane(0, following, preceding, 0, 1, entries(place)),))
    whole_buffer = request.collective in ("all-reduce", "barrier")
    return schedule_of(
        request,
        algorithm,
        tuple(on_channels(table) for table in tables),
        blocks=size if request.collective == "reduce-scatter" else 0,
        chunks_per_loop=size if whole_buffer else 1,
        # Only the all-reduce kernel spreads what is left over all chunks of its last loop.
        shrink_last=whole_buffer,
    )


def _entries_of(collective: str, order: Sequence[int]) -> Callable[[int], tuple[Entry, ...]]:
    match collective:
        case "all-gather":
            return partial(_all_gather_entries, order)
        case "reduce-scatter":
            return partial(_reduce_scatter_entries, order)
        case _:
            return partial(all_reduce_entries, size=len(order))
