"""Broadcast and reduce along a chain, as in NCCL 2.30, on any number of channels.

Position 0 is the root. A chain is the channel's ring (`hosts.ring_order`) cut open at the root: a broadcast runs from
the root, a reduction through all other positions to it. Every position except the last sends all bytes of its channel.
Sources: NCCL device/broadcast.h, reduce.h.
"""

from __future__ import annotations

from etloop.traffic.collectives.core.cutting import Request
from etloop.traffic.collectives.core.draft import (
    ADD,
    FINISH,
    KEEP,
    SEND,
    entry,
    on_channels,
    schedule_of,
)
from etloop.traffic.collectives.core.hosts import hosts_of, ring_order
from etloop.traffic.collectives.core.table import Lane, Schedule


def chain(request: Request) -> Schedule:
    """Build a broadcast or reduction of B bytes."""
    assert request.size >= 2
    hosts = hosts_of(request.size, request.ranks_per_host)
    tables: list[list[tuple[Lane, ...]]] = [[] for _ in range(request.size)]
    for channel in range(request.cutting.channels):
        order = ring_order(hosts, channel)
        root_place = order.index(0)
        order = order[root_place:] + order[:root_place]
        kinds = (SEND, KEEP | SEND, KEEP)
        if request.collective == "reduce":
            order, kinds = order[1:] + order[:1], (SEND, ADD | SEND, FINISH)
        for place, position in enumerate(order):
            kind = kinds[0 if place == 0 else 2 if position == order[-1] else 1]
            predecessor, successor = (-1, *order)[place], (*order, -1)[place + 1]
            tables[position].append((Lane(0, successor, predecessor, 0, 1, (entry(kind, 0, 0),)),))
    return schedule_of(request, "chain", tuple(on_channels(table) for table in tables))
