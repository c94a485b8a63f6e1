"""Bruck's algorithms: all-to-all and all-gather in ceil(lg n) steps for any n.

All-to-all: in step k a position sends to r + 2^k every block whose remaining distance has bit k set, n/2 of them as one
message. Blocks travel several hops, so about lg n / 2 times the bytes are moved, in the fewest messages. All-gather: in
step k it sends to r - 2^k everything it has, at most what is missing there. Source: J. Bruck, C.-T. Ho, S. Kipnis, E.
Upfal, D. Weathersby, "Efficient algorithms for all-to-all communications in multiport message-passing systems" (1997),
as in pmodels/mpich src/mpi/coll/alltoall and allgather.
"""

from __future__ import annotations

from etloop.traffic.collectives.algorithms.direct import exchange_move
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
    """Build an all-to-all or all-gather."""
    size = request.size
    assert size >= 2
    if request.collective == "all-gather":
        # In an all-gather every move is chunk 0 of its block, so only peers turn.
        symmetry = Symmetry(ahead(size))
        tables = each_channel(request, lambda position: _all_gather(position, size), symmetry)
        return schedule_of(request, "bruck", tables)
    symmetry = Symmetry(ahead(size), ahead(size))
    tables = each_channel(request, lambda position: _all_to_all(position, size), symmetry)
    return schedule_of(request, "bruck", tables, blocks=size)


def steps(size: int) -> int:
    """Return ceil(lg size)."""
    return (size - 1).bit_length()


def _all_to_all(position: int, size: int) -> tuple[Lane, ...]:
    """Return the table of a position for an all-to-all."""
    table = TableDraft()
    waits: list[Step] = []
    for k in range(steps(size)):
        distance = 1 << k
        source = (position - distance) % size
        lane = table.lane(send_to=(position + distance) % size, recv_from=source)
        lane.add(SEND, _travelling(position, k, size), waits)
        arriving = _travelling(source, k, size)
        kinds = [KEEP if move.chunk == position else RECV for move in arriving]
        waits = [lane.add_each(list(zip(kinds, arriving, strict=True)))]
    return table.lanes()


def _travelling(position: int, step: int, size: int) -> list[Move]:
    """Return the blocks that a position sends in a step: all that are there and whose distance has the step's bit set."""
    moves = []
    for distance in range(size):
        if distance >> step & 1:
            source = (position - distance % (1 << step)) % size
            moves.append(exchange_move(source, (source + distance) % size, size))
    return moves


def _all_gather(position: int, size: int) -> tuple[Lane, ...]:
    """Return the table of a position for an all-gather."""
    table = TableDraft()
    waits: list[Step] = []
    for k in range(steps(size)):
        distance = 1 << k
        count = min(distance, size - distance)
        source = (position + distance) % size
        lane = table.lane(send_to=(position - distance) % size, recv_from=source)
        lane.add(SEND, [Move(0, (position + i) % size) for i in range(count)], waits)
        waits = [lane.add(KEEP, [Move(0, (source + i) % size) for i in range(count)])]
    return table.lanes()
