"""Builds the dependency graph of one rank: cleaned edges, the order of issue, and cycles.

Decides how self, dangling and duplicate dependencies are handled (dropped and counted) and in which order the nodes
of a rank are issued. Leaves communicators and other ranks to matching.py and global_order.py.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.graph.recorded import (
    RecordedTimes,
    overlapped_edges,
    recorded_start_ns,
    recorded_times,
    report_times,
    waits_between_streams,
)
from etloop.workload.trace.findings import Check, FindingLog, RankFindings, node_example, node_words
from etloop.workload.trace.settings import DependencyPolicy
from etloop.workload.trace.streams import has_streams, stream_neighbours
from etloop.workload.trace.trace import RankTrace, Rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

CYCLE_SEARCHES: Final = 16
"""Number of nodes from which a shortest cycle is searched. It yields a short cycle to report, not always the shortest."""


@dataclass(frozen=True, slots=True, eq=False)
class CleanEdges:
    """Edges of one kind (data or ctrl): node `waiting[i]` waits for node `awaited[i]`, both indices in file order."""

    waiting: NDArray[np.int64]
    awaited: NDArray[np.int64]
    on_self: NDArray[np.int64]
    """Nodes that depend on themselves, once per edge."""
    dangling: NDArray[np.int64]
    """Nodes that depend on an id that the rank does not have, once per edge."""
    dangling_ids: NDArray[np.uint64]
    duplicates: int


@dataclass(frozen=True, slots=True, eq=False)
class CtrlRepair:
    """Repair of cycles that ctrl edges close: ctrl edges between nodes that wait for each other are dropped."""

    dropped: NDArray[np.int64]
    """Waiting node of each dropped edge."""
    cycle: tuple[int, ...]
    """Nodes of one short cycle before the repair; empty if there was none."""
    never_ready: int
    """Number of nodes that could not have been issued without the repair."""


NO_REPAIR: Final = CtrlRepair(np.zeros(0, dtype=np.int64), (), 0)


@dataclass(frozen=True, slots=True, eq=False)
class RankGraph:
    """The dependencies of a rank's nodes under a policy. Ranks with equal columns share one graph."""

    order: NDArray[np.int64]
    """Nodes in issue order: among ready nodes the smallest id first or, with stream order, the one recorded first.
    Nodes of a rank with a cycle that are never ready follow in file order."""
    waiting: NDArray[np.int64]
    awaited: NDArray[np.int64]
    cycle: tuple[int, ...]
    """Nodes of one short cycle, each waiting for the next, the last for the first; empty if there is none."""
    never_ready: int
    """Number of nodes that can never be issued."""
    data: CleanEdges
    ctrl: CleanEdges | None
    """None if the policy ignores ctrl_deps."""
    ctrl_added: int
    """Number of honoured ctrl edges that are not data edges too."""
    repair: CtrlRepair = NO_REPAIR
    stream_added: int = 0
    """Number of stream-order edges that are not edges already."""
    recorded_added: int = 0
    """Number of waits between streams that the recording shows and that are not edges already."""
    times: RecordedTimes | None = None
    """Recorded times, if the policy keeps recorded gaps."""
    begin_only: NDArray[np.bool_] | None = None
    """With `times`: edges that wait only for the start of the awaited node, because the recording shows the two
    overlapping."""


def clean_edges(node_id: NDArray[np.uint64], deps: Rows[np.uint64]) -> CleanEdges:
    """Resolve ids to indices and separate self, dangling and duplicate edges. Node ids must be unique."""
    count = len(node_id)
    by_id = np.argsort(node_id, kind="stable")
    sorted_ids = node_id[by_id]
    rows = np.repeat(np.arange(count, dtype=np.int64), np.diff(deps.offsets))
    positions = np.minimum(np.searchsorted(sorted_ids, deps.values), max(count - 1, 0))
    is_known = sorted_ids[positions] == deps.values if count else np.zeros(0, dtype=bool)
    columns = by_id[positions] if count else np.zeros(0, dtype=np.int64)
    on_self = is_known & (columns == rows)
    is_kept = is_known & ~on_self
    keys = np.unique(rows[is_kept] * max(count, 1) + columns[is_kept])
    return CleanEdges(
        waiting=keys // max(count, 1),
        awaited=keys % max(count, 1),
        on_self=rows[on_self],
        dangling=rows[~is_known],
        dangling_ids=deps.values[~is_known],
        duplicates=int(is_kept.sum()) - len(keys),
    )


