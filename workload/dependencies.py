"""Which node of a rank waits for which: edges cleaned of what cannot be honoured, the order of issue, and cycles.

Decides what becomes of self, dangling and duplicate dependencies (dropped, counted) and in which order the nodes of a
rank are issued. Leaves communicators and other ranks to matching.py and global_order.py.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from workload.findings import Check, Severity, node_example, node_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from workload.findings import FindingLog
    from workload.settings import DependencyPolicy
    from workload.trace import RankTrace

CYCLE_SEARCHES: Final = 16
"""Nodes from which the shortest cycle is searched: a short one to show, not the shortest there is."""


@dataclass(frozen=True, slots=True, eq=False)
class CleanEdges:
    """Edges of one sort (data or ctrl): node `waiting[i]` waits for node `awaited[i]`, both indices in file order."""

    waiting: NDArray[np.int64]
    awaited: NDArray[np.int64]
    on_self: NDArray[np.int64]
    """Nodes that name themselves, once per edge."""
    dangling: NDArray[np.int64]
    """Nodes that name an id the rank does not have, once per edge."""
    dangling_ids: NDArray[np.uint64]
    duplicates: int


@dataclass(frozen=True, slots=True, eq=False)
class RankGraph:
    """What holds back each node of a rank under a policy. Ranks with equal columns share one graph."""

    order: NDArray[np.int64]
    """Nodes in issue order: the smallest id among those that are ready. A cyclic rank: the rest in file order."""
    waiting: NDArray[np.int64]
    awaited: NDArray[np.int64]
    cycle: tuple[int, ...]
    """Nodes of one short cycle, each waiting for the next, the last for the first; empty if there is none."""
    never_ready: int
    """Nodes that can never be issued."""
    data: CleanEdges
    ctrl: CleanEdges | None
    """None where the policy does not look at ctrl_deps."""
    ctrl_added: int
    """ctrl edges that no data edge implies directly."""


def clean_edges(
    node_id: NDArray[np.uint64], dep_offsets: NDArray[np.int64], deps: NDArray[np.uint64]
) -> CleanEdges:
    """Resolves ids to indices and sets aside self, dangling and duplicate edges. Node ids must be unique."""
    count = len(node_id)
    by_id = np.argsort(node_id, kind="stable")
    sorted_ids = node_id[by_id]
    rows = np.repeat(np.arange(count, dtype=np.int64), np.diff(dep_offsets))
    at = np.minimum(np.searchsorted(sorted_ids, deps), max(count - 1, 0))
    known = sorted_ids[at] == deps if count else np.zeros(0, dtype=bool)
    columns = by_id[at] if count else np.zeros(0, dtype=np.int64)
    on_self = known & (columns == rows)
    kept = known & ~on_self
    keys = np.unique(rows[kept] * max(count, 1) + columns[kept])
    return CleanEdges(
        waiting=keys // max(count, 1),
        awaited=keys % max(count, 1),
        on_self=rows[on_self],
        dangling=rows[~known],
        dangling_ids=deps[~known],
        duplicates=int(kept.sum()) - len(keys),
    )


def rank_graph(rank: RankTrace, policy: DependencyPolicy) -> RankGraph:
    """The graph of a rank whose node ids are unique."""
    count = len(rank)
    data = clean_edges(rank.node_id, rank.data_dep_offsets, rank.data_deps)
    waiting, awaited, ctrl, ctrl_added = data.waiting, data.awaited, None, 0
    if policy.ctrl:
        ctrl = clean_edges(rank.node_id, rank.ctrl_dep_offsets, rank.ctrl_deps)
        keys = np.union1d(waiting * max(count, 1) + awaited, ctrl.waiting * max(count, 1) + ctrl.awaited)
        ctrl_added = len(keys) - len(waiting)
        waiting, awaited = keys // max(count, 1), keys % max(count, 1)
    priority = np.empty(count, dtype=np.int64)
    priority[np.argsort(rank.node_id, kind="stable")] = np.arange(count)
    order = ready_order(priority, waiting, awaited)
    never_ready = count - len(order)
    cycle: tuple[int, ...] = ()
    if never_ready:
        stuck = np.ones(count, dtype=bool)
        stuck[order] = False
        cycle = cycle_among(stuck, waiting, awaited)
        order = np.concatenate([order, np.flatnonzero(stuck)])
    return RankGraph(order, waiting, awaited, cycle, never_ready, data, ctrl, ctrl_added)


def ready_order(
    priority: NDArray[np.int64], waiting: NDArray[np.int64], awaited: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Topological order that always takes the ready node of least `priority` (a permutation of 0..n-1).

    Nodes on a cycle, and nodes that wait for one, are left out.
    """
    count = len(priority)
    by_priority = np.empty(count, dtype=np.int64)
    by_priority[priority] = np.arange(count)
    # Everything below works on priorities instead of nodes, so that the heap holds plain integers.
    first, second = priority[awaited], priority[waiting]
    successors_at = np.argsort(first, kind="stable")
    successors = second[successors_at].tolist()
    offsets = np.concatenate([[0], np.cumsum(np.bincount(first, minlength=count))]).tolist()
    missing = np.bincount(second, minlength=count).tolist()
    ready = [item for item in range(count) if not missing[item]]
    order: list[int] = []
    while ready:
        item = heapq.heappop(ready)
        order.append(item)
        for successor in successors[offsets[item] : offsets[item + 1]]:
            missing[successor] -= 1
            if not missing[successor]:
                heapq.heappush(ready, successor)
    return by_priority[np.array(order, dtype=np.int64)]


