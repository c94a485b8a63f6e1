"""Sets of nodes that all wait for each other: where a graph's cycles are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def cycle_sets(count: int, waiting: NDArray[np.int64], awaited: NDArray[np.int64]) -> NDArray[np.int64]:
    """Per node the number of its strongly connected set of two or more nodes, -1 where it is on no cycle.

    Node `waiting[i]` waits for node `awaited[i]`. Tarjan's algorithm (SIAM J. Comput. 1, 1972) with a stack of its own,
    as real traces have chains of tens of thousands of nodes.
    """
    by_row = np.argsort(waiting, kind="stable")
    followers: list[int] = awaited[by_row].tolist()
    offsets: list[int] = np.concatenate([[0], np.cumsum(np.bincount(waiting, minlength=count))]).tolist()
    walk = _Walk(count, followers, offsets)
    for root in np.unique(waiting).tolist():
        if walk.number[root] < 0:
            walk.visit(root)
    return np.array(walk.set_of, dtype=np.int64)


class _Walk:
    """A depth-first walk and what it has found so far."""

    __slots__ = ("followers", "lowest", "number", "numbered", "offsets", "open_nodes", "set_of", "sets")

    def __init__(self, count: int, followers: list[int], offsets: list[int]) -> None:
        self.followers = followers
        self.offsets = offsets
        self.number = [-1] * count
        self.numbered = 0
        self.lowest = [0] * count
        """Least number reachable over open nodes; of a node that is closed, more than any number."""
        self.open_nodes: list[int] = []
        self.set_of = [-1] * count
        self.sets = 0

    def visit(self, root: int) -> None:
        self._enter(root)
        path = [(root, self.offsets[root])]
        while path:
            node, at = path.pop()
            if at < self.offsets[node + 1]:
                path.append((node, at + 1))
                follower = self.followers[at]
                if self.number[follower] < 0:
                    self._enter(follower)
                    path.append((follower, self.offsets[follower]))
                else:
                    self.lowest[node] = min(self.lowest[node], self.lowest[follower])
                continue
            if self.lowest[node] == self.number[node]:
                self._close(node)
            if path:
                before = path[-1][0]
                self.lowest[before] = min(self.lowest[before], self.lowest[node])

    def _enter(self, node: int) -> None:
        self.number[node] = self.lowest[node] = self.numbered
        self.numbered += 1
        self.open_nodes.append(node)

    def _close(self, root: int) -> None:
        at = len(self.open_nodes) - 1
        while self.open_nodes[at] != root:
            at -= 1
        members = self.open_nodes[at:]
        del self.open_nodes[at:]
        for member in members:
            self.lowest[member] = len(self.number)
            if len(members) > 1:
                self.set_of[member] = self.sets
        self.sets += len(members) > 1
