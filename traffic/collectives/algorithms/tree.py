"""All-reduce over NCCL's double binary tree: reduced up a tree over hosts and broadcast down it, chunk by chunk.

Half of the channels use the first tree, half the second, in which the leaves of the first are inner nodes. Inside a
host a chain connects the other positions to the one that is the tree node; each pair of channels uses a different one.
Reduction and broadcast run in parallel, as in the two halves of NCCL's warps. Sources: NCCL graph/trees.cc,
graph/connect.cc, device/all_reduce.h runTreeSplit.

A position with m children sends B to each of them and, unless it is the root, B to its parent: 2(n-1)B in total. A
chunk is passed on only when all its inputs have arrived and all its receivers have room, as in NCCL's primitives, which
serve several neighbours in one call.
"""

from __future__ import annotations

from etloop.traffic.collectives.core.cutting import Request
from etloop.traffic.collectives.core.draft import (
    ADD,
    FINISH,
    KEEP,
    SEND,
    TableDraft,
    on_channels,
    schedule_of,
)
from etloop.traffic.collectives.core.hosts import Hosts, TreePlace, hosts_of, tree_place
from etloop.traffic.collectives.core.lazy_tables import LazyTables
from etloop.traffic.collectives.core.table import Lane, Schedule


def double_binary_tree(request: Request) -> Schedule:
    """Build an all-reduce or barrier; every channel's share uses one tree."""
    assert request.size >= 2
    hosts = hosts_of(request.size, request.ranks_per_host)
    channels = request.cutting.channels

    def table(position: int) -> tuple[Lane, ...]:
        return on_channels([_lanes(_place(hosts, position, c, channels)) for c in range(channels)])

    return schedule_of(request, "tree", LazyTables(request.size, table))


def _place(hosts: Hosts, position: int, channel: int, channels: int) -> TreePlace:
    """Return the neighbours of a position in the tree of a channel."""
    # NCCL finds one tree per NIC, doubles them with the second tree (graph/connect.cc), and repeats the pattern.
    rails = min(hosts.ranks_per_host, max(1, channels // 2))
    return tree_place(hosts, position, second=channel // rails % 2 == 1, head=channel % rails)


def _lanes(place: TreePlace) -> tuple[Lane, ...]:
    """Return the table of a position with these neighbours on one channel."""
    table = TableDraft()
    _reduce_up(table, place)
    if place.parent >= 0:
        _broadcast_down(table, place)
    return table.lanes()


def _reduce_up(table: TableDraft, place: TreePlace) -> None:
    """Add the lanes of the reduction; at the root, where a chunk becomes final, also the sends of the broadcast."""
    if not place.children:
        table.lane(send_to=place.parent).add(SEND)
        return
    is_root = place.parent < 0
    earlier_lanes = [table.lane(recv_from=child) for child in place.children[:-1]]
    additions = [lane.add(ADD) for lane in earlier_lanes]
    last = table.lane(recv_from=place.children[-1], send_to=place.children[0] if is_root else place.parent)
    last_addition = last.add((FINISH if is_root else ADD) | SEND, after=additions)
    remaining_sends = [table.lane(send_to=child) for child in place.children[1:]] if is_root else []
    last.wait([lane.add(SEND, after=[last_addition]) for lane in remaining_sends])
    for lane in earlier_lanes:
        # The next chunk of all children is received together, so that no child runs ahead.
        lane.wait([last_addition])


def _broadcast_down(table: TableDraft, place: TreePlace) -> None:
    """Add the lanes of the broadcast below the root."""
    if not place.children:
        table.lane(recv_from=place.parent).add(KEEP)
        return
    first = table.lane(recv_from=place.parent, send_to=place.children[0])
    first_send = first.add(KEEP | SEND)
    remaining_sends = [table.lane(send_to=child) for child in place.children[1:]]
    first.wait([lane.add(SEND, after=[first_send]) for lane in remaining_sends])
