"""Recursive doubling: in step k positions 2^k apart exchange everything they have.

An all-reduce exchanges the whole buffer in each of its lg p steps, an all-gather a set of blocks that doubles. A group
whose size is not a power of two is folded as in `halving_doubling`. Source: pmodels/mpich src/mpi/coll/allreduce,
allgather (recursive_doubling); R. Thakur, R. Rabenseifner, W. Gropp (2005).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from etloop.traffic.collectives.algorithms.halving_doubling import Folding
from etloop.traffic.collectives.core.cutting import Request
from etloop.traffic.collectives.core.draft import (
    ADD,
    FINISH,
    IN_TURN,
    KEEP,
    SEND,
    Move,
    Step,
    TableDraft,
    each_channel,
    schedule_of,
)
from etloop.traffic.collectives.core.symmetric_tables import Symmetry, crosswise
from etloop.traffic.collectives.core.table import Lane, Schedule

_DISTINCT_WINDOWS: Final = 1 << 12


def recursive_doubling(request: Request) -> Schedule:
    """Build an all-reduce, barrier or all-gather."""
    assert request.size >= 2
    folding = Folding(request.size)
    lanes = _all_gather if request.collective == "all-gather" else _all_reduce
    symmetry = None if folding.folded else Symmetry(crosswise)
    tables = each_channel(request, lambda position: lanes(folding, position), symmetry)
    return schedule_of(request, "recursive_doubling", tables)


def _all_reduce(folding: Folding, position: int) -> tuple[Lane, ...]:
    """Return the table of a position for an all-reduce."""
    table = TableDraft()
    number = folding.number(position)
    if number < 0:
        lane = table.lane(send_to=position + 1, recv_from=position + 1)
        lane.add(SEND)
        lane.add(KEEP)
        return table.lanes()
    waits: list[Step] = []
    fold = table.lane(send_to=position - 1, recv_from=position - 1) if number < folding.folded else None
    if fold is not None:
        waits = [fold.add(ADD)]
    for step in range(folding.steps):
        peer = folding.position(number ^ (1 << step))
        lane = table.lane(send_to=peer, recv_from=peer)
        lane.add(SEND, after=waits)
        waits = [lane.add((FINISH if step == folding.steps - 1 else ADD) | IN_TURN)]
    if fold is not None:
        fold.add(SEND, after=waits)
    return table.lanes()


def _all_gather(folding: Folding, position: int) -> tuple[Lane, ...]:
    """Return the table of a position for an all-gather."""
    table = TableDraft()
    number = folding.number(position)
    # The result for a folded position is sent after all exchanges. It has its own lane: if the buffer is cut into chunks, later
    # chunks of the input are received before the first result is sent.
    if number < 0:
        table.lane(send_to=position + 1).add(SEND, _blocks([position]))
        missing = _blocks(p for p in range(folding.size) if p != position)
        table.lane(recv_from=position + 1).add(KEEP, missing)
        return table.lanes()
    folds = number < folding.folded
    waits: list[Step] = []
    if folds:
        waits = [table.lane(recv_from=position - 1).add(KEEP, _blocks([position - 1]))]
    for step in range(folding.steps):
        distance = 1 << step
        first = number & -distance
        peer = folding.position(number ^ distance)
        lane = table.lane(send_to=peer, recv_from=peer)
        lane.add(SEND, _blocks(folding.stands_for(range(first, first + distance))), waits)
        first ^= distance
        lane.add(KEEP | IN_TURN, _blocks(folding.stands_for(range(first, first + distance))))
        # A blocking exchange: in a folded group one side may have more, and the next step must not overtake it.
        waits = [lane.done]
    if folds:
        returned = _blocks(p for p in range(folding.size) if p != position - 1)
        table.lane(send_to=position - 1).add(SEND, returned, waits)
    return table.lanes()


def _blocks(positions: Iterable[int]) -> tuple[Move, ...]:
    """Return the inputs of these positions as moves, one chunk each."""
    return _window(positions) if isinstance(positions, range) else tuple(Move(0, p) for p in positions)


@lru_cache(_DISTINCT_WINDOWS)
def _window(positions: range) -> tuple[Move, ...]:
    """Return the moves of consecutive positions, cached."""
    return tuple(Move(0, position) for position in positions)
