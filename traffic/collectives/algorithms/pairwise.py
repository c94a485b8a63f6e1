"""All-to-all and reduce-scatter with one peer after another, and MPICH's scattered all-to-all with 32 peers at a time.

Pairwise exchange: n - 1 rounds, each complete before the next. If n is a power of two the peer of round i is r xor i,
else a position sends to r+i and receives from r-i. Scattered: batches of peers, each complete before the next; a
position receives from r+i and sends to r-i. Source: pmodels/mpich src/mpi/coll/alltoall (pairwise, scattered),
reduce_scatter (pairwise).
"""

from __future__ import annotations

from typing import Final

from etloop.traffic.collectives.algorithms.direct import exchange_move
from etloop.traffic.collectives.core.cutting import Request
from etloop.traffic.collectives.core.draft import (
    ADD,
    FINISH,
    KEEP,
    SEND,
    TableDraft,
    block_moves,
    each_channel,
    schedule_of,
)
from etloop.traffic.collectives.core.symmetric_tables import Symmetry, ahead, crosswise
from etloop.traffic.collectives.core.table import Lane, Schedule

THROTTLE: Final = 32
"""MPIR_CVAR_ALLTOALL_THROTTLE: the batch of a scattered all-to-all, unless the request has a window."""


def pairwise(request: Request) -> Schedule:
    """Build a pairwise all-to-all or reduce-scatter."""
    size = request.size
    assert size >= 2
    reduces = request.collective == "reduce-scatter"
    lanes = _reduce_scatter if reduces else _all_to_all
    turn = crosswise if size & (size - 1) == 0 else ahead(size)
    tables = each_channel(request, lambda position: lanes(position, size), Symmetry(turn, turn))
    return schedule_of(request, "pairwise", tables, blocks=size)


def build_scattered(request: Request) -> Schedule:
    """Build a scattered all-to-all."""
    size = request.size
    assert size >= 2
    throttle = request.cutting.window or THROTTLE
    turn = ahead(size)
    tables = each_channel(
        request, lambda position: _scattered_lanes(position, size, throttle), Symmetry(turn, turn)
    )
    return schedule_of(request, "scattered", tables, blocks=size)


def partners(position: int, round_number: int, size: int) -> tuple[int, int]:
    """Return (position to send to, position to receive from) in a round, counted from 1."""
    if size & (size - 1) == 0:
        return position ^ round_number, position ^ round_number
    return (position + round_number) % size, (position - round_number) % size


def _all_to_all(position: int, size: int) -> tuple[Lane, ...]:
    """Return the table of a position for a pairwise all-to-all."""
    table = TableDraft()
    for i in range(1, size):
        target, source = partners(position, i, size)
        lane = table.lane(target, source, batch=i - 1)
        lane.add(SEND, [exchange_move(position, target, size)])
        lane.add(KEEP, [exchange_move(source, position, size)])
    return table.lanes()


def _reduce_scatter(position: int, size: int) -> tuple[Lane, ...]:
    """Return the table of a position for a pairwise reduce-scatter."""
    table = TableDraft()
    for i in range(1, size):
        target, source = partners(position, i, size)
        lane = table.lane(target, source, batch=i - 1)
        lane.add(SEND, block_moves([target]))
        lane.add(FINISH if i == size - 1 else ADD, block_moves([position]))
    return table.lanes()


def _scattered_lanes(position: int, size: int, throttle: int) -> tuple[Lane, ...]:
    """Return the table of a position for a scattered all-to-all."""
    table = TableDraft()
    for i in range(1, size):
        target, source = (position - i) % size, (position + i) % size
        # The position itself counts as the first peer of the first batch.
        lane = table.lane(target, source, batch=i // throttle)
        lane.add(SEND, [exchange_move(position, target, size)])
        lane.add(KEEP, [exchange_move(source, position, size)])
    return table.lanes()
