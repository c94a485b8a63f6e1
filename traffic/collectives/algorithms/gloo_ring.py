"""gloo's ring all-reduce: the ring runs backwards, and a buffer is many small segments of which two are in flight.

A position sends to its predecessor and receives from its successor, first reducing, then gathering. A segment is sent
as soon as the segment two before it has been received. Source: facebookincubator/gloo gloo/allreduce.cc (ring). Every
position sends 2(n-1)/n of B in 2(s - s/n) messages, where s is the number of segments.
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
    """Build an all-reduce or barrier on one channel."""
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
    """Return the table of a position."""
    table = TableDraft()
    lane = table.lane(send_to=(position - 1) % size, recv_from=(position + 1) % size)
    block_segments = segments // size
    sent_segments = segments - block_segments
    reducing = [(position * block_segments + i) % segments for i in range(sent_segments + block_segments)]
    # The predecessor's block becomes final here in the first phase.
    final = frozenset(reducing[sent_segments:])
    kinds = [FINISH if segment in final else ADD for segment in reducing[block_segments:]]
    _phase(lane, reducing[:sent_segments], reducing[block_segments:], kinds)
    gathering = [
        ((position - 1) * block_segments + i) % segments for i in range(sent_segments + block_segments)
    ]
    _phase(lane, gathering[:sent_segments], gathering[block_segments:], [KEEP] * sent_segments)
    return table.lanes()


def _phase(lane: LaneDraft, sent: Sequence[int], received: Sequence[int], kinds: Sequence[EntryKind]) -> None:
    """Add the messages of a phase: each send follows the receive of the segment two before it."""
    for i in range(len(sent) + _UNDER_WAY):
        if i >= _UNDER_WAY:
            received_index = i - _UNDER_WAY
            lane.add(kinds[received_index], block_moves([received[received_index]]))
        if i < len(sent):
            lane.add(SEND, block_moves([sent[i]]))
