"""Shrinks a rank's graph to its network operations without moving any of them in time.

Decides which delays and edges can go. Exact: whatever the operations take, every operation starts, and the rank ends,
when it would have in the full graph. Delays run side by side (no resource holds them apart).

Rules: an edge that a longer path implies goes; a delay whose only successor is a delay that waits for nothing else
joins it; of delays with the same predecessors and successors the longest stays; a delay of zero goes when joining its
neighbours directly takes no more edges, and always when nothing waits for it or it waits for nothing; delays behind
no operation (heads) end at a known time, so whoever waits for several waits for the last, and a delay joins the one
behind it past such a head, which becomes that much shorter; of delays in front of no operation only the longest way to
the end counts. What a real trace does around its collectives vanishes by the last three.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.trace.shared_columns import offsets_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

REDUCTION_LIMIT_NODES: Final = 32_768
"""Above this, implied edges stay: the bit sets that find them take n * n / 16 bytes (64 MiB here)."""


@dataclass(frozen=True, slots=True, eq=False)
class Dag:
    """n nodes in topological order: node i starts when deps[dep_offsets[i]:dep_offsets[i + 1]], all < i, are done."""

    is_op: NDArray[np.bool_]
    """Network operations; they stay, and how long they take is known only in the run."""
    delay_ns: NDArray[np.int64]
    """Duration of the others."""
    dep_offsets: NDArray[np.int64]
    deps: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.is_op)


@dataclass(frozen=True, slots=True, eq=False)
class Contraction:
    """What is left: `dag` over the nodes `kept` (ascending indices into the graph that was contracted)."""

    kept: NDArray[np.int64]
    dag: Dag


def contract(dag: Dag) -> Contraction:
    """Applies the rules of this module until none applies."""
    graph = _Graph(dag)
    before = (-1, -1)
    while before != graph.size():
        before = graph.size()
        graph.drop_implied_edges()
        graph.shrink()
        graph.gather_heads()
        graph.gather_tails()
        graph.join_past_heads()
    return graph.result()


class _Graph:
    """The graph while it shrinks: predecessor and successor sets by node, None where a node is gone."""

    __slots__ = ("delay_ns", "is_op", "predecessors", "successors")

    def __init__(self, dag: Dag) -> None:
        self.is_op: list[bool] = dag.is_op.tolist()
        self.delay_ns: list[int] = dag.delay_ns.tolist()
        deps: list[int] = dag.deps.tolist()
        offsets: list[int] = dag.dep_offsets.tolist()
        self.predecessors: list[set[int] | None] = [
            set(deps[first:last]) for first, last in pairwise(offsets)
        ]
        self.successors: list[set[int]] = [set() for _ in self.is_op]
        for node, predecessors in enumerate(self.predecessors):
            for predecessor in predecessors or ():
                self.successors[predecessor].add(node)

    def drop_implied_edges(self) -> None:
        """Transitive reduction by bit sets of ancestors, numbered over the nodes that are left."""
        left = [node for node, predecessors in enumerate(self.predecessors) if predecessors is not None]
        if len(left) > REDUCTION_LIMIT_NODES:
            return
        number = {node: position for position, node in enumerate(left)}
        ancestors: list[int] = []
        for node in left:
            predecessors = self.predecessors[node] or set()
            seen = 0
            # A predecessor can only be implied by one that comes after it, so the latest are taken first.
            for predecessor in sorted(predecessors, reverse=True):
                bit = 1 << number[predecessor]
                if seen & bit:
                    predecessors.discard(predecessor)
                    self.successors[predecessor].discard(node)
                else:
                    seen |= ancestors[number[predecessor]] | bit
            ancestors.append(seen)

    def size(self) -> tuple[int, int]:
        """Nodes and edges that are left."""
        left = [predecessors for predecessors in self.predecessors if predecessors is not None]
        return len(left), sum(map(len, left))

    def shrink(self) -> None:
        """One pass over all delays: zeros, chains, twins."""
        for node in range(len(self.is_op)):
            predecessors = self.predecessors[node]
            if predecessors is None or self.is_op[node]:
                continue
            if self.delay_ns[node] == 0:
                self._drop_zero(node, predecessors)
            else:
                self._join_successor(node, predecessors)
        self._drop_shorter_twins()

    def gather_heads(self) -> None:
        """Delays behind no operation: each becomes one delay from the start, and others wait for the last of them."""
        head: set[int] = set()
        for node, predecessors in enumerate(self.predecessors):
            if predecessors is None:
                continue
            heads = predecessors & head
            last = max(heads, key=self._length, default=node)
            if not self.is_op[node] and len(heads) == len(predecessors):
                self.delay_ns[node] += self.delay_ns[last] if heads else 0
                head.add(node)
                self._forget(node, heads)
            else:
                self._forget(node, heads - {last})
        longest = max(head, key=self._length, default=-1)
        for node in sorted(head - {longest}):
            # It leads nowhere but to the end, and another delay from the start ends no earlier.
            if not self.successors[node]:
                self._remove(node, set())

    def join_past_heads(self) -> None:
        """A delay joins the delay behind it although that waits for a head too: the head gives up as much."""
        for node, predecessors in enumerate(self.predecessors):
            if not predecessors or self.is_op[node] or len(self.successors[node]) != 1:
                continue
            (successor,) = self.successors[node]
            others = (self.predecessors[successor] or set()) - {node}
            if self.is_op[successor] or len(others) != 1:
                continue
            (head,) = others
            if self.is_op[head] or self.predecessors[head] or len(self.successors[head]) != 1:
                continue
            self._remove(node, predecessors)
            into = self.predecessors[successor]
            assert into is not None
            into |= predecessors
            for predecessor in predecessors:
                self.successors[predecessor].add(successor)
            self.delay_ns[successor] += self.delay_ns[node]
            self.delay_ns[head] -= self.delay_ns[node]
            if self.delay_ns[head] <= 0:
                # What the successor waits for now cannot end before the rank begins.
                self._remove(head, set())

    def gather_tails(self) -> None:
        """Delays in front of no operation: each becomes one delay to the end, and of several only the longest stays."""
        tail: set[int] = set()
        for node in range(len(self.is_op) - 1, -1, -1):
            if self.predecessors[node] is None:
                continue
            tails = self.successors[node] & tail
            longest = max(tails, key=self._length, default=node)
            in_tail = not self.is_op[node] and len(tails) == len(self.successors[node])
            if in_tail:
                self.delay_ns[node] += self.delay_ns[longest] if tails else 0
                tail.add(node)
            for later in tails if in_tail else tails - {longest}:
                self._forget(later, {node})
                # Its way to the end is now part of another one; a delay that nothing led to never comes here.
                if not self.predecessors[later]:
                    self._remove(later, set())

    def _length(self, node: int) -> tuple[int, int]:
        return self.delay_ns[node], -node

    def _forget(self, node: int, awaited: set[int]) -> None:
        predecessors = self.predecessors[node]
        assert predecessors is not None
        predecessors -= awaited
        for one in awaited:
            self.successors[one].discard(node)

    def _drop_zero(self, node: int, predecessors: set[int]) -> None:
        successors = self.successors[node]
        if len(predecessors) * len(successors) > len(predecessors) + len(successors):
            return
        self._remove(node, predecessors)
        for successor in successors:
            into = self.predecessors[successor]
            assert into is not None
            into |= predecessors
        for predecessor in predecessors:
            self.successors[predecessor] |= successors

    def _join_successor(self, node: int, predecessors: set[int]) -> None:
        """Adds a delay to the delay behind it, which keeps its place in the order and its name."""
        if len(self.successors[node]) != 1:
            return
        (successor,) = self.successors[node]
        if self.is_op[successor] or self.predecessors[successor] != {node}:
            return
        self._remove(node, predecessors)
        self.delay_ns[successor] += self.delay_ns[node]
        self.predecessors[successor] = set(predecessors)
        for predecessor in predecessors:
            self.successors[predecessor].add(successor)

    def _drop_shorter_twins(self) -> None:
        longest: dict[tuple[frozenset[int], frozenset[int]], int] = {}
        for node, predecessors in enumerate(self.predecessors):
            if predecessors is None or self.is_op[node]:
                continue
            key = (frozenset(predecessors), frozenset(self.successors[node]))
            twin = longest.setdefault(key, node)
            if twin == node:
                continue
            shorter = min(node, twin, key=lambda one: self.delay_ns[one])
            longest[key] = twin if shorter == node else node
            self._remove(shorter, self.predecessors[shorter] or set())

    def _remove(self, node: int, predecessors: set[int]) -> None:
        for predecessor in predecessors:
            self.successors[predecessor].discard(node)
        for successor in self.successors[node]:
            into = self.predecessors[successor]
            assert into is not None
            into.discard(node)
        self.predecessors[node] = None

    def result(self) -> Contraction:
        kept = [node for node, predecessors in enumerate(self.predecessors) if predecessors is not None]
        number = {node: position for position, node in enumerate(kept)}
        rows = [sorted(number[one] for one in self.predecessors[node] or ()) for node in kept]
        deps = np.array([one for row in rows for one in row], dtype=np.int64)
        return Contraction(
            np.array(kept, dtype=np.int64),
            Dag(
                np.array([self.is_op[node] for node in kept], dtype=np.bool_),
                np.array([self.delay_ns[node] for node in kept], dtype=np.int64),
                offsets_of([len(row) for row in rows]),
                deps,
            ),
        )