def rank_graph(rank: RankTrace, policy: DependencyPolicy) -> RankGraph:
    """Return the graph of a rank whose node ids are unique."""
    span = max(len(rank), 1)
    data = clean_edges(rank.node_id, rank.data_deps)
    keys = data.waiting * span + data.awaited
    priority = _priority(rank, policy)
    ctrl, repair, ctrl_added = None, NO_REPAIR, 0
    if policy.ctrl:
        ctrl = clean_edges(rank.node_id, rank.ctrl_deps)
        added = np.setdiff1d(ctrl.waiting * span + ctrl.awaited, keys)
        added, repair = _without_cycles(keys, added, priority)
        ctrl_added = len(added)
        keys = np.union1d(keys, added)
    order = ready_order(priority, keys // span, keys % span)
    never_ready = len(rank) - len(order)
    cycle: tuple[int, ...] = ()
    stream_added = 0
    if never_ready:
        stuck = np.ones(len(rank), dtype=bool)
        stuck[order] = False
        cycle = cycle_among(stuck, keys // span, keys % span)
        order = np.concatenate([order, np.flatnonzero(stuck)])
    elif policy.stream:
        earlier, later = stream_neighbours(rank, order)
        in_streams = np.setdiff1d(later * span + earlier, keys)
        stream_added = len(in_streams)
        keys = np.union1d(keys, in_streams)
    times = recorded_times(rank) if policy.recorded and not never_ready else None
    recorded_added = 0
    if times is not None:
        earlier, later = waits_between_streams(rank, times, order)
        recorded_waits = np.setdiff1d(later * span + earlier, keys)
        recorded_added = len(recorded_waits)
        keys = np.union1d(keys, recorded_waits)
    waiting, awaited = keys // span, keys % span
    return RankGraph(
        order,
        waiting,
        awaited,
        cycle,
        never_ready,
        data,
        ctrl,
        ctrl_added,
        repair,
        stream_added,
        recorded_added,
        times,
        None if times is None else overlapped_edges(rank, times, waiting, awaited),
    )


def _priority(rank: RankTrace, policy: DependencyPolicy) -> NDArray[np.int64]:
    """Return the rank of each node among ready nodes, int64 [nodes]: by id, or with GPU streams by recorded start, else
    by file position.

    Nodes without a recorded time come first: they are issued as soon as their dependencies allow.
    """
    by_place = np.argsort(rank.node_id, kind="stable")
    if policy.stream and has_streams(rank):
        start_ns = recorded_start_ns(rank)
        by_place = np.arange(len(rank)) if start_ns is None else np.argsort(start_ns, kind="stable")
    priority = np.empty(len(rank), dtype=np.int64)
    priority[by_place] = np.arange(len(rank))
    return priority


def _without_cycles(
    data: NDArray[np.int64], ctrl: NDArray[np.int64], priority: NDArray[np.int64]
) -> tuple[NDArray[np.int64], CtrlRepair]:
    """Return the ctrl edges (as waiting * n + awaited) that lie on no cycle formed by ctrl and data edges, and the
    repair.

    Every cycle lies within one strongly connected set. Without the ctrl edges inside these sets, only cycles of data
    edges remain.
    """
    span = max(len(priority), 1)
    keys = np.union1d(data, ctrl)
    waiting, awaited = keys // span, keys % span
    order = ready_order(priority, waiting, awaited)
    if len(order) == len(priority):
        return ctrl, NO_REPAIR
    stuck = np.ones(len(priority), dtype=bool)
    stuck[order] = False
    inside = stuck[waiting] & stuck[awaited]
    set_of = cycle_sets(len(priority), waiting[inside], awaited[inside])
    on_cycle = (set_of[ctrl // span] >= 0) & (set_of[ctrl // span] == set_of[ctrl % span])
    repair = CtrlRepair(ctrl[on_cycle] // span, cycle_among(stuck, waiting, awaited), int(stuck.sum()))
    return ctrl[~on_cycle], repair


def ready_order(
    priority: NDArray[np.int64], waiting: NDArray[np.int64], awaited: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return a topological order that always takes the ready node of least `priority` (a permutation of 0..n-1).

    Nodes on a cycle, and nodes that wait for one, are left out.
    """
    count = len(priority)
    by_priority = np.empty(count, dtype=np.int64)
    by_priority[priority] = np.arange(count)
    # Priorities replace node numbers below, so that the heap holds plain integers.
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
    """Return a short cycle of nodes marked `stuck`. Each stuck node must wait for at least one stuck node."""
    among_stuck = stuck[waiting] & stuck[awaited]
    rows, columns = waiting[among_stuck], awaited[among_stuck]
    by_row = np.argsort(rows, kind="stable")
    rows, columns = rows[by_row], columns[by_row]

    def awaited_by(node: int) -> Iterable[int]:
        first, last = np.searchsorted(rows, [node, node + 1])
        neighbours: list[int] = columns[first:last].tolist()
        return neighbours

    return _short_cycle(int(np.flatnonzero(stuck)[0]), awaited_by)


def _short_cycle(start: int, awaited_by: Callable[[int], Iterable[int]]) -> tuple[int, ...]:
    """Walk along waits from `start` until a node repeats, then return the shortest cycle through one of the cycle's
    first nodes."""
    place: dict[int, int] = {}
    node = start
    while node not in place:
        place[node] = len(place)
        node = min(awaited_by(node))
    on_cycle = list(place)[place[node] :]
    return min((_cycle_through(candidate, awaited_by) for candidate in on_cycle[:CYCLE_SEARCHES]), key=len)


def _cycle_through(node: int, awaited_by: Callable[[int], Iterable[int]]) -> tuple[int, ...]:
    """Return the shortest cycle through a node that is on one, by breadth-first search."""
    came_from: dict[int, int] = {}
    frontier = [node]
    while node not in came_from:
        next_frontier: list[int] = []
        for current in frontier:
            for neighbour in awaited_by(current):
                if neighbour not in came_from:
                    came_from[neighbour] = current
                    next_frontier.append(neighbour)
        frontier = next_frontier
    backwards = [node]
    while (previous := came_from[backwards[-1]]) != node:
        backwards.append(previous)
    return (backwards[0], *reversed(backwards[1:]))


def report_graph(rank: RankTrace, graph: RankGraph, policy: DependencyPolicy, log: FindingLog) -> None:
    """Report the dependencies that were dropped, any cycle, and data that the policy needs but the trace lacks."""
    if policy.recorded:
        report_times(rank, log)
    if policy.stream and len(rank) and not has_streams(rank):
        example = node_example(rank, 0, "nodes with a GPU stream", "none on this rank")
        log.add(Check.NO_STREAMS, "stream order adds no dependency on this rank", example)
    _report_edges(rank, graph.data, "data_deps", log)
    if graph.ctrl is not None:
        _report_edges(rank, graph.ctrl, "ctrl_deps", log)
    expected, repair = "dependencies without a cycle", graph.repair
    remedy = "the ctrl_deps between nodes that wait for each other are dropped"
    RankFindings(rank, log).add(
        Check.CTRL_CYCLE,
        remedy,
        repair.dropped,
        expected,
        lambda _: _cycle_words(rank, repair.cycle, repair.never_ready),
    )
    if graph.cycle:
        actual = _cycle_words(rank, graph.cycle, graph.never_ready)
        example = node_example(rank, graph.cycle[0], expected, actual)
        log.add(
            Check.DEPENDENCY_CYCLE, "break the cycle in the exporter: data_deps are never dropped", example
        )


def _cycle_words(rank: RankTrace, cycle: tuple[int, ...], never_ready: int) -> str:
    steps = [node_words(rank, node) for node in cycle[:8]]
    if len(cycle) > 8:
        steps.append(f"{len(cycle) - 8} more")
    return (
        f"a cycle of {len(cycle)} nodes ({' waits for '.join([*steps, steps[0]])}), "
        f"for which {never_ready} of {len(rank)} nodes are never ready"
    )


def _report_edges(rank: RankTrace, edges: CleanEdges, sort: str, log: FindingLog) -> None:
    remedy, expected = "the edge is dropped", f"{sort} on other nodes"
    RankFindings(rank, log).add(
        Check.DEPENDENCY_SELF, remedy, edges.on_self, expected, "a dependency on itself"
    )

    def unknown(_: int) -> str:
        return f"node {edges.dangling_ids[0]}, which the rank does not have"

    inside = f"{sort} on nodes of the rank"
    RankFindings(rank, log).add(Check.DEPENDENCY_DANGLING, remedy, edges.dangling, inside, unknown)
    if edges.duplicates:
        example = node_example(rank, 0, f"each of the {sort} once", "dependencies named more than once")
        log.add(Check.DEPENDENCY_DUPLICATE, "the edge counts once", example, count=edges.duplicates)


def cycle_sets(count: int, waiting: NDArray[np.int64], awaited: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return per node the number of its strongly connected set of two or more nodes, -1 if it is on no cycle, int64
    [count].

    Node `waiting[i]` waits for node `awaited[i]`. Sets are numbered by their least node.
    """
    # Imported here, because it takes a quarter of a second and only a trace with a cycle needs it.
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    edges = csr_array((np.ones(len(waiting), dtype=np.int8), (waiting, awaited)), shape=(count, count))
    _, label_of = connected_components(edges, directed=True, connection="strong")
    shared = np.bincount(label_of, minlength=1)[label_of] > 1 if count else np.zeros(0, dtype=np.bool_)
    set_of = np.full(count, -1, dtype=np.int64)
    _, first, number_of = np.unique(label_of[shared], return_index=True, return_inverse=True)
    set_of[shared] = np.argsort(np.argsort(first))[number_of]
    return set_of
