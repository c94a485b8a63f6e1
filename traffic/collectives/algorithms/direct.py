"""Direct exchange: every position communicates with every other directly, in one step, or two for an all-reduce.

At most `window` peers are served in parallel: the next one begins when the earliest is complete; 0 serves all at once,
which is the incast that a switch buffer has to absorb. All-reduce is a direct reduce-scatter followed by a direct
all-gather. Sources: astra-sim system/astraccl/native_collectives (direct with window); facebookincubator/gloo
gloo/alltoall.cc posts everything at once, to r + 1, r + 2, ...
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from etloop.traffic.collectives.core.cutting import Request
from etloop.traffic.collectives.core.draft import (
    ADD,
    FINISH,
    KEEP,
    SEND,
    LaneDraft,
    Move,
    Step,
    TableDraft,
    block_moves,
    each_channel,
    schedule_of,
)
from etloop.traffic.collectives.core.symmetric_tables import Symmetry, ahead
from etloop.traffic.collectives.core.table import Lane, Schedule


def direct(request: Request) -> Schedule:
    """Build an all-reduce, barrier, all-gather, reduce-scatter or all-to-all."""
    size = request.size
    assert size >= 2
    window = request.cutting.window or size
    is_all_gather = request.collective == "all-gather"
    symmetry = Symmetry(ahead(size), None if is_all_gather else ahead(size))
    lanes: dict[str, Callable[[int, int, int], tuple[Lane, ...]]] = {
        "all-gather": _all_gather,
        "all-to-all": all_to_all,
        "reduce-scatter": partial(_reduce, gathers=False),
    }
    lanes_of = lanes.get(request.collective, partial(_reduce, gathers=True))
    tables = each_channel(request, lambda position: lanes_of(position, size, window), symmetry)
    return schedule_of(request, "direct", tables, blocks=0 if is_all_gather else size)


def exchange_move(source: int, destination: int, size: int) -> Move:
    """Return the move from one position to another in an all-to-all, where chunks are blocks of the sender's buffer."""
    return Move(destination, source * size + destination)


def all_to_all(position: int, size: int, window: int = 0) -> tuple[Lane, ...]:
    """Return the table of a position for an all-to-all with `window` peers at a time; 0: all."""
    table = TableDraft()
    lanes = _peers(table, position, size)
    window = window or size
    for i, lane in enumerate(lanes):
        target, source = lane.lane.send_to, lane.lane.recv_from
        lane.add(
            SEND, [exchange_move(position, target, size)], [lanes[i - window].done] if i >= window else ()
        )
        lane.add(KEEP, [exchange_move(source, position, size)])
    return table.lanes()


def _all_gather(position: int, size: int, window: int) -> tuple[Lane, ...]:
    """Return the table of a position for an all-gather."""
    table = TableDraft()
    lanes = _peers(table, position, size)
    for i, lane in enumerate(lanes):
        lane.add(SEND, [Move(0, position)], [lanes[i - window].done] if i >= window else ())
        lane.add(KEEP, [Move(0, lane.lane.recv_from)])
    return table.lanes()


def _reduce(position: int, size: int, window: int, *, gathers: bool) -> tuple[Lane, ...]:
    """Return the table of a position for a reduce-scatter and, if `gathers`, the all-gather of an all-reduce after it."""
    table = TableDraft()
    lanes = _peers(table, position, size)
    own_block = block_moves([position])
    additions: list[Step] = []
    for i, lane in enumerate(lanes):
        lane.add(SEND, block_moves([lane.lane.send_to]), [additions[i - window]] if i >= window else ())
        is_last = i == len(lanes) - 1
        # Contributions are added in any order; only the entry that makes the sum final waits for all of them.
        additions.append(lane.add(FINISH if is_last else ADD, own_block, additions if is_last else ()))
    receives: list[Step] = []
    for i, lane in enumerate(lanes if gathers else ()):
        waits = [receives[i - window]] if i >= window else []
        lane.add(SEND, own_block, [additions[-1], *waits])
        receives.append(lane.add(KEEP, block_moves([lane.lane.recv_from])))
    return table.lanes()


def _peers(table: TableDraft, position: int, size: int) -> list[LaneDraft]:
    """Add one lane per distance i: it sends to position + i and receives from position - i."""
    return [
        table.lane(send_to=(position + i) % size, recv_from=(position - i) % size) for i in range(1, size)
    ]
