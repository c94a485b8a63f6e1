"""One send and its receive, cut as NCCL cuts a grouped send/recv over the network: position 0 sends, position 1
receives.

Source: NCCL enqueue.cc addP2pToPlan. An empty send is one empty message. Parts are spread over channels as in
`alltoall`, part p on channel p: the round of a single send is number 0 or 1, whose channel is not known without its
peers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from etloop.traffic.collectives.core.cutting import Request
from etloop.traffic.collectives.core.draft import KEEP, SEND, entry, schedule_of
from etloop.traffic.collectives.core.table import ChunkRule, Lane, Schedule


def point_to_point(request: Request) -> Schedule:
    """Build the schedule of a send and its receive."""
    parts = request.cutting.parts
    senders, receivers = (
        tuple(
            Lane(0, target, source, 0, 1, (entry(kind, 0, 0),), -1, part, 1, part, parts)
            for part in range(parts)
        )
        for target, source, kind in ((1, -1, SEND), (-1, 0, KEEP))
    )
    return p2p_schedule(request, (senders, receivers), empty_message=True)


def p2p_schedule(request: Request, tables: Sequence[tuple[Lane, ...]], *, empty_message: bool) -> Schedule:
    """Build a schedule of send-only and receive-only lanes with the send/recv cut."""
    schedule = schedule_of(request, "p2p", tables)
    rule = ChunkRule.P2P if request.cutting.peers is not None else ChunkRule.FIXED
    return replace(schedule, chunk_rule=rule, empty_message=empty_message)
