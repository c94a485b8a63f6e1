"""Recursive doubling: in step k positions 2^k apart exchange everything they have.

An all-reduce exchanges the whole buffer in each of its lg p steps, an all-gather a set of blocks that doubles. A group
that is no power of two is folded as in `halving_doubling`. Source: pmodels/mpich src/mpi/coll/allreduce, allgather
(recursive_doubling); R. Thakur, R. Rabenseifner, W. Gropp (2005).
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
    """All-reduce, barrier or all-gather."""
    assert request.size >= 2
    folding = Folding(request.size)
    lanes = _all_gather if request.collective == "all-gather" else _all_reduce
    turned = None if folding.folded else Symmetry(crosswise)
    tables = each_channel(request, lambda position: lanes(folding, position), turned)
    return schedule_of(request, "recursive_doubling", tables)


def _all_reduce(folding: Folding, position: int) -> tuple[Lane, ...]:
    table = TableDraft()
    number = folding.number(position)
    if number < 0:
        lane = table.lane(send_to=position + 1, recv_from=position + 1)
        lane.add(SEND)
        lane.add(KEEP)
        return table.lanes()
    before: list[Step] = []
    fold = table.lane(send_to=position - 1, recv_from=position - 1) if number < folding.folded else None
    if fold is not None:
        before = [fold.add(ADD)]
    for step in range(folding.steps):
        peer = folding.position(number ^ (1 << step))
        lane = table.lane(send_to=peer, recv_from=peer)
        lane.add(SEND, after=before)
        before = [lane.add((FINISH if step == folding.steps - 1 else ADD) | IN_TURN)]
    if fold is not None:
        fold.add(SEND, after=before)
    return table.lanes()


def _all_gather(folding: Folding, position: int) -> tuple[Lane, ...]:
    table = TableDraft()
    number = folding.number(position)
    # What a folded position gets back waits for all the rest. So it has a lane of its own: of a buffer cut into chunks, later
    # ones come in before the first goes out.
    if number < 0:
        table.lane(send_to=position + 1).add(SEND, _blocks([position]))
        rest = _blocks(p for p in range(folding.size) if p != position)
        table.lane(recv_from=position + 1).add(KEEP, rest)
        return table.lanes()
    folds = number < folding.folded
    before: list[Step] = []
    if folds:
        before = [table.lane(recv_from=position - 1).add(KEEP, _blocks([position - 1]))]
    for step in range(folding.steps):
        distance = 1 << step
        first = number & -distance
        peer = folding.position(number ^ distance)
        lane = table.lane(send_to=peer, recv_from=peer)
        lane.add(SEND, _blocks(folding.stands_for(range(first, first + distance))), before)
        first ^= distance
        lane.add(KEEP | IN_TURN, _blocks(folding.stands_for(range(first, first + distance))))
        # A blocking exchange: of a folded group one side may have more, and nothing overtakes it.
        before = [lane.done]
    if folds:
        back = _blocks(p for p in range(folding.size) if p != position - 1)
        table.lane(send_to=position - 1).add(SEND, back, before)
    return table.lanes()


def _blocks(positions: Iterable[int]) -> tuple[Move, ...]:
    """What these positions put in, one chunk each."""
    return _window(positions) if isinstance(positions, range) else tuple(Move(0, p) for p in positions)


@lru_cache(_DISTINCT_WINDOWS)
def _window(positions: range) -> tuple[Move, ...]:
    return tuple(Move(0, position) for position in positions)
