"""The order of positions: hosts of consecutive positions, rings and chains through them, and trees over hosts.

Placement decides which host is which machine, and which of its NICs a position uses. Source of rings: NCCL
graph/connect.cc, graph/search.cc (NCCL_CROSS_NIC); of trees: NCCL graph/trees.cc ncclGetBtree.
"""

from __future__ import annotations

from etloop.contract.base.late_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Hosts:
    """`size` positions in hosts of `ranks_per_host`; the last host may have fewer."""

    size: int
    ranks_per_host: int

    @property
    def count(self) -> int:
        """Return the number of hosts."""
        return -(-self.size // self.ranks_per_host)

    def positions(self, host: int) -> range:
        """Return the positions of a host."""
        first = host * self.ranks_per_host
        return range(first, min(first + self.ranks_per_host, self.size))


def hosts_of(size: int, ranks_per_host: int) -> Hosts:
    """Return the hosts of a group; a host has at most as many positions as the group."""
    return Hosts(size, min(ranks_per_host, size))


def chain_from(hosts: Hosts, host: int, local: int) -> tuple[int, ...]:
    """Return all positions of a host in cyclic order, beginning at its position `local` (modulo their number)."""
    inside = hosts.positions(host)
    return tuple(inside[(local + i) % len(inside)] for i in range(len(inside)))


def ring_order(hosts: Hosts, channel: int) -> tuple[int, ...]:
    """Return the positions in the order of a channel's ring; without rotation position 0 is first.

    Channel c enters an even host at its c-th position and leaves it at the one before, and runs through odd hosts in
    the opposite direction: the two ends of a link between hosts have the same place in their host, so traffic stays on
    its rail (with an odd number of hosts on all links but the last). Every channel uses another pair of NICs.
    """
    order: list[int] = []
    for host in range(hosts.count):
        inside = chain_from(hosts, host, channel)
        order += inside if host % 2 == 0 else reversed(inside)
    return tuple(order)


@dataclass(frozen=True, slots=True)
class TreePlace:
    """Neighbours of one node of a tree; parent -1: it is the root."""

    parent: int
    children: tuple[int, ...]


def binary_tree(size: int, node: int) -> TreePlace:
    """Return the neighbours of a node in NCCL's first tree over nodes 0 to size - 1 (graph/trees.cc ncclGetBtree)."""
    if node == 0:
        # The root has one child: the highest power of two below the number of nodes.
        return TreePlace(-1, (1 << ((size - 1).bit_length() - 1),) if size > 1 else ())
    bit = node & -node
    parent = (node ^ bit) | (bit << 1)
    if parent >= size:
        parent = node ^ bit
    children = []
    half = bit >> 1
    if half:
        children.append(node - half)
        while half and node + half >= size:
            half >>= 1
        if half:
            children.append(node + half)
    return TreePlace(parent, tuple(children))


def mirrored_tree(size: int, node: int) -> TreePlace:
    """Return the neighbours of a node in NCCL's second tree, in which leaves of the first are inner nodes.

    It is the first tree mirrored if size is even, else shifted by one.
    """
    if size % 2 == 0:

        def to_first(place: int) -> int:
            return size - 1 - place

        from_first = to_first
    else:

        def to_first(place: int) -> int:
            return (place - 1) % size

        def from_first(place: int) -> int:
            return (place + 1) % size

    first = binary_tree(size, to_first(node))
    parent = from_first(first.parent) if first.parent >= 0 else -1
    return TreePlace(parent, tuple(from_first(child) for child in first.children))


def tree_place(hosts: Hosts, position: int, *, second: bool, head: int) -> TreePlace:
    """Return the neighbours of a position: in each host, the `head`-th is the tree node, and a chain follows it."""
    host = position // hosts.ranks_per_host
    chain = chain_from(hosts, host, head)
    index = chain.index(position)
    below = chain[index + 1 : index + 2]
    if index > 0:
        return TreePlace(chain[index - 1], below)
    place = (mirrored_tree if second else binary_tree)(hosts.count, host)

    def head_of(other: int) -> int:
        return chain_from(hosts, other, head)[0]

    parent = head_of(place.parent) if place.parent >= 0 else -1
    return TreePlace(parent, tuple(head_of(child) for child in place.children) + below)
