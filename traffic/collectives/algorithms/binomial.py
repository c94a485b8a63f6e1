"""Binomial trees from and to position 0: broadcast, reduce, gather and scatter in ceil(lg n) steps.

The parent of a position is it without its lowest set bit; its subtree are the positions up to the next multiple of that
bit. A broadcast or scatter serves the largest subtree first, one after another as blocking sends do; a reduction or
gather takes in the smallest first. Source: pmodels/mpich src/mpi/coll/bcast, reduce, gather, scatter (binomial).
n-1 messages in all: of B each for a broadcast or reduction, of a whole subtree for gather and scatter.
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
    """Broadcast, reduce, gather or scatter; the root is position 0."""
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
    """The position above; -1 for the root."""
    return position & (position - 1) if position else -1


def children(position: int, size: int) -> list[int]:
    """Positions below, the one with the smallest subtree first."""
    reach = position & -position or 1 << (size - 1).bit_length()
    return [position + bit for bit in _bits(reach) if position + bit < size]


def subtree(position: int, size: int) -> range:
    """A position and all below it."""
    reach = position & -position or size
    return range(position, min(position + reach, size))


def _bits(below: int) -> list[int]:
    return [1 << i for i in range(below.bit_length() - 1)]


def _broadcast(position: int, size: int) -> tuple[Lane, ...]:
    table = TableDraft()
    before: list[Step] = []
    if position:
        before = [table.lane(recv_from=parent(position)).add(KEEP)]
    for child in reversed(children(position, size)):
        lane = table.lane(send_to=child)
        lane.add(SEND, ONE, before)
        before = [lane.done]
    return table.lanes()


def _reduce(position: int, size: int) -> tuple[Lane, ...]:
    table = TableDraft()
    before: list[Step] = []
    below = children(position, size)
    for child in below:
        last = not position and child == below[-1]
        # One after another, as a blocking receive and addition is.
        before = [table.lane(recv_from=child).add(FINISH if last else ADD, ONE, before)]
    if position:
        table.lane(send_to=parent(position)).add(SEND, ONE, before)
    return table.lanes()


def _gather(position: int, size: int) -> tuple[Lane, ...]:
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
    table = TableDraft()
    before: list[Step] = []
    if position:
        moves = block_moves(subtree(position, size))
        kinds = [KEEP if move.block == position else RECV for move in moves]
        lane = table.lane(recv_from=parent(position))
        before = [lane.add_each(list(zip(kinds, moves, strict=True)))]
    for child in reversed(children(position, size)):
        lane = table.lane(send_to=child)
        lane.add(SEND, block_moves(subtree(child, size)), before)
        before = [lane.done]
    return table.lanes()
