"""Gather and scatter directly between position 0 and every other position, all at once, as in NCCL and gloo.

NCCL's are a group of one send and n-1 receives, or the reverse: parts and channels as in its all-to-all (`alltoall`),
eight peers in parallel on a channel. Otherwise `window` peers are served in parallel at the root. Sources: NCCL
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
    """Build a gather of B bytes from every position, or a scatter of B bytes in equal blocks."""
    assert request.size >= 2
    tables = (_root(request), *(_other(request, position) for position in range(1, request.size)))
    return replace(p2p_schedule(request, tables, empty_message=False), algorithm="linear")


def _root(request: Request) -> tuple[Lane, ...]:
    """Return the table of the root."""
    table = TableDraft()
    channels, parts = request.cutting.channels, request.cutting.parts
    is_grouped = request.cutting.peers is not None
    window = request.cutting.window or request.size
    works = [0] * channels
    lanes: list[LaneDraft] = []
    for peer in _peers(request):
        for part in range(parts):
            lane = _lane(request, peer, part, root=True)
            if is_grouped:
                lane = replace(lane, batch=works[lane.channel] // PEERS_PER_BATCH)
                works[lane.channel] += 1
            lanes.append(table.add(lane))
            waits = [lanes[-1 - window].done] if not is_grouped and len(lanes) > window else []
            is_gather = request.collective == "gather"
            lanes[-1].add(KEEP if is_gather else SEND, [Move(0, peer)], waits)
    return tuple(sorted(table.lanes(), key=lambda lane: lane.batch)) if is_grouped else table.lanes()


def _other(request: Request, position: int) -> tuple[Lane, ...]:
    """Return the table of a position that is not the root."""
    table = TableDraft()
    for part in range(request.cutting.parts):
        lane = table.add(_lane(request, position, part, root=False))
        lane.add(SEND if request.collective == "gather" else KEEP, [Move(0, position)])
    return table.lanes()


def _lane(request: Request, peer: int, part: int, *, root: bool) -> Lane:
    """Return the lane between the root and a peer, for either end."""
    cutting, size = request.cutting, request.size
    channel = 0
    if cutting.peers is not None:
        rounds = {order: number for number, order in enumerate(_rounds(request))}
        base = base_channel(rounds[peer], size, request.ranks_per_host, cutting.channels)
        channel = (base + part) & (cutting.channels - 1)
    is_gather = request.collective == "gather"
    remote = peer if root else 0
    sends = is_gather != root
    return Lane(
        batch=0,
        send_to=remote if sends else -1,
        recv_from=-1 if sends else remote,
        part=0 if is_gather else peer,
        parts=1 if is_gather else size,
        entries=(),
        channel=channel,
        share=part,
        shares=cutting.parts,
    )


def _rounds(request: Request) -> list[int]:
    """Return the root's peer in every round of NCCL's p2p schedule."""
    order = p2p_order(0, request.size, request.ranks_per_host)
    return [recv_from if request.collective == "gather" else send_to for send_to, recv_from in order]


def _peers(request: Request) -> list[int]:
    """Return the root's peers in the order in which it serves them."""
    return _rounds(request)[1:] if request.cutting.peers is not None else list(range(1, request.size))
