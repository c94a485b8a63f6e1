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
from etloop.workload.graph.alike_ranks import AlikeRanks
from etloop.workload.graph.dependencies import cycle_among, ready_order
from etloop.workload.graph.lowering import LoweredRank
from etloop.workload.graph.matching import Matching
from etloop.workload.graph.network_ops import RankOps
from etloop.workload.trace.findings import Check, FindingLog, job_example, node_words
from etloop.workload.trace.program import Communicator, OpKind
from etloop.workload.trace.trace import CollectiveKind, Trace
from etloop.workload.trace.trace_names import printable_name

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class JobGraph:
    """The operations of the first rank of each class (`AlikeRanks`), then the delays. Entry `waiting[i]` waits on rank
    `rank[i]` for entry `awaited[i]`, a receive for its send on no rank (-1)."""

    item: NDArray[np.int64]
    """Item of `Matching` of each operation, ascending."""
    priority: NDArray[np.int64]
    """Permutation of the entries: among ready entries, the least goes first."""
    waiting: NDArray[np.int64]
    awaited: NDArray[np.int64]
    rank: NDArray[np.int64]
    sends: NDArray[np.int64]
    """Entry of the SEND of each pair; `recvs` holds that of its RECV."""
    recvs: NDArray[np.int64]
    ops: tuple[NDArray[np.int64], ...]
    """Per class: entry of each operation in `RankOps`."""


def job_graph(lowered: Sequence[LoweredRank], matching: Matching, alike: AlikeRanks) -> JobGraph:
    """Join the graphs of the first rank of each class. A receive waits for its send; a send does not wait for its receive.

    Pass `every_rank` for a graph of all ranks.
    """
    ranks = alike.first_rank.tolist()
    items_of_rank = [alike.canonical(matching, matching.item[rank]) for rank in ranks]
    item = np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *items_of_rank]))
    ops = tuple(np.searchsorted(item, items) for items in items_of_rank)
    sends, recvs = _pairs(item, matching, alike)
    waiting, awaited, waiting_ranks = [recvs], [sends], [np.full(len(sends), -1, dtype=np.int64)]
    keys: list[NDArray[np.int64]] = []
    entries = len(item)
    for rank, entry_of_op in zip(ranks, ops, strict=True):
        rank_graph = lowered[rank]
        is_delay = rank_graph.op < 0
        entry_of = np.empty(len(rank_graph), dtype=np.int64)
        entry_of[~is_delay] = entry_of_op[rank_graph.op[~is_delay]]
        entry_of[is_delay] = entries + np.arange(int(is_delay.sum()))
        entries += int(is_delay.sum())
        rows = np.repeat(np.arange(len(rank_graph)), np.diff(rank_graph.dep_offsets))
        waiting.append(entry_of[rows])
        awaited.append(entry_of[rank_graph.deps])
        waiting_ranks.append(np.full(len(rows), rank, dtype=np.int64))
        # Sorted by (delay first, position, rank): equal ranks advance in step, so that they end up with one program.
        position, own = np.arange(len(rank_graph)), np.full(len(rank_graph), rank)
        keys.append(np.stack([entry_of, np.where(is_delay, 0, 1), position, own], axis=1))
    key_rows = np.concatenate([*keys, np.zeros((0, 4), dtype=np.int64)])
    key_rows = key_rows[np.lexsort((key_rows[:, 3], key_rows[:, 2], key_rows[:, 1]))]
    entries_with_key, first = np.unique(key_rows[:, 0], return_index=True)
    key_index = np.full(entries, len(key_rows), dtype=np.int64)
    key_index[entries_with_key] = first
    priority = np.empty(entries, dtype=np.int64)
    priority[np.argsort(key_index, kind="stable")] = np.arange(entries)
    return JobGraph(
        item,
        priority,
        np.concatenate(waiting),
        np.concatenate(awaited),
        np.concatenate(waiting_ranks),
        sends,
        recvs,
        ops,
    )


def _pairs(
    item: NDArray[np.int64], matching: Matching, alike: AlikeRanks
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the entries of the send and of the receive of each pair whose receive is among the items."""
    at = np.minimum(np.searchsorted(item, matching.recvs), max(len(item) - 1, 0))
    among = item[at] == matching.recvs if len(item) else np.zeros(len(at), dtype=np.bool_)
    sends = alike.canonical(matching, matching.sends[among])
    return np.searchsorted(item, sends), at[among]


def meeting_order(graph: JobGraph) -> NDArray[np.int64]:
    """Return entries in an order in which sends and receives can meet, so that both ends of a pair of ranks agree on it.

    The result is int64 and has fewer than all entries if there is no such order. The position of a receive in it is
    arbitrary; use that of its send.
    """
    met = np.arange(len(graph.priority), dtype=np.int64)
    met[graph.recvs] = graph.sends
    waiting, awaited = met[graph.waiting], met[graph.awaited]
    # A pair is one entry here and does not wait for itself. An edge on a rank is kept: a rank that sends to a rank of its
    # own class only after it has received from one waits for itself.
    apart = (waiting != awaited) | (graph.rank >= 0)
    return ready_order(graph.priority, waiting[apart], awaited[apart])


def eager_order(graph: JobGraph) -> NDArray[np.int64]:
    """Return entries in an order in which sends finish before their receives begin; fewer than all if the job deadlocks."""
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
            op_words = (
                f'{name} {self.matching.use[rank][position]} of communicator "{printable_name(communicator)}"'
            )
        else:
            op_words = f"{kind.name} {ops.src[position]} -> {ops.dst[position]}"
        return f"{op_words} ({node_words(trace, node)})"

    def rank_of(self, item: int) -> int:
        """Return the lowest rank that takes part in an item. Raises StopIteration if there is none."""
        return next(rank for rank, items in enumerate(self.matching.item) if bool((items == item).any()))


def report_deadlock(graph: JobGraph, order: NDArray[np.int64], index: OpIndex, log: FindingLog) -> None:
    """Report one short cycle of waits as the operations in it, with their ranks. `graph` is that of all ranks."""
    stuck = np.ones(len(graph.priority), dtype=bool)
    stuck[order] = False
    count = len(graph.item)
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
            later_words, awaited_words = (
                index.words(int(graph.item[entry]), rank) for entry in (later, awaited)
            )
            steps.append(f"on rank {rank} {later_words} waits for {awaited_words}")
        else:
            received, sent = int(graph.item[later]), int(graph.item[awaited])
            receiver, sender = index.rank_of(received), index.rank_of(sent)
            steps.append(
                f"on rank {receiver} {index.words(received, receiver)} waits for "
                f"rank {sender}'s {index.words(sent, sender)}"
            )
        later, rank = awaited, -1
    steps_text = "; ".join(steps[:8]) + (f"; and {len(steps) - 8} more steps" if len(steps) > 8 else "")
    blocked = int(stuck[:count].sum())
    remedy = "the ranks issue these operations in different orders: correct the exporter, or use a policy with fewer dependencies"
    actual = f"{blocked} operations that never finish: {steps_text}"
    example = job_example(index.trace.source, "an order in which all operations can finish", actual)
    log.add(Check.DEADLOCK, remedy, example)
