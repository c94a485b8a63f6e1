"""Direct exchange: every position talks to all others itself, in one step, or two for an all-reduce.

At most `window` peers are served side by side: the next one begins when the earliest is through; 0 serves all at once,
which is the incast that a switch buffer has to bear. All-reduce is a direct reduce-scatter followed by a direct
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
    """All-reduce, barrier, all-gather, reduce-scatter or all-to-all."""
    size = request.size
    assert size >= 2
    window = request.cutting.window or size
    gathers = request.collective == "all-gather"
    turned = Symmetry(ahead(size), None if gathers else ahead(size))
    lanes: dict[str, Callable[[int, int, int], tuple[Lane, ...]]] = {
        "all-gather": _all_gather,
        "all-to-all": _all_to_all,
        "reduce-scatter": partial(_reduce, gathers=False),
    }
    of = lanes.get(request.collective, partial(_reduce, gathers=True))
    tables = each_channel(request, lambda position: of(position, size, window), turned)
    return schedule_of(request, "direct", tables, blocks=0 if gathers else size)


def exchanged(source: int, destination: int, size: int) -> Move:
    """What one position sends another in an all-to-all, where chunks are blocks of the sender's buffer."""
    return Move(destination, source * size + destination)


def _all_to_all(position: int, size: int, window: int) -> tuple[Lane, ...]:
    table = TableDraft()
    lanes = _peers(table, position, size)
    for i, lane in enumerate(lanes):
        to, source = lane.lane.send_to, lane.lane.recv_from
        lane.add(SEND, [exchanged(position, to, size)], [lanes[i - window].done] if i >= window else ())
        lane.add(KEEP, [exchanged(source, position, size)])
    return table.lanes()


def _all_gather(position: int, size: int, window: int) -> tuple[Lane, ...]:
    table = TableDraft()
    lanes = _peers(table, position, size)
    for i, lane in enumerate(lanes):
        lane.add(SEND, [Move(0, position)], [lanes[i - window].done] if i >= window else ())
        lane.add(KEEP, [Move(0, lane.lane.recv_from)])
    return table.lanes()


def _reduce(position: int, size: int, window: int, *, gathers: bool) -> tuple[Lane, ...]:
    table = TableDraft()
    lanes = _peers(table, position, size)
    own = block_moves([position])
    added: list[Step] = []
    for i, lane in enumerate(lanes):
        lane.add(SEND, block_moves([lane.lane.send_to]), [added[i - window]] if i >= window else ())
        last = i == len(lanes) - 1
        # Contributions are added as they come; only the entry that keeps the sum waits for all others.
        added.append(lane.add(FINISH if last else ADD, own, added if last else ()))
    kept: list[Step] = []
    for i, lane in enumerate(lanes if gathers else ()):
        before = [kept[i - window]] if i >= window else []
        lane.add(SEND, own, [added[-1], *before])
        kept.append(lane.add(KEEP, block_moves([lane.lane.recv_from])))
    return table.lanes()


def _peers(table: TableDraft, position: int, size: int) -> list[LaneDraft]:
    """A lane for every distance: sends so far ahead, receives from so far behind."""
    return [
        table.lane(send_to=(position + i) % size, recv_from=(position - i) % size) for i in range(1, size)
    ]
