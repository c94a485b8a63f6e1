"""Ring all-reduce, all-gather, reduce-scatter and barrier as in NCCL 2.30, on any number of channels.

Every position receives from its predecessor in the ring and sends to its successor. Sources: NCCL device/all_reduce.h,
all_gather.h, reduce_scatter.h. A channel has its share of the bytes and its own ring (`hosts.ring_order`); in a
bidirectional ring every other channel runs in the opposite direction. Chunks, slices and slots come with the request.
Each position sends 2(n-1)/n of an all-reduce's bytes, n-1 blocks otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from etloop.traffic.collectives.core.cutting import Request
from etloop.traffic.collectives.core.draft import (
    ADD,
    FINISH,
    KEEP,
    SEND,
    entry,
    on_channels,
    schedule_of,
)
from etloop.traffic.collectives.core.hosts import hosts_of, ring_order
from etloop.traffic.collectives.core.lazy_tables import LazyTables
from etloop.traffic.collectives.core.regular_columns import RingShape, ring_columns
from etloop.traffic.collectives.core.table import Entry, Lane, Schedule


def ring(request: Request) -> Schedule:
    """Build a ring schedule in which all channels run in the same direction."""
    return _ring(request, "ring", bidirectional=False)


def bidirectional_ring(request: Request) -> Schedule:
    """Build a ring schedule in which odd channels run in the opposite direction, to use both directions of every link."""
    return _ring(request, "bidirectional_ring", bidirectional=True)


def all_reduce_entries(place: int, size: int) -> tuple[Entry, ...]:
    """Return the entries of the position at `place` in one loop; chunk and block `place` become final there first."""
    blocks = [(place - distance) % size for distance in range(1, size)]
    return (
        entry(SEND, blocks[0], blocks[0]),
        *(entry(ADD | SEND, block, block) for block in blocks[1:]),
        entry(FINISH | SEND, place, place),
        *(entry(KEEP | SEND, block, block) for block in blocks[:-1]),
        entry(KEEP, blocks[-1], blocks[-1]),
    )


def _all_gather_entries(order: Sequence[int], place: int) -> tuple[Entry, ...]:
    """Return the entries of the position at `place` in one loop of an all-gather."""
    blocks = [order[place - distance] for distance in range(len(order))]
    return (
        entry(SEND, 0, blocks[0]),
        *(entry(KEEP | SEND, 0, block) for block in blocks[1:-1]),
        entry(KEEP, 0, blocks[-1]),
    )


def _reduce_scatter_entries(order: Sequence[int], place: int) -> tuple[Entry, ...]:
    """Return the entries of the position at `place` in one loop of a reduce-scatter."""
    blocks = [order[place - distance] for distance in range(1, len(order) + 1)]
    return (
        entry(SEND, blocks[0], blocks[0]),
        *(entry(ADD | SEND, block, block) for block in blocks[1:-1]),
        entry(FINISH, blocks[-1], blocks[-1]),
    )


def _ring(request: Request, algorithm: str, *, bidirectional: bool) -> Schedule:
    """Build the schedule of a ring."""
    size = request.size
    assert size >= 2
    hosts = hosts_of(size, request.ranks_per_host)
    orders = [ring_order(hosts, channel) for channel in range(request.cutting.channels)]
    if bidirectional:
        orders[1::2] = [order[::-1] for order in orders[1::2]]
    tables = LazyTables(
        size,
        partial(_table, request.collective, [_Ring.of(order) for order in orders]),
        partial(ring_columns, _shape(request.collective, orders)),
    )
    whole_buffer = request.collective in ("all-reduce", "barrier")
    return schedule_of(
        request,
        algorithm,
        tables,
        blocks=size if request.collective == "reduce-scatter" else 0,
        chunks_per_loop=size if whole_buffer else 1,
        # Only the all-reduce kernel spreads the remainder over all chunks of its last loop.
        shrink_last=whole_buffer,
    )


@dataclass(frozen=True, slots=True)
class _Ring:
    """Positions in ring order, and the place of every position."""

    order: tuple[int, ...]
    places: tuple[int, ...]

    @classmethod
    def of(cls, order: tuple[int, ...]) -> _Ring:
        """Build a ring from its order."""
        return cls(order, tuple(sorted(range(len(order)), key=order.__getitem__)))


def _table(collective: str, rings: Sequence[_Ring], position: int) -> tuple[Lane, ...]:
    """Return the table of a position: one lane per channel."""
    # Channels with the same ring share their entries.
    entries: dict[tuple[int, ...], tuple[Entry, ...]] = {}
    tables: list[tuple[Lane, ...]] = []
    for channel_ring in rings:
        place, size = channel_ring.places[position], len(channel_ring.order)
        if channel_ring.order not in entries:
            entries[channel_ring.order] = _entries(collective, channel_ring.order, place)
        successor, predecessor = channel_ring.order[(place + 1) % size], channel_ring.order[place - 1]
        tables.append((Lane(0, successor, predecessor, 0, 1, entries[channel_ring.order]),))
    return on_channels(tables)


def _shape(collective: str, orders: Sequence[tuple[int, ...]]) -> RingShape:
    """Return the shape of the rings, from which columns are computed."""
    size = len(orders[0])
    return RingShape(
        orders=tuple(orders),
        entries=_entries(collective, range(size), 0),
        chunks_turn=collective != "all-gather",
        chunks_are_positions=collective == "reduce-scatter",
    )


def _entries(collective: str, order: Sequence[int], place: int) -> tuple[Entry, ...]:
    """Return the entries of the position at `place`."""
    match collective:
        case "all-gather":
            return _all_gather_entries(order, place)
        case "reduce-scatter":
            return _reduce_scatter_entries(order, place)
        case _:
            return all_reduce_entries(place, len(order))
