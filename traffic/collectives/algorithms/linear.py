"""Gather and scatter directly between position 0 and every other, all at once; what NCCL and gloo do.

NCCL's are a group of one send and n-1 receives, or the reverse: parts and channels as of its all-to-all (`alltoall`), eight
peers side by side on a channel. Otherwise a window serves so many peers side by side at the root. Sources: NCCL
enqueue.cc; facebookincubator/gloo gloo/gather.cc, scatter.cc.
"""

from __future__ import annotations

from dataclasses import replace

from etloop.traffic.collectives.algorithms.alltoall import PEERS_PER_BATCH, base_channel, p2p_order
from etloop.traffic.collectives.algorithms.point_to_point import p2p_schedule
from etloop.traffic.collectives.core.cutting import Request
from etloop.traffic.collectives.core.draft import KEEP, SEND, LaneDraft, Move, TableDraft
from etloop.traffic.collectives.core.table import Lane, Schedule


def linear(request: Request) -> Schedule:
    """Gather of B bytes from every position, or scatter of B bytes in equal blocks."""
    assert request.size >= 2
    tables = (_root(request), *(_other(request, position) for position in range(1, request.size)))
    return replace(p2p_schedule(request, tables, empty_message=False), algorithm="linear")


def _root(request: Request) -> tuple[Lane, ...]:
    table = TableDraft()
    channels, parts = request.cutting.channels, request.cutting.parts
    grouped = request.cutting.peers is not None
    window = request.cutting.window or request.size
    works = [0] * channels
    lanes: list[LaneDraft] = []
    for peer in _peers(request):
        for part in range(parts):
            lane = _lane(request, peer, part, root=True)
            if grouped:
                lane = replace(lane, batch=works[lane.channel] // PEERS_PER_BATCH)
                works[lane.channel] += 1
            lanes.append(table.add(lane))
            before = [lanes[-1 - window].done] if not grouped and len(lanes) > window else []
            gathers = request.collective == "gather"
            lanes[-1].add(KEEP if gathers else SEND, [Move(0, peer)], before)
    return tuple(sorted(table.lanes(), key=lambda lane: lane.batch)) if grouped else table.lanes()


def _other(request: Request, position: int) -> tuple[Lane, ...]:
    table = TableDraft()
    for part in range(request.cutting.parts):
        lane = table.add(_lane(request, position, part, root=False))
        lane.add(SEND if request.collective == "gather" else KEEP, [Move(0, position)])
    return table.lanes()


def _lane(request: Request, peer: int, part: int, *, root: bool) -> Lane:
    """The lane between the root and a peer, at either end."""
    cutting, size = request.cutting, request.size
    channel = 0
    if cutting.peers is not None:
        rounds = {order: number for number, order in enumerate(_rounds(request))}
        base = base_channel(rounds[peer], size, request.ranks_per_host, cutting.channels)
        channel = (base + part) & (cutting.channels - 1)
    gathers = request.collective == "gather"
    other = peer if root else 0
    sends = gathers != root
    return Lane(
        batch=0,
        send_to=other if sends else -1,
        recv_from=-1 if sends else other,
        part=0 if gathers else peer,
        parts=1 if gathers else size,
        entries=(),
        channel=channel,
        share=part,
        shares=cutting.parts,
    )


def _rounds(request: Request) -> list[int]:
    """The root's peer of every round of NCCL's p2p schedule."""
    order = p2p_order(0, request.size, request.ranks_per_host)
    return [recv_from if request.collective == "gather" else send_to for send_to, recv_from in order]


def _peers(request: Request) -> list[int]:
    return _rounds(request)[1:] if request.cutting.peers is not None else list(range(1, request.size))
