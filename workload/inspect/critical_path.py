"""Computes how long a job would take on a network without contention, and its critical path: a lower bound for
comparison.

Decides the longest path over the joined graph of all ranks. Every operation has the full link of each of its ranks
and starts when all of them have reached it; compute takes the delays of the trace. A real run shares links and is
slower.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.workload.graph.global_order import eager_order
from etloop.workload.trace.findings import node_example
from etloop.workload.trace.ideal_network import IdealNetwork, op_durations_ns
from etloop.workload.trace.program import OpKind
from etloop.workload.trace.trace import CollectiveKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.workload.graph.analysis import Analysis, Lowering

_LONGEST_KEPT: Final = 8
_DELAY: Final = "compute"
_MESSAGE: Final = "send_recv"


@dataclass(frozen=True, slots=True)
class PathStep:
    """One operation on the longest path."""

    what: str
    rank: int
    node_id: int
    name: str
    """Name of the node, printable."""
    duration_ns: int


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """The longest chain of dependent operations and delays in the job."""

    total_ns: int
    by_kind_ns: dict[str, int]
    """Time on the path by "compute" and by kind of operation; adds up to `total_ns`."""
    operations: int
    longest: tuple[PathStep, ...]
    """The operations on the path with the longest durations, longest first."""


@dataclass(frozen=True, slots=True, eq=False)
class Items:
    """Every entry of the job's graph: operations, then delays, with kind, place and duration."""

    duration_ns: NDArray[np.int64]
    collective: NDArray[np.int8]
    """`CollectiveKind`; -1 for sends, receives and delays."""
    rank: NDArray[np.int64]
    """One of the ranks that take part."""
    node: NDArray[np.int64]
    """Index of the node on that rank."""
    delays_from: int
    """Items from here on are delays."""


def rank_durations_ns(analysis: Analysis, rank: int, network: IdealNetwork) -> NDArray[np.int64]:
    """Return the ideal duration of each operation of a rank in ns, int64 [operations]; 0 for receives."""
    ops = analysis.ops[rank]
    sizes = np.array(
        [len(communicator.members) for communicator in analysis.communicators] + [2], dtype=np.int64
    )
    size_bytes, members = ops.size_bytes, sizes[analysis.communicator_of[rank]]
    duration = op_durations_ns(ops.collective, size_bytes, members, network)
    if len(analysis.splits.of_item):
        matrix = analysis.splits.of_item[analysis.matching.item[rank]]
        for matrix_index in np.unique(matrix[matrix >= 0]).tolist():
            duration[matrix == matrix_index] = network.latency_ns + round(
                _busiest_bytes(analysis.splits.matrices[matrix_index]) * network.ns_a_byte
            )
    duration[ops.kind == OpKind.RECV] = 0
    return duration


def _busiest_bytes(entry_bytes: NDArray[np.int64]) -> int:
    """Return the most bytes that one member of an uneven all-to-all sends or receives."""
    own_bytes = np.diagonal(entry_bytes)
    return int(max((entry_bytes.sum(axis=1) - own_bytes).max(), (entry_bytes.sum(axis=0) - own_bytes).max()))


def critical_path(analysis: Analysis, lowering: Lowering, network: IdealNetwork) -> CriticalPath:
    """Return the longest path of a job that can be replayed."""
    graph = lowering.graph
    items = _items(analysis, lowering, network)
    order: list[int] = eager_order(graph).tolist()
    by_waiting = np.argsort(graph.waiting, kind="stable")
    awaited: list[int] = graph.awaited[by_waiting].tolist()
    counts = np.bincount(graph.waiting, minlength=len(graph.priority))
    offsets: list[int] = np.concatenate([[0], np.cumsum(counts)]).tolist()
    durations: list[int] = items.duration_ns.tolist()
    end = [0] * len(durations)
    came_from = [-1] * len(durations)
    for item in order:
        begin, latest = 0, -1
        for earlier in awaited[offsets[item] : offsets[item + 1]]:
            if end[earlier] > begin:
                begin, latest = end[earlier], earlier
        end[item] = begin + durations[item]
        came_from[item] = latest
    path: list[int] = []
    path_item = max(range(len(end)), key=end.__getitem__, default=-1)
    total_ns = end[path_item] if path_item >= 0 else 0
    while path_item >= 0:
        path.append(path_item)
        path_item = came_from[path_item]
    return _critical_path(analysis, items, path, total_ns)


def _items(analysis: Analysis, lowering: Lowering, network: IdealNetwork) -> Items:
    graph = lowering.graph
    count = len(graph.priority)
    duration = np.zeros(count, dtype=np.int64)
    collective = np.full(count, -1, dtype=np.int8)
    ranks = np.zeros(count, dtype=np.int64)
    node = np.zeros(count, dtype=np.int64)
    delays = len(graph.item)
    for rank, entries in zip(lowering.alike.first_rank.tolist(), graph.ops, strict=True):
        ops, lowered = analysis.ops[rank], lowering.ranks[rank]
        duration[entries] = rank_durations_ns(analysis, rank, network)
        collective[entries], ranks[entries], node[entries] = ops.collective, rank, ops.node
        is_delay = lowered.op < 0
        delay_entries = slice(delays, delays := delays + int(is_delay.sum()))
        duration[delay_entries], ranks[delay_entries], node[delay_entries] = (
            lowered.delay_ns[is_delay],
            rank,
            lowered.node[is_delay],
        )
    return Items(duration, collective, ranks, node, len(graph.item))


def _critical_path(analysis: Analysis, items: Items, path: list[int], total_ns: int) -> CriticalPath:
    by_kind: dict[str, int] = {_DELAY: 0}
    steps = []
    for item in reversed(path):
        kind = _DELAY if item >= items.delays_from else _kind_name(int(items.collective[item]))
        duration_ns = int(items.duration_ns[item])
        by_kind[kind] = by_kind.get(kind, 0) + duration_ns
        if kind != _DELAY and duration_ns:
            rank = analysis.trace.ranks[int(items.rank[item])]
            node = int(items.node[item])
            example = node_example(rank, node, "", "")
            steps.append(PathStep(kind, rank.rank, int(rank.node_id[node]), example.name, duration_ns))
    longest = sorted(steps, key=lambda step: -step.duration_ns)[:_LONGEST_KEPT]
    return CriticalPath(total_ns, by_kind, len(steps), tuple(longest))


def _kind_name(collective: int) -> str:
    return _MESSAGE if collective < 0 else CollectiveKind(collective).name.lower()
