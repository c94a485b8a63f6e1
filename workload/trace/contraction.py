"""Contracts a rank's graph to its network operations without moving any of them in time.

Decides which delays and edges can be removed. Exact: whatever the duration of the operations, every operation
starts, and the rank ends, at the same time as in the full graph. Delays run concurrently, because they share no
resource.

Rules: an edge that a longer path implies is removed. A delay whose only successor is a delay without further
predecessors joins it. Of delays with the same predecessors and successors, the longest stays. A delay of zero is
removed if connecting its neighbours directly takes no more edges, and always if it has no successors or no
predecessors. Delays with no operation before them (heads) end at a known time: a node that waits for several waits
only for the last, and a delay joins the one after it across such a head, which is shortened by the same amount. Of
delays with no operation after them (tails), only the longest path to the end stays. The last three rules remove most
of the compute that surrounds the collectives of a real trace.
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
"""Limit of nodes for removing implied edges: the bit sets that find them take n * n / 16 bytes (64 MiB here)."""


@dataclass(frozen=True, slots=True, eq=False)
class Dag:
    """A graph of n nodes in topological order: node i starts when deps[dep_offsets[i]:dep_offsets[i + 1]], all < i, are
    done."""

    is_op: NDArray[np.bool_]
    """Network operations; they are never removed, and their duration is known only in the run."""
    delay_ns: NDArray[np.int64]
    """Duration of the delays, which are all other nodes."""
    dep_offsets: NDArray[np.int64]
    deps: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.is_op)


@dataclass(frozen=True, slots=True, eq=False)
class Contraction:
    """Result: `dag` over the nodes `kept` (ascending indices into the graph that was contracted)."""

    kept: NDArray[np.int64]
    dag: Dag


def contract(dag: Dag) -> Contraction:
    """Apply the rules of this module until none applies."""
    graph = _Graph(dag)
    previous_size = (-1, -1)
    while previous_size != graph.size():
        previous_size = graph.size()
        graph.drop_implied_edges()
        graph.shrink()
        graph.gather_heads()
        graph.gather_tails()
        graph.join_past_heads()
    return graph.result()


class _Graph:
    """The graph during contraction: predecessor and successor sets by node; predecessors are None for a removed node."""

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
        """Remove implied edges (transitive reduction), using bit sets of ancestors numbered over the remaining nodes."""
        remaining = [node for node, predecessors in enumerate(self.predecessors) if predecessors is not None]
        if len(remaining) > REDUCTION_LIMIT_NODES:
            return
        number = {node: position for position, node in enumerate(remaining)}
        ancestors: list[int] = []
        for node in remaining:
            predecessors = self.predecessors[node] or set()
            implied = 0
            # A predecessor can only be implied by a later one, so the latest are visited first.
            for predecessor in sorted(predecessors, reverse=True):
                bit = 1 << number[predecessor]
                if implied & bit:
                    predecessors.discard(predecessor)
                    self.successors[predecessor].discard(node)
                else:
                    implied |= ancestors[number[predecessor]] | bit
            ancestors.append(implied)

    def size(self) -> tuple[int, int]:
        """Return the numbers of remaining nodes and edges."""
        remaining = [predecessors for predecessors in self.predecessors if predecessors is not None]
        return len(remaining), sum(map(len, remaining))

    def shrink(self) -> None:
        """Remove delays in one pass: zeros, chains, twins."""
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
        """Make each head one delay from the start of the rank, and let every other node wait only for its last head."""
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
            # A head without successors only delays the end of the rank, and the longest head ends no earlier.
            if not self.successors[node]:
                self._remove(node, set())

    def join_past_heads(self) -> None:
        """Join a delay into the delay after it if that waits for one head too, and shorten the head by the same time."""
        for node, predecessors in enumerate(self.predecessors):
            if not predecessors or self.is_op[node] or len(self.successors[node]) != 1:
                continue
            (successor,) = self.successors[node]
            other_predecessors = (self.predecessors[successor] or set()) - {node}
            if self.is_op[successor] or len(other_predecessors) != 1:
                continue
            (head,) = other_predecessors
            if self.is_op[head] or self.predecessors[head] or len(self.successors[head]) != 1:
                continue
            self._remove(node, predecessors)
            new_predecessors = self.predecessors[successor]
            assert new_predecessors is not None
            new_predecessors |= predecessors
            for predecessor in predecessors:
                self.successors[predecessor].add(successor)
            self.delay_ns[successor] += self.delay_ns[node]
            self.delay_ns[head] -= self.delay_ns[node]
            if self.delay_ns[head] <= 0:
                # The successor's other predecessors end no earlier than the rank begins, so this head has no effect.
                self._remove(head, set())

    def gather_tails(self) -> None:
        """Make each tail one delay to the end of the rank, and of several successors that are tails keep the longest."""
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
                # Its path to the end is part of another tail now. It had `node` as predecessor, so it is not a head.
                if not self.predecessors[later]:
                    self._remove(later, set())

    def _length(self, node: int) -> tuple[int, int]:
        """Return the key that orders delays by length, the lowest node last among equals."""
        return self.delay_ns[node], -node

    def _forget(self, node: int, awaited: set[int]) -> None:
        predecessors = self.predecessors[node]
        assert predecessors is not None
        predecessors -= awaited
        for predecessor in awaited:
            self.successors[predecessor].discard(node)

    def _drop_zero(self, node: int, predecessors: set[int]) -> None:
        successors = self.successors[node]
        if len(predecessors) * len(successors) > len(predecessors) + len(successors):
            return
        self._remove(node, predecessors)
        for successor in successors:
            new_predecessors = self.predecessors[successor]
            assert new_predecessors is not None
            new_predecessors |= predecessors
        for predecessor in predecessors:
            self.successors[predecessor] |= successors

    def _join_successor(self, node: int, predecessors: set[int]) -> None:
        """Join a delay into the delay after it, which keeps its index."""
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
            shorter = min(node, twin, key=lambda candidate: self.delay_ns[candidate])
            longest[key] = twin if shorter == node else node
            self._remove(shorter, self.predecessors[shorter] or set())

    def _remove(self, node: int, predecessors: set[int]) -> None:
        for predecessor in predecessors:
            self.successors[predecessor].discard(node)
        for successor in self.successors[node]:
            successor_predecessors = self.predecessors[successor]
            assert successor_predecessors is not None
            successor_predecessors.discard(node)
        self.predecessors[node] = None

    def result(self) -> Contraction:
        """Return the contracted graph, renumbered over the remaining nodes."""
        kept = [node for node, predecessors in enumerate(self.predecessors) if predecessors is not None]
        number = {node: position for position, node in enumerate(kept)}
        rows = [sorted(number[predecessor] for predecessor in self.predecessors[node] or ()) for node in kept]
        deps = np.array([dep for row in rows for dep in row], dtype=np.int64)
        return Contraction(
            np.array(kept, dtype=np.int64),
            Dag(
                np.array([self.is_op[node] for node in kept], dtype=np.bool_),
                np.array([self.delay_ns[node] for node in kept], dtype=np.int64),
                offsets_of([len(row) for row in rows]),
                deps,
            ),
        )
