"""All-reduce over NCCL's double binary tree: reduced up a tree over hosts and broadcast down it, chunk by chunk.

Half of the channels use the first tree, half the second, in which the leaves of the first are inner nodes; inside a host
a chain joins the others to the position that stands in the tree, another one for each pair of channels. Up and down run
side by side, as the two halves of NCCL's warps do. Sources: NCCL graph/trees.cc, graph/connect.cc, device/all_reduce.h
runTreeSplit.

A position with m neighbours below sends B to each of them and, unless it is the root, B upwards: 2(n-1)B in all. A chunk
is passed on only when all that it is made of has come and all it goes to have room, as in NCCL's primitives, which serve
several neighbours in one call.
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
    """All-reduce or barrier; every channel's share goes through one tree."""
    assert request.size >= 2
    hosts = hosts_of(request.size, request.ranks_per_host)
    channels = request.cutting.channels

    def table(position: int) -> tuple[Lane, ...]:
        return on_channels([_lanes(_place(hosts, position, c, channels)) for c in range(channels)])

    return schedule_of(request, "tree", LazyTables(request.size, table))


def _place(hosts: Hosts, position: int, channel: int, channels: int) -> TreePlace:
    # NCCL finds one tree a card, doubles them with the second tree (graph/connect.cc), and repeats the pattern.
    rails = min(hosts.ranks_per_host, max(1, channels // 2))
    return tree_place(hosts, position, second=channel // rails % 2 == 1, head=channel % rails)


def _lanes(place: TreePlace) -> tuple[Lane, ...]:
    table = TableDraft()
    _reduce_up(table, place)
    if place.parent >= 0:
        _broadcast_down(table, place)
    return table.lanes()


def _reduce_up(table: TableDraft, place: TreePlace) -> None:
    """Towards the parent; at the root, where a chunk becomes final, down again."""
    if not place.children:
        table.lane(send_to=place.parent).add(SEND)
        return
    root = place.parent < 0
    early = [table.lane(recv_from=child) for child in place.children[:-1]]
    added = [lane.add(ADD) for lane in early]
    last = table.lane(recv_from=place.children[-1], send_to=place.children[0] if root else place.parent)
    turned = last.add((FINISH if root else ADD) | SEND, after=added)
    others = [table.lane(send_to=child) for child in place.children[1:]] if root else []
    last.wait([lane.add(SEND, after=[turned]) for lane in others])
    for lane in early:
        # No child gets ahead of the others: its next chunk is taken with theirs.
        lane.wait([turned])


def _broadcast_down(table: TableDraft, place: TreePlace) -> None:
    if not place.children:
        table.lane(recv_from=place.parent).add(KEEP)
        return
    first = table.lane(recv_from=place.parent, send_to=place.children[0])
    passed = first.add(KEEP | SEND)
    others = [table.lane(send_to=child) for child in place.children[1:]]
    first.wait([lane.add(SEND, after=[passed]) for lane in others])
