"""Bruck's algorithms: all-to-all and all-gather in ceil(lg n) steps, whatever n is.

All-to-all: in step k a position sends to r + 2^k every block whose way still has bit k, n/2 of them as one message; blocks
travel several hops, so that about lg n / 2 times the bytes are moved for the fewest messages. All-gather: in step k it
sends to r - 2^k all it has, at most what is lacking there. Source: J. Bruck, C.-T. Ho, S. Kipnis, E. Upfal, D. Weathersby,
"Efficient algorithms for all-to-all communications in multiport message-passing systems" (1997), as in pmodels/mpich
src/mpi/coll/alltoall and allgather.
"""

from __future__ import annotations

from etloop.traffic.collectives.algorithms.direct import exchanged
from etloop.traffic.collectives.core.cutting import Request
from etloop.traffic.collectives.core.draft import (
    KEEP,
    RECV,
    SEND,
    Move,
    Step,
    TableDraft,
    each_channel,
    schedule_of,
)
from etloop.traffic.collectives.core.symmetric_tables import Symmetry, ahead
from etloop.traffic.collectives.core.table import Lane, Schedule


def bruck(request: Request) -> Schedule:
    """All-to-all or all-gather."""
    size = request.size
    assert size >= 2
    if request.collective == "all-gather":
        # Blocks are those of all positions, whose chunk is the lane itself.
        turned = Symmetry(ahead(size))
        tables = each_channel(request, lambda position: _all_gather(position, size), turned)
        return schedule_of(request, "bruck", tables)
    turned = Symmetry(ahead(size), ahead(size))
    tables = each_channel(request, lambda position: _all_to_all(position, size), turned)
    return schedule_of(request, "bruck", tables, blocks=size)


def steps(size: int) -> int:
    """ceil(lg size)."""
    return (size - 1).bit_length()


def _all_to_all(position: int, size: int) -> tuple[Lane, ...]:
    table = TableDraft()
    before: list[Step] = []
    for k in range(steps(size)):
        distance = 1 << k
        source = (position - distance) % size
        lane = table.lane(send_to=(position + distance) % size, recv_from=source)
        lane.add(SEND, _travelling(position, k, size), before)
        arriving = _travelling(source, k, size)
        kinds = [KEEP if move.chunk == position else RECV for move in arriving]
        before = [lane.add_each(list(zip(kinds, arriving, strict=True)))]
    return table.lanes()


def _travelling(position: int, step: int, size: int) -> list[Move]:
    """What a position sends in a step: of all ways with that bit, the blocks that have come so far on theirs."""
    moves = []
    for way in range(size):
        if way >> step & 1:
            source = (position - way % (1 << step)) % size
            moves.append(exchanged(source, (source + way) % size, size))
    return moves


def _all_gather(position: int, size: int) -> tuple[Lane, ...]:
    table = TableDraft()
    before: list[Step] = []
    for k in range(steps(size)):
        distance = 1 << k
        count = min(distance, size - distance)
        source = (position + distance) % size
        lane = table.lane(send_to=(position - distance) % size, recv_from=source)
        lane.add(SEND, [Move(0, (position + i) % size) for i in range(count)], before)
        before = [lane.add(KEEP, [Move(0, (source + i) % size) for i in range(count)])]
    return table.lanes()
