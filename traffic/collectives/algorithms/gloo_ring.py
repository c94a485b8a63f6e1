"""gloo's ring all-reduce: the ring runs backwards, and a buffer is many small segments of which two are under way.

A position sends to the one before it and receives from the one behind it, first reducing, then gathering. A segment is
sent as soon as the second one before it has been taken in. Source: facebookincubator/gloo gloo/allreduce.cc (ring).
Every position sends 2(n-1)/n of B in 2(s - s/n) messages, s being the segments.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from etloop.traffic.collectives.core.cutting import Request
from etloop.traffic.collectives.core.draft import (
    ADD,
    FINISH,
    KEEP,
    SEND,
    LaneDraft,
    TableDraft,
    block_moves,
    each_channel,
    schedule_of,
)
from etloop.traffic.collectives.core.symmetric_tables import Symmetry, ahead, groups_ahead
from etloop.traffic.collectives.core.table import EntryKind, Lane, Schedule

_UNDER_WAY: Final = 2


def gloo_ring(request: Request) -> Schedule:
    """All-reduce or barrier, on one channel."""
    size = request.size
    assert size >= 2
    segments = request.cutting.segments or _UNDER_WAY * size
    assert segments % size == 0
    assert segments >= _UNDER_WAY * size
    assert request.cutting.channels == 1
    symmetry = Symmetry(ahead(size), groups_ahead(size, segments // size))
    tables = each_channel(request, lambda position: _lanes(position, size, segments), symmetry)
    return schedule_of(request, "gloo_ring", tables, blocks=segments)


def _lanes(position: int, size: int, segments: int) -> tuple[Lane, ...]:
    table = TableDraft()
    lane = table.lane(send_to=(position - 1) % size, recv_from=(position + 1) % size)
    each = segments // size
    count = segments - each
    reducing = [(position * each + i) % segments for i in range(count + each)]
    # The block before the own one is complete here after the first phase.
    final = frozenset(reducing[count:])
    kinds = [FINISH if segment in final else ADD for segment in reducing[each:]]
    _phase(lane, reducing[:count], reducing[each:], kinds)
    gathering = [((position - 1) * each + i) % segments for i in range(count + each)]
    _phase(lane, gathering[:count], gathering[each:], [KEEP] * count)
    return table.lanes()


def _phase(lane: LaneDraft, sent: Sequence[int], received: Sequence[int], kinds: Sequence[EntryKind]) -> None:
    for i in range(len(sent) + _UNDER_WAY):
        if i >= _UNDER_WAY:
            done = i - _UNDER_WAY
            lane.add(kinds[done], block_moves([received[done]]))
        if i < len(sent):
            lane.add(SEND, block_moves([sent[i]]))