def cycle_among(
    stuck: NDArray[np.bool_], waiting: NDArray[np.int64], awaited: NDArray[np.int64]
) -> tuple[int, ...]:
    """A short cycle of nodes marked `stuck` (each of which waits for at least one stuck node)."""
    kept = stuck[waiting] & stuck[awaited]
    rows, columns = waiting[kept], awaited[kept]
    by_row = np.argsort(rows, kind="stable")
    rows, columns = rows[by_row], columns[by_row]

    def awaited_by(node: int) -> Iterable[int]:
        first, last = np.searchsorted(rows, [node, node + 1])
        found: list[int] = columns[first:last].tolist()
        return found

    return _short_cycle(int(np.flatnonzero(stuck)[0]), awaited_by)


def _short_cycle(start: int, awaited_by: Callable[[int], Iterable[int]]) -> tuple[int, ...]:
    """Walks back from `start` until a node repeats, then takes the shortest cycle through one of the nodes it met."""
    place: dict[int, int] = {}
    node = start
    while node not in place:
        place[node] = len(place)
        node = min(awaited_by(node))
    met = list(place)[place[node] :]
    return min((_cycle_through(one, awaited_by) for one in met[:CYCLE_SEARCHES]), key=len)


def _cycle_through(node: int, awaited_by: Callable[[int], Iterable[int]]) -> tuple[int, ...]:
    """The shortest cycle through a node that is on one, by breadth-first search."""
    came_from: dict[int, int] = {}
    frontier = [node]
    while node not in came_from:
        following: list[int] = []
        for one in frontier:
            for other in awaited_by(one):
                if other not in came_from:
                    came_from[other] = one
                    following.append(other)
        frontier = following
    backwards = [node]
    while (previous := came_from[backwards[-1]]) != node:
        backwards.append(previous)
    return (backwards[0], *reversed(backwards[1:]))


def report_graph(rank: RankTrace, graph: RankGraph, log: FindingLog) -> None:
    """Notes what was dropped from the rank's dependencies and any cycle."""
    _report_edges(rank, graph.data, "data_deps", log)
    if graph.ctrl is not None:
        _report_edges(rank, graph.ctrl, "ctrl_deps", log)
    if graph.cycle:
        steps = [node_words(rank, node) for node in graph.cycle[:8]]
        if len(graph.cycle) > 8:
            steps.append(f"{len(graph.cycle) - 8} more")
        found = (
            f"a cycle of {len(graph.cycle)} nodes ({' waits for '.join([*steps, steps[0]])}), "
            f"for which {graph.never_ready} of {len(rank)} nodes are never ready"
        )
        log.add(
            Check.DEPENDENCY_CYCLE,
            Severity.ERROR,
            "break the cycle in the exporter, or leave ctrl_deps out (dependencies: data)"
            if graph.ctrl is not None
            else "break the cycle in the exporter",
            node_example(rank, graph.cycle[0], "dependencies without a cycle", found),
        )


def _report_edges(rank: RankTrace, edges: CleanEdges, sort: str, log: FindingLog) -> None:
    if len(edges.on_self):
        log.add(
            Check.DEPENDENCY_SELF,
            Severity.WARNING,
            "the edge is dropped",
            node_example(rank, int(edges.on_self[0]), f"{sort} on other nodes", "a dependency on itself"),
            count=len(edges.on_self),
        )
    if len(edges.dangling):
        found = f"node {edges.dangling_ids[0]}, which the rank does not have"
        log.add(
            Check.DEPENDENCY_DANGLING,
            Severity.WARNING,
            "the edge is dropped",
            node_example(rank, int(edges.dangling[0]), f"{sort} on nodes of the rank", found),
            count=len(edges.dangling),
        )
    if edges.duplicates:
        log.add(
            Check.DEPENDENCY_DUPLICATE,
            Severity.WARNING,
            "the edge counts once",
            node_example(rank, 0, f"each of the {sort} once", "dependencies named more than once"),
            count=edges.duplicates,
        )
