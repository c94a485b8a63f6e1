"""Binomial trees from and to position 0: broadcast, reduce, gather and scatter in ceil(lg n) steps.

The parent of a position is the position without its lowest set bit; its subtree is the range up to the next multiple of
that bit. A broadcast or scatter serves the largest subtree first, one after another as blocking sends do; a reduction
or gather receives from the smallest first. Source: pmodels/mpich src/mpi/coll/bcast, reduce, gather, scatter
(binomial). There are n-1 messages in total: of B each for a broadcast or reduction, of a whole subtree for gather and
scatter.
"""

from __future__ import annotations

from collections.abc import Callable

from etloop.traffic.collectives.core.cutting import Request
from etloop.traffic.collectives.core.draft import (
    ADD,
    FINISH,
    KEEP,
    ONE,
    RECV,
    SEND,
    Move,
    Step,
    TableDraft,
    block_moves,
    each_channel,
    schedule_of,
)
from etloop.traffic.collectives.core.table import Lane, Schedule


def binomial(request: Request) -> Schedule:
    """Build a broadcast, reduce, gather or scatter with root 0."""
    size = request.size
    assert size >= 2
    lanes: Callable[[int, int], tuple[Lane, ...]] = {
        "broadcast": _broadcast,
        "reduce": _reduce,
        "gather": _gather,
        "scatter": _scatter,
    }[request.collective]
    tables = each_channel(request, lambda position: lanes(position, size))
    return schedule_of(request, "binomial", tables, blocks=size if request.collective == "scatter" else 0)


def parent(position: int) -> int:
    """Return the parent of a position; -1 for the root."""
    return position & (position - 1) if position else -1


def children(position: int, size: int) -> list[int]:
    """Return the children of a position, the one with the smallest subtree first."""
    reach = position & -position or 1 << (size - 1).bit_length()
    return [position + bit for bit in _bits(reach) if position + bit < size]


def subtree(position: int, size: int) -> range:
    """Return a position and all its descendants."""
    reach = position & -position or size
    return range(position, min(position + reach, size))


def _bits(below: int) -> list[int]:
    """Return the powers of two that are less than `below`, a power of two."""
    return [1 << i for i in range(below.bit_length() - 1)]


def _broadcast(position: int, size: int) -> tuple[Lane, ...]:
    """Return the table of a position for a broadcast."""
    table = TableDraft()
    waits: list[Step] = []
    if position:
        waits = [table.lane(recv_from=parent(position)).add(KEEP)]
    for child in reversed(children(position, size)):
        lane = table.lane(send_to=child)
        lane.add(SEND, ONE, waits)
        waits = [lane.done]
    return table.lanes()


def _reduce(position: int, size: int) -> tuple[Lane, ...]:
    """Return the table of a position for a reduction."""
    table = TableDraft()
    waits: list[Step] = []
    child_positions = children(position, size)
    for child in child_positions:
        is_last = not position and child == child_positions[-1]
        # One child after another, as with blocking receives and reductions.
        waits = [table.lane(recv_from=child).add(FINISH if is_last else ADD, ONE, waits)]
    if position:
        table.lane(send_to=parent(position)).add(SEND, ONE, waits)
    return table.lanes()


def _gather(position: int, size: int) -> tuple[Lane, ...]:
    """Return the table of a position for a gather."""
    table = TableDraft()
    arrived: list[Step] = []
    for child in children(position, size):
        moves = [Move(0, block) for block in subtree(child, size)]
        arrived.append(table.lane(recv_from=child).add(RECV if position else KEEP, moves))
    if position:
        moves = [Move(0, block) for block in subtree(position, size)]
        table.lane(send_to=parent(position)).add(SEND, moves, arrived)
    return table.lanes()


def _scatter(position: int, size: int) -> tuple[Lane, ...]:
    """Return the table of a position for a scatter."""
    table = TableDraft()
    waits: list[Step] = []
    if position:
        moves = block_moves(subtree(position, size))
        kinds = [KEEP if move.block == position else RECV for move in moves]
        lane = table.lane(recv_from=parent(position))
        waits = [lane.add_each(list(zip(kinds, moves, strict=True)))]
    for child in reversed(children(position, size)):
        lane = table.lane(send_to=child)
        lane.add(SEND, block_moves(subtree(child, size)), waits)
        waits = [lane.done]
    return table.lanes()
