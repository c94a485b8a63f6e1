"""Broadcast and reduce along a chain, as NCCL 2.30 runs them, on any number of channels.

Position 0 is the root. A chain is the channel's ring (`hosts.ring_order`) cut open at the root: a broadcast runs from it,
a reduction through all others to it. Every position but the end sends all its channel's bytes. Sources: NCCL
device/broadcast.h, reduce.h.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from etloop.traffic.collectives.core.draft import on_channels, schedule_of
from etloop.traffic.collectives.core.hosts import hosts_of, ring_order
from etloop.traffic.collectives.core.steps import (
    recv,
    recv_copy_send,
    recv_reduce_copy,
    recv_reduce_send,
    send,
)
from etloop.traffic.collectives.core.table import Entry, Lane

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etloop.traffic.collectives.core.cutting import Request
    from etloop.traffic.collectives.core.table import Schedule


def chain(request: Request) -> Schedule:
    """Broadcast or reduction of B bytes."""
    assert request.size >= 2
    hosts = hosts_of(request.size, request.ranks_per_host)
    tables: list[list[tuple[Lane, ...]]] = [[] for _ in range(request.size)]
    for channel in range(request.cutting.channels):
        order = ring_order(hosts, channel)
        at = order.index(0)
        order = order[at:] + order[:at]
        reduces = request.collective == "reduce"
        lanes = _reduce_lanes(order[1:] + order[:1]) if reduces else _broadcast_lanes(order)
        for position, of_position in lanes.items():
            tables[position].append(of_position)
    return schedule_of(request, "chain", tuple(on_channels(table) for table in tables))


def _broadcast_lanes(order: Sequence[int]) -> dict[int, tuple[Lane, ...]]:
    lanes: dict[int, tuple[Lane, ...]] = {order[0]: (_lane(order[1], -1, send(0, 0)),)}
    for before, position, behind in zip(order, order[1:], order[2:], strict=False):
        lanes[position] = (_lane(behind, before, recv_copy_send(0, 0)),)
    lanes[order[-1]] = (_lane(-1, order[-2], recv(0, 0)),)
    return lanes


def _reduce_lanes(order: Sequence[int]) -> dict[int, tuple[Lane, ...]]:
    lanes: dict[int, tuple[Lane, ...]] = {order[0]: (_lane(order[1], -1, send(0, 0)),)}
    for before, position, behind in zip(order, order[1:], order[2:], strict=False):
        lanes[position] = (_lane(behind, before, recv_reduce_send(0, 0)),)
    lanes[order[-1]] = (_lane(-1, order[-2], recv_reduce_copy(0, 0)),)
    return lanes


def _lane(send_to: int, recv_from: int, entry: Entry) -> Lane:
    return Lane(batch=0, send_to=send_to, recv_from=recv_from, part=0, parts=1, entries=(entry,))
