"""Where positions stand: hosts of consecutive positions, rings and chains through them, and trees over hosts.

Which host is which machine, and which of its cards a position uses, is placement's matter.
Source of rings: NCCL graph/connect.cc, graph/search.cc (NCCL_CROSS_NIC); of trees: NCCL graph/trees.cc ncclGetBtree.
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
        """Number of hosts."""
        return -(-self.size // self.ranks_per_host)

    def positions(self, host: int) -> range:
        """Positions of a host."""
        first = host * self.ranks_per_host
        return range(first, min(first + self.ranks_per_host, self.size))


def hosts_of(size: int, ranks_per_host: int) -> Hosts:
    """Hosts of a group; a host has no more positions than there are."""
    return Hosts(size, min(ranks_per_host, size))


def chain_from(hosts: Hosts, host: int, local: int) -> tuple[int, ...]:
    """All positions of a host, beginning at its position `local` (modulo their number)."""
    inside = hosts.positions(host)
    return tuple(inside[(local + i) % len(inside)] for i in range(len(inside)))


def ring_order(hosts: Hosts, channel: int) -> tuple[int, ...]:
    """Positions in the order of a channel's ring, position 0 of an unrotated ring first.

    Channel c enters an even host at its c-th position and leaves it at the one before, and runs through odd hosts the
    other way: the two ends of a link between hosts have the same place in their host, so that rails are kept (with an
    odd number of hosts on all links but the last). Every channel uses another pair of cards.
    """
    order: list[int] = []
    for host in range(hosts.count):
        inside = chain_from(hosts, host, channel)
        order += inside if host % 2 == 0 else reversed(inside)
    return tuple(order)


@dataclass(frozen=True, slots=True)
class TreePlace:
    """Neighbours of one node of a tree; -1: it is the root."""

    parent: int
    children: tuple[int, ...]


def binary_tree(size: int, node: int) -> TreePlace:
    """NCCL's first tree over nodes 0 to size - 1 (graph/trees.cc ncclGetBtree)."""
    if node == 0:
        # The root has one child: the highest power of two below the number of nodes.
        return TreePlace(-1, (1 << ((size - 1).bit_length() - 1),) if size > 1 else ())
    bit = node & -node
    up = (node ^ bit) | (bit << 1)
    if up >= size:
        up = node ^ bit
    children = []
    half = bit >> 1
    if half:
        children.append(node - half)
        while half and node + half >= size:
            half >>= 1
        if half:
            children.append(node + half)
    return TreePlace(up, tuple(children))


def mirrored_tree(size: int, node: int) -> TreePlace:
    """NCCL's second tree, in which leaves of the first are inner nodes: mirrored, or shifted by one if size is odd."""
    if size % 2 == 0:

        def there(place: int) -> int:
            return size - 1 - place

        back = there
    else:

        def there(place: int) -> int:
            return (place - 1) % size

        def back(place: int) -> int:
            return (place + 1) % size

    first = binary_tree(size, there(node))
    parent = back(first.parent) if first.parent >= 0 else -1
    return TreePlace(parent, tuple(back(child) for child in first.children))


def tree_place(hosts: Hosts, position: int, *, second: bool, head: int) -> TreePlace:
    """Neighbours of a position: its `head`-th position stands for a host in the tree, a chain joins the others to it."""
    host = position // hosts.ranks_per_host
    chain = chain_from(hosts, host, head)
    at = chain.index(position)
    below = chain[at + 1 : at + 2]
    if at > 0:
        return TreePlace(chain[at - 1], below)
    place = (mirrored_tree if second else binary_tree)(hosts.count, host)

    def head_of(other: int) -> int:
        return chain_from(hosts, other, head)[0]

    parent = head_of(place.parent) if place.parent >= 0 else -1
    return TreePlace(parent, tuple(head_of(child) for child in place.children) + below)
