"""Recursive halving and doubling: Rabenseifner's all-reduce, and its two halves as reduce-scatter and all-gather.

In each step pairs exchange a part of the buffer that halves (reducing) or doubles (gathering). A group that is no power
of two is folded: of the first pairs of positions the even one hands its input to the odd one and gets its result at the
end. Sources: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication operations in MPICH" (2005),
the orders those of pmodels/mpich src/mpi/coll/allreduce (nearest first) and reduce_scatter (farthest first).

With p the power of two: a position inside sends 2(p-1)/p of an all-reduce's B, in 2 lg p steps. `recursive_doubling` has
the variants that exchange everything.
"""

from __future__ import annotations

from dataclasses import dataclass

from etloop.traffic.collectives.core.cutting import Request
from etloop.traffic.collectives.core.draft import (
    ADD,
    FINISH,
    IN_TURN,
    KEEP,
    SEND,
    LaneDraft,
    Step,
    TableDraft,
    block_moves,
    each_channel,
    schedule_of,
)
from etloop.traffic.collectives.core.table import Lane, Schedule


@dataclass(frozen=True, slots=True)
class Folding:
    """A group folded onto the greatest power of two in it."""

    size: int

    @property
    def inside(self) -> int:
        """Positions that take part in the exchanges, a power of two; they are numbered from 0 on."""
        return 1 << (self.size.bit_length() - 1)

    @property
    def folded(self) -> int:
        """Pairs of which only the odd position takes part."""
        return self.size - self.inside

    @property
    def steps(self) -> int:
        """lg of `inside`."""
        return self.inside.bit_length() - 1

    def position(self, number: int) -> int:
        """The position that takes part under a number."""
        return 2 * number + 1 if number < self.folded else number + self.folded

    def number(self, position: int) -> int:
        """The number under which a position takes part; -1: its neighbour does so for it."""
        if position < 2 * self.folded:
            return position // 2 if position % 2 else -1
        return position - self.folded

    def stands_for(self, numbers: range) -> range:
        """Positions whose inputs or results these consecutive numbers have, their own and those of their even neighbours."""
        return range(self._first(numbers.start), self._first(numbers.stop))

    def _first(self, number: int) -> int:
        return 2 * number if number < self.folded else number + self.folded


def halving_doubling(request: Request) -> Schedule:
    """All-reduce, barrier or reduce-scatter."""
    assert request.size >= 2
    folding = Folding(request.size)
    if request.collective == "reduce-scatter":
        tables = each_channel(request, lambda position: _reduce_scatter(folding, position))
        return schedule_of(request, "halving_doubling", tables, blocks=request.size)
    tables = each_channel(request, lambda position: _all_reduce(folding, position))
    return schedule_of(request, "halving_doubling", tables, blocks=folding.inside)


def _all_reduce(folding: Folding, position: int) -> tuple[Lane, ...]:
    table = TableDraft()
    everything = block_moves(range(folding.inside))
    number = folding.number(position)
    if number < 0:
        lane = table.lane(send_to=position + 1, recv_from=position + 1)
        lane.add(SEND, everything)
        lane.add(KEEP, everything)
        return table.lanes()
    before: list[Step] = []
    fold = _fold_lane(table, folding, number)
    if fold is not None:
        before = [fold.add(ADD, everything)]
    lanes: list[LaneDraft] = []
    windows = [range(folding.inside)]
    for step in range(folding.steps):
        lane = _peer_lane(table, folding, number ^ (1 << step))
        kept, given = _halves(windows[-1], upper=bool(number >> step & 1))
        lane.add(SEND, block_moves(given), before)
        before = [lane.add((FINISH if len(kept) == 1 else ADD) | IN_TURN, block_moves(kept))]
        lanes.append(lane)
        windows.append(kept)
    for step in reversed(range(folding.steps)):
        kept, given = _halves(windows[step], upper=bool(number >> step & 1))
        lanes[step].add(SEND, block_moves(kept), before)
        before = [lanes[step].add(KEEP | IN_TURN, block_moves(given))]
    if fold is not None:
        fold.add(SEND, everything, before)
    return table.lanes()


def _reduce_scatter(folding: Folding, position: int) -> tuple[Lane, ...]:
    table = TableDraft()
    everything = block_moves(range(folding.size))
    number = folding.number(position)
    # What a folded position gets back waits for all the rest. So it has a lane of its own: of a buffer cut into chunks, later
    # ones come in before the first goes out.
    if number < 0:
        table.lane(send_to=position + 1).add(SEND, everything)
        table.lane(recv_from=position + 1).add(KEEP, block_moves([position]))
        return table.lanes()
    folds = number < folding.folded
    before: list[Step] = []
    if folds:
        before = [table.lane(recv_from=position - 1).add(ADD, everything)]
    window = range(folding.inside)
    for step in reversed(range(folding.steps)):
        lane = _peer_lane(table, folding, number ^ (1 << step))
        window, given = _halves(window, upper=bool(number >> step & 1))
        lane.add(SEND, block_moves(folding.stands_for(given)), before)
        moves = block_moves(folding.stands_for(window))
        if step:
            lane.add(ADD | IN_TURN, moves)
        else:
            kinds = [(FINISH if move.block == position else ADD) | IN_TURN for move in moves]
            lane.add_each(list(zip(kinds, moves, strict=True)))
        # A blocking exchange: of a folded group one half may be longer, and nothing overtakes it.
        before = [lane.done]
    if folds:
        table.lane(send_to=position - 1).add(SEND, block_moves([position - 1]), before)
    return table.lanes()


def _fold_lane(table: TableDraft, folding: Folding, number: int) -> LaneDraft | None:
    """The lane with the even neighbour that this number stands for, if there is one."""
    if number >= folding.folded:
        return None
    even = folding.position(number) - 1
    return table.lane(send_to=even, recv_from=even)


def _peer_lane(table: TableDraft, folding: Folding, number: int) -> LaneDraft:
    peer = folding.position(number)
    return table.lane(send_to=peer, recv_from=peer)


def _halves(window: range, *, upper: bool) -> tuple[range, range]:
    """The half of a window that is kept, and the one that is given away."""
    middle = window.start + len(window) // 2
    lower_half, upper_half = range(window.start, middle), range(middle, window.stop)
    return (upper_half, lower_half) if upper else (lower_half, upper_half)
