"""Orders all operations of all ranks such that every dependency holds, or reports the deadlock that prevents it.

Plays the job on joined collectives: an operation is executed once all its ranks have reached it. Sends meet their
receives if the job allows it; otherwise they finish alone (eager). The order is deterministic, and sequence numbers
assigned by it are free of deadlock by construction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.graph.dependencies import cycle_among, ready_order
from etloop.workload.graph.lowering import LoweredRank
from etloop.workload.graph.matching import Matching
from etloop.workload.graph.network_ops import RankOps
from etloop.workload.trace.findings import Check, FindingLog, job_example, node_words
from etloop.workload.trace.program import Communicator, OpKind
from etloop.workload.trace.trace import CollectiveKind, Trace
from etloop.workload.trace.trace_names import shown

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class JobGraph:
    """Items of `Matching`, then the delays of all ranks. Item `waiting[i]` waits on `rank[i]` for item `awaited[i]`."""

    priority: NDArray[np.int64]
    """Permutation of the items: among ready items, the least goes first."""
    waiting: NDArray[np.int64]
    awaited: NDArray[np.int64]
    rank: NDArray[np.int64]


def job_graph(lowered: Sequence[LoweredRank], matching: Matching) -> JobGraph:
    """Join the ranks' graphs. A receive waits for its send; a send does not wait for its receive."""
    waiting, awaited, ranks = (
        [matching.recvs],
        [matching.sends],
        [np.full(len(matching.sends), -1, dtype=np.int64)],
    )
    firsts: list[NDArray[np.int64]] = []
    items = matching.item_count
    for rank, rank_graph in enumerate(lowered):
        is_delay = rank_graph.op < 0
        item_of = np.empty(len(rank_graph), dtype=np.int64)
        item_of[~is_delay] = matching.item[rank][rank_graph.op[~is_delay]]
        item_of[is_delay] = items + np.arange(int(is_delay.sum()))
        items += int(is_delay.sum())
        rows = np.repeat(np.arange(len(rank_graph)), np.diff(rank_graph.dep_offsets))
        waiting.append(item_of[rows])
        awaited.append(item_of[rank_graph.deps])
        ranks.append(np.full(len(rows), rank, dtype=np.int64))
        # Sorted by (delay first, position, rank): equal ranks advance in step, so that they end up with one program.
        firsts.append(
            np.stack(
                [
                    item_of,
                    np.where(is_delay, 0, 1),
                    np.arange(len(rank_graph)),
                    np.full(len(rank_graph), rank),
                ],
                axis=1,
            )
        )
    keys = np.concatenate([*firsts, np.zeros((0, 4), dtype=np.int64)])
    keys = keys[np.lexsort((keys[:, 3], keys[:, 2], keys[:, 1]))]
    items_with_key, first = np.unique(keys[:, 0], return_index=True)
    key_index = np.full(items, len(keys), dtype=np.int64)
    key_index[items_with_key] = first
    priority = np.empty(items, dtype=np.int64)
    priority[np.argsort(key_index, kind="stable")] = np.arange(items)
    return JobGraph(priority, np.concatenate(waiting), np.concatenate(awaited), np.concatenate(ranks))


def meeting_order(graph: JobGraph, matching: Matching) -> NDArray[np.int64]:
    """Return items in an order in which sends and receives can meet, so that both ends of a pair of ranks agree on it.

    The result is int64 and has fewer than all items if there is no such order. The position of a receive in it is
    arbitrary; use that of its send.
    """
    item_of = np.arange(len(graph.priority), dtype=np.int64)
    item_of[matching.recvs] = matching.sends
    waiting, awaited = item_of[graph.waiting], item_of[graph.awaited]
    apart = waiting != awaited
    return ready_order(graph.priority, waiting[apart], awaited[apart])


def eager_order(graph: JobGraph) -> NDArray[np.int64]:
    """Return items in an order in which sends finish before their receives begin; fewer than all if the job deadlocks."""
    return ready_order(graph.priority, graph.waiting, graph.awaited)


@dataclass(frozen=True, slots=True, eq=False)
class OpIndex:
    """Data needed to describe an item in a message."""

    trace: Trace
    ops: Sequence[RankOps]
    communicators: Sequence[Communicator]
    communicator_of: Sequence[NDArray[np.int32]]
    matching: Matching

    def words(self, item: int, rank: int) -> str:
        """Describe an operation as rank `rank` sees it."""
        position = int(np.flatnonzero(self.matching.item[rank] == item)[0])
        ops, trace = self.ops[rank], self.trace.ranks[rank]
        node = int(ops.node[position])
        kind = OpKind(int(ops.kind[position]))
        if kind is OpKind.COLLECTIVE:
            name = CollectiveKind(int(ops.collective[position])).name
            communicator = self.communicators[int(self.communicator_of[rank][position])].name
            op_words = f'{name} {self.matching.use[rank][position]} of communicator "{shown(communicator)}"'
        else:
            op_words = f"{kind.name} {ops.src[position]} -> {ops.dst[position]}"
        return f"{op_words} ({node_words(trace, node)})"

    def rank_of(self, item: int) -> int:
        """Return the lowest rank that takes part in an item. Raises StopIteration if there is none."""
        return next(rank for rank, items in enumerate(self.matching.item) if bool((items == item).any()))


def report_deadlock(graph: JobGraph, order: NDArray[np.int64], index: OpIndex, log: FindingLog) -> None:
    """Report one short cycle of waits as the operations in it, with their ranks."""
    stuck = np.ones(len(graph.priority), dtype=bool)
    stuck[order] = False
    count = index.matching.item_count
    cycle = cycle_among(stuck, graph.waiting, graph.awaited)
    steps = []
    edges = list(zip(cycle, (*cycle[1:], cycle[0]), strict=True))
    # Delays belong to one rank, so consecutive delays are reported as one step between the operations around them.
    first = next(i for i, item in enumerate(cycle) if item < count)
    later, rank = cycle[first], -1
    for waiting, awaited in edges[first:] + edges[:first]:
        edge_indices = np.flatnonzero((graph.waiting == waiting) & (graph.awaited == awaited))
        rank = max(rank, int(graph.rank[edge_indices[0]]))
        if awaited >= count:
            continue
        if rank >= 0:
            steps.append(f"on rank {rank} {index.words(later, rank)} waits for {index.words(awaited, rank)}")
        else:
            receiver, sender = index.rank_of(later), index.rank_of(awaited)
            steps.append(
                f"on rank {receiver} {index.words(later, receiver)} waits for "
                f"rank {sender}'s {index.words(awaited, sender)}"
            )
        later, rank = awaited, -1
    steps_text = "; ".join(steps[:8]) + (f"; and {len(steps) - 8} more steps" if len(steps) > 8 else "")
    blocked = int(stuck[:count].sum())
    remedy = "the ranks issue these operations in different orders: correct the exporter, or use a policy with fewer dependencies"
    actual = f"{blocked} operations that never finish: {steps_text}"
    example = job_example(index.trace.source, "an order in which all operations can finish", actual)
    log.add(Check.DEADLOCK, remedy, example)
