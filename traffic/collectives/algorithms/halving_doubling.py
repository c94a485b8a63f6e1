"""Recursive halving and doubling: Rabenseifner's all-reduce, and reduce-scatter by recursive halving.

In each step pairs exchange a part of the buffer that halves (reducing) or doubles (gathering). A group whose size is
not a power of two is folded: in each of the first pairs of positions the even one sends its input to the odd one and
gets its result at the end. Sources: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication
operations in MPICH" (2005), the orders those of pmodels/mpich src/mpi/coll/allreduce (nearest first) and reduce_scatter
(farthest first).

With p the power of two, a position that takes part sends 2(p-1)/p of an all-reduce's B, in 2 lg p steps.
`recursive_doubling` has the variants that exchange everything.
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
    """A group folded onto the greatest power of two that does not exceed its size."""

    size: int

    @property
    def inside(self) -> int:
        """Return how many positions take part in the exchanges, a power of two; these are numbered from 0."""
        return 1 << (self.size.bit_length() - 1)

    @property
    def folded(self) -> int:
        """Return the number of pairs of which only the odd position takes part."""
        return self.size - self.inside

    @property
    def steps(self) -> int:
        """Return lg of `inside`."""
        return self.inside.bit_length() - 1

    def position(self, number: int) -> int:
        """Return the position that takes part under a number."""
        return 2 * number + 1 if number < self.folded else number + self.folded

    def number(self, position: int) -> int:
        """Return the number under which a position takes part; -1 if its odd neighbour takes part for it."""
        if position < 2 * self.folded:
            return position // 2 if position % 2 else -1
        return position - self.folded

    def stands_for(self, numbers: range) -> range:
        """Return the positions whose blocks these numbers handle: their own and those of their even neighbours."""
        return range(self._first(numbers.start), self._first(numbers.stop))

    def _first(self, number: int) -> int:
        """Return the first position whose block a number handles."""
        return 2 * number if number < self.folded else number + self.folded


def halving_doubling(request: Request) -> Schedule:
    """Build an all-reduce, barrier or reduce-scatter."""
    assert request.size >= 2
    folding = Folding(request.size)
    if request.collective == "reduce-scatter":
        tables = each_channel(request, lambda position: _reduce_scatter(folding, position))
        return schedule_of(request, "halving_doubling", tables, blocks=request.size)
    tables = each_channel(request, lambda position: _all_reduce(folding, position))
    return schedule_of(request, "halving_doubling", tables, blocks=folding.inside)


def _all_reduce(folding: Folding, position: int) -> tuple[Lane, ...]:
    """Return the table of a position for an all-reduce."""
    table = TableDraft()
    all_blocks = block_moves(range(folding.inside))
    number = folding.number(position)
    if number < 0:
        lane = table.lane(send_to=position + 1, recv_from=position + 1)
        lane.add(SEND, all_blocks)
        lane.add(KEEP, all_blocks)
        return table.lanes()
    waits: list[Step] = []
    fold = _fold_lane(table, folding, number)
    if fold is not None:
        waits = [fold.add(ADD, all_blocks)]
    lanes: list[LaneDraft] = []
    windows = [range(folding.inside)]
    for step in range(folding.steps):
        lane = _peer_lane(table, folding, number ^ (1 << step))
        kept_half, sent_half = _halves(windows[-1], upper=bool(number >> step & 1))
        lane.add(SEND, block_moves(sent_half), waits)
        waits = [lane.add((FINISH if len(kept_half) == 1 else ADD) | IN_TURN, block_moves(kept_half))]
        lanes.append(lane)
        windows.append(kept_half)
    for step in reversed(range(folding.steps)):
        kept_half, sent_half = _halves(windows[step], upper=bool(number >> step & 1))
        lanes[step].add(SEND, block_moves(kept_half), waits)
        waits = [lanes[step].add(KEEP | IN_TURN, block_moves(sent_half))]
    if fold is not None:
        fold.add(SEND, all_blocks, waits)
    return table.lanes()


def _reduce_scatter(folding: Folding, position: int) -> tuple[Lane, ...]:
    """Return the table of a position for a reduce-scatter."""
    table = TableDraft()
    all_blocks = block_moves(range(folding.size))
    number = folding.number(position)
    # The result for a folded position is sent after all exchanges. It has its own lane: if the buffer is cut into chunks, later
    # chunks of the input are received before the first result is sent.
    if number < 0:
        table.lane(send_to=position + 1).add(SEND, all_blocks)
        table.lane(recv_from=position + 1).add(KEEP, block_moves([position]))
        return table.lanes()
    folds = number < folding.folded
    waits: list[Step] = []
    if folds:
        waits = [table.lane(recv_from=position - 1).add(ADD, all_blocks)]
    window = range(folding.inside)
    for step in reversed(range(folding.steps)):
        lane = _peer_lane(table, folding, number ^ (1 << step))
        window, sent = _halves(window, upper=bool(number >> step & 1))
        lane.add(SEND, block_moves(folding.stands_for(sent)), waits)
        moves = block_moves(folding.stands_for(window))
        if step:
            lane.add(ADD | IN_TURN, moves)
        else:
            kinds = [(FINISH if move.block == position else ADD) | IN_TURN for move in moves]
            lane.add_each(list(zip(kinds, moves, strict=True)))
        # A blocking exchange: in a folded group one half may be longer, and the next step must not overtake it.
        waits = [lane.done]
    if folds:
        table.lane(send_to=position - 1).add(SEND, block_moves([position - 1]), waits)
    return table.lanes()


def _fold_lane(table: TableDraft, folding: Folding, number: int) -> LaneDraft | None:
    """Add the lane to the even neighbour that this number takes part for; None if it has none."""
    if number >= folding.folded:
        return None
    even = folding.position(number) - 1
    return table.lane(send_to=even, recv_from=even)


def _peer_lane(table: TableDraft, folding: Folding, number: int) -> LaneDraft:
    """Add a lane to and from the position with a number."""
    peer = folding.position(number)
    return table.lane(send_to=peer, recv_from=peer)


def _halves(window: range, *, upper: bool) -> tuple[range, range]:
    """Split a window into the half that is kept and the half that is sent."""
    middle = window.start + len(window) // 2
    lower_half, upper_half = range(window.start, middle), range(middle, window.stop)
    return (upper_half, lower_half) if upper else (lower_half, upper_half)
