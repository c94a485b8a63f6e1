"""Reads the meaning of a trace once, for the check and for the job: sizes, graphs, operations, matching, one global
order.

Decides in which order the checks run, and whether collectives that no node waits for mark the end of an iteration or
a defect. Skips the checks across ranks that broken ranks cannot support.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from etloop.contract.base.errors import Severity
from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.graph.alike_ranks import AlikeRanks, alike_ranks, every_rank
from etloop.workload.graph.communicators import resolve_communicators
from etloop.workload.graph.compute import delays_ns, report_delays, report_moves
from etloop.workload.graph.dependencies import CleanEdges, RankGraph, rank_graph, report_graph
from etloop.workload.graph.derived_ranks import stood_for
from etloop.workload.graph.dimensions import WORLD_KEYS, obey_dimensions
from etloop.workload.graph.global_order import (
    JobGraph,
    OpIndex,
    eager_order,
    job_graph,
    meeting_order,
    report_deadlock,
)
from etloop.workload.graph.lowering import LoweredRank, lower_rank, pace_of
from etloop.workload.graph.matching import Matching, match
from etloop.workload.graph.network_ops import RankOps, job_ops
from etloop.workload.graph.recorded import recorded_start_ns
from etloop.workload.graph.roots import obey_roots
from etloop.workload.graph.splits import (
    NO_SPLITS,
    SplitMatrices,
    as_pairs,
    check_counts,
    report_uneven,
    split_matrices,
)
from etloop.workload.trace.findings import (
    Check,
    Finding,
    FindingLog,
    RankFindings,
    job_example,
    node_example,
    rank_example,
)
from etloop.workload.trace.program import Communicator, OpKind
from etloop.workload.trace.settings import (
    DEFAULT_ELEMENT_BYTES,
    STAGE_SCHEMA,
    DependencyPolicy,
    SizeUnit,
    UnevenChoice,
    WorkloadSettings,
)
from etloop.workload.trace.shared_columns import DigestCache
from etloop.workload.trace.streams import has_streams
from etloop.workload.trace.trace import RankTrace, Trace

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Lowering:
    """Results that only a trace without errors has."""

    ranks: tuple[LoweredRank, ...]
    alike: AlikeRanks
    graph: JobGraph
    """Graph of the first rank of each class."""
    order: NDArray[np.int64]
    """Entries of `graph` in one order that every rank can follow. A receive is placed at its send."""


@dataclass(frozen=True, slots=True, eq=False)
class Analysis:
    """A trace read under settings, with all intermediate results and findings."""

    trace: Trace
    settings: WorkloadSettings
    size_unit: SizeUnit
    """BYTES or ELEMENTS, never AUTO."""
    unit_bytes: int
    graphs: tuple[RankGraph, ...]
    ops: tuple[RankOps, ...]
    communicators: tuple[Communicator, ...]
    communicator_of: tuple[NDArray[np.int32], ...]
    """Communicator of each operation, one array per rank; -1 for send and receive."""
    matching: Matching
    splits: SplitMatrices
    """Split matrices of the uneven all-to-alls; empty if there are errors."""
    lowering: Lowering | None
    """None if there are errors."""
    findings: tuple[Finding, ...]


def analyse(trace: Trace, settings: WorkloadSettings) -> Analysis:
    """Read a trace and collect findings. Raises no exception for the content of a trace."""
    log = FindingLog()
    trace = obey_dimensions(
        replicate(stood_for(trace, settings, log), settings, log), settings.logical_topology, log
    )
    size_unit, unit_bytes = _size_unit(trace, settings, log)
    if not trace.ranks:
        absence_example = job_example(trace.source, "the traces of one or more ranks", "none")
        log.add(Check.NO_RANKS, "name a directory with PREFIX.<rank>.et files", absence_example)
    for remark in trace.remarks:
        remark_example = job_example(remark.where, "a complete source", remark.what)
        log.add(Check.SOURCE_REMARK, remark.remedy, remark_example)
    keys, graphs, delays = _graphs(trace, settings, unit_bytes, log)
    ops = job_ops(trace.ranks, [graph.order for graph in graphs], unit_bytes, log)
    for rank, graph, rank_ops in zip(trace.ranks, graphs, ops, strict=True):
        report_leaves(rank, graph, rank_ops, settings.dependencies, log)
    has_ops = any(len(rank_ops) for rank_ops in ops)
    for omission in trace.left_out:
        loss_example = job_example(
            omission.problem.where, "communication that can be replayed", omission.problem.what
        )
        severity = Severity.WARNING if has_ops and not settings.strict else Severity.ERROR
        log.add(
            Check.LEFT_OUT, omission.problem.remedy, loss_example, count=omission.count, severity=severity
        )
    if trace.ranks and not has_ops and not trace.left_out:
        absence_example = job_example(trace.source, "communication nodes", "none on any rank")
        log.add(Check.NO_NETWORK, "use a trace that contains communication nodes", absence_example)
    communicators, communicator_of = resolve_communicators(trace, ops, log)
    check_counts(trace, ops, communicators, communicator_of, log)
    takes_uneven = settings.uneven.choice is not UnevenChoice.REFUSED
    matching = match(trace, ops, communicators, communicator_of, log, takes_uneven=takes_uneven)
    # Communicator order follows the communicator that the trace names, not the per-root one of `obey_roots`.
    named_communicators, named_communicator_of = communicators, communicator_of
    communicators, communicator_of = obey_roots(trace, ops, communicators, communicator_of, matching, log)
    splits = NO_SPLITS
    if not log.has_errors():
        splits = split_matrices(trace, ops, communicators, communicator_of, matching, log, settings.uneven)
        report_uneven(trace, ops, matching, splits, log)
        ops = as_pairs(ops, communicators, matching, splits, communicator_of)
    lowering = None
    if not log.has_errors():
        slots = _shared_slots(named_communicator_of)
        sizes = np.array([len(group.members) for group in named_communicators] + [2], dtype=np.int64)
        moves = [sizes[column] > 1 for column in named_communicator_of]
        lowered_ranks = _lower(settings, keys, graphs, delays, ops, slots, moves)
        index = OpIndex(trace, ops, communicators, communicator_of, matching)
        has_roots = communicator_of is not named_communicator_of
        alike = _alike(lowered_ranks, slots, splits, index, has_roots=has_roots)
        lowering = _order(lowered_ranks, alike, index, log)
    return Analysis(
        trace,
        settings,
        size_unit,
        unit_bytes,
        graphs,
        ops,
        communicators,
        communicator_of,
        matching,
        splits,
        lowering,
        log.findings(),
    )


def _size_unit(trace: Trace, settings: WorkloadSettings, log: FindingLog) -> tuple[SizeUnit, int]:
    """Return the unit of all sizes in the trace and its size in bytes."""
    stage_ranks = [rank for rank in trace.ranks if rank.schema == STAGE_SCHEMA]
    unit = settings.size_unit
    if stage_ranks and unit is SizeUnit.BYTES:
        example = rank_example(stage_ranks[0], "size_unit elements", "size_unit bytes")
        log.add(Check.SIZE_UNIT, "STAGE traces count elements: leave size_unit out", example)
    if unit is SizeUnit.AUTO:
        unit = SizeUnit.ELEMENTS if stage_ranks else SizeUnit.BYTES
        if stage_ranks and len(stage_ranks) < len(trace.ranks):
            other_rank = next(rank for rank in trace.ranks if rank.schema != STAGE_SCHEMA)
            example = rank_example(other_rank, f'schema "{STAGE_SCHEMA}" as in other ranks', "another")
            log.add(Check.SIZE_UNIT, "use traces of one source, or state size_unit", example)
    if unit is SizeUnit.BYTES:
        return unit, 1
    if settings.element_bytes is None and trace.ranks:
        default_words = f"none: {DEFAULT_ELEMENT_BYTES} (bf16) assumed"
        example = rank_example(
            (stage_ranks or trace.ranks)[0], "element_bytes, as sizes count elements", default_words
        )
        log.add(Check.ELEMENT_BYTES, "state workload.element_bytes", example)
    return unit, settings.element_bytes or DEFAULT_ELEMENT_BYTES


def _graphs(
    trace: Trace, settings: WorkloadSettings, unit_bytes: int, log: FindingLog
) -> tuple[list[bytes], tuple[RankGraph, ...], list[NDArray[np.int64]]]:
    """Return, per rank, the key of its columns, its graph and its delays. Ranks with equal columns share one graph."""
    cache: dict[bytes, tuple[RankGraph, NDArray[np.int64]]] = {}
    digests = DigestCache()
    keys = []
    for rank in trace.ranks:
        key = _columns_key(rank, settings.dependencies, digests)
        keys.append(key)
        has_repeated_ids = _report_repeated_ids(rank, log)
        if key not in cache:
            graph = _file_order_graph(rank) if has_repeated_ids else rank_graph(rank, settings.dependencies)
            cache[key] = (graph, delays_ns(rank, settings, unit_bytes))
        report_graph(rank, cache[key][0], settings.dependencies, log)
        report_delays(rank, cache[key][1], settings, log)
    delays = [cache[key][1] for key in keys]
    report_moves(trace.ranks, delays, unit_bytes, log)
    return keys, tuple(cache[key][0] for key in keys), delays


def _columns_key(rank: RankTrace, policy: DependencyPolicy, digests: DigestCache) -> bytes:
    """Hash the columns that shape a rank's graph. Names, peers, tags and communicators are not part of it."""
    start = (rank.start_us, rank.start_ns) if policy.stream else (None, None)
    edges = (rank.data_deps.offsets, rank.data_deps.values, rank.ctrl_deps.offsets, rank.ctrl_deps.values)
    work = (rank.duration_us, rank.num_ops, rank.tensor_size, rank.moved_bytes, rank.is_cpu_op)
    stream = rank.stream if policy.stream else None
    return digests.digest(stream, *start, rank.duration_ns, rank.node_id, rank.kind, *edges, *work)


def _report_repeated_ids(rank: RankTrace, log: FindingLog) -> bool:
    by_id = np.argsort(rank.node_id, kind="stable")
    repeated_nodes = np.sort(by_id[1:][rank.node_id[by_id][1:] == rank.node_id[by_id][:-1]])
    expected, remedy = "an id that no other node of the rank has", "give every node of a rank its own id"
    RankFindings(rank, log).add(
        Check.DUPLICATE_NODE_ID, remedy, repeated_nodes, expected, "an id that an earlier node has"
    )
    return bool(len(repeated_nodes))


def _file_order_graph(rank: RankTrace) -> RankGraph:
    """Return a graph in file order without edges, for a rank whose repeated node ids make its dependencies meaningless.
    It allows the operations of the rank to be checked."""
    no_nodes = np.zeros(0, dtype=np.int64)
    edges = CleanEdges(no_nodes, no_nodes, no_nodes, no_nodes, np.zeros(0, dtype=np.uint64), 0)
    return RankGraph(np.arange(len(rank)), no_nodes, no_nodes, (), 0, edges, None, 0)


def _shared_slots(communicator_of: Sequence[NDArray[np.int32]]) -> list[NDArray[np.int64]]:
    """Return the communicators of each rank's operations numbered by first appearance; equal columns are one array."""
    columns: dict[bytes, NDArray[np.int64]] = {}
    shared = []
    for communicator in communicator_of:
        column = slots_of(communicator)
        shared.append(columns.setdefault(column.tobytes(), column))
    return shared


def _lower(
    settings: WorkloadSettings,
    keys: Sequence[bytes],
    graphs: Sequence[RankGraph],
    delays: Sequence[NDArray[np.int64]],
    ops: Sequence[RankOps],
    slots: Sequence[NDArray[np.int64]],
    moves: Sequence[NDArray[np.bool_]],
) -> tuple[LoweredRank, ...]:
    """Lower each rank. `moves` masks the operations that move bytes: those of more than one member."""
    cache: dict[tuple[bytes, int, bytes], LoweredRank] = {}
    lowered_ranks = []
    for rank, key in enumerate(keys):
        graph, rank_ops = graphs[rank], ops[rank]
        chain = slots[rank] if settings.dependencies.communicator else np.full(len(rank_ops), -1)
        cache_key = (key, id(slots[rank]), moves[rank].tobytes())
        if cache_key not in cache:
            pace = None if graph.times is None else pace_of(graph.times, settings.time_scale)
            cache[cache_key] = lower_rank(graph, delays[rank], rank_ops.node, chain, moves[rank], pace)
        lowered_ranks.append(cache[cache_key])
    return tuple(lowered_ranks)


def slots_of(column: NDArray[np.integer]) -> NDArray[np.int64]:
    """Return `column` renumbered by first appearance, int64 of the same length; negative values become -1."""
    values, first, inverse = np.unique(column, return_index=True, return_inverse=True)
    number = np.full(len(values), -1, dtype=np.int64)
    valid = np.flatnonzero(values >= 0)
    number[valid[np.argsort(first[valid])]] = np.arange(len(valid))
    return np.asarray(number[inverse.reshape(-1)], np.int64)


def _alike(
    lowered: Sequence[LoweredRank],
    slots: Sequence[NDArray[np.int64]],
    splits: SplitMatrices,
    index: OpIndex,
    *,
    has_roots: bool,
) -> AlikeRanks:
    """Return the classes of alike ranks. Members of a communicator with a root are not alike."""
    if has_roots:
        return every_rank(len(lowered), len(index.communicators))
    initial = [
        (id(rank), splits.of_item[items].tobytes() if splits.matrices else b"")
        for rank, items in zip(lowered, index.matching.item, strict=True)
    ]
    return alike_ranks(index.ops, slots, index.communicator_of, len(index.communicators), initial)


def _order(
    lowered: tuple[LoweredRank, ...], alike: AlikeRanks, index: OpIndex, log: FindingLog
) -> Lowering | None:
    graph = job_graph(lowered, index.matching, alike)
    order = meeting_order(graph)
    if len(order) == len(graph.priority):
        return Lowering(lowered, alike, graph, order)
    order = eager_order(graph)
    if len(order) < len(graph.priority):
        graph = job_graph(lowered, index.matching, every_rank(len(lowered), len(index.communicators)))
        report_deadlock(graph, eager_order(graph), index, log)
        return None
    actual = "an order that deadlocks unless a send can complete before its receive is posted"
    example = job_example(index.trace.source, "an order that also works with rendezvous sends", actual)
    log.add(
        Check.NEEDS_EAGER_SENDS,
        "replayed with eager sends; correct the exporter if sends are meant to wait for their receive",
        example,
    )
    return Lowering(lowered, alike, graph, order)


def report_leaves(
    rank: RankTrace, graph: RankGraph, ops: RankOps, policy: DependencyPolicy, log: FindingLog
) -> None:
    """Report the collectives of a rank that no node waits for under the policy; communicator order does not count as
    waiting.

    The finding is a warning if the rank has other work and none of its collectives is waited for. Otherwise it is
    informational, because an iteration may end with such collectives.
    """
    collectives = ops.node[ops.kind == OpKind.COLLECTIVE]
    if len(collectives) < 2 or len(collectives) == len(rank):
        return
    awaited = np.zeros(len(rank), dtype=np.bool_)
    awaited[graph.awaited] = True
    leaves = collectives[~awaited[collectives]]
    if not len(leaves):
        return
    none_awaited = len(leaves) == len(collectives)
    severity, remedy = Severity.INFO, "normal at the end of an iteration; their durations delay no other node"
    if none_awaited:
        severity, remedy = Severity.WARNING, _remedy(rank, policy)
    actual = f"none: {len(leaves)} of {len(collectives)} collectives of the rank have no dependent node"
    example = node_example(rank, int(leaves[0]), "a node that depends on this collective", actual)
    log.add(Check.NOTHING_WAITS, remedy, example, count=len(leaves), severity=severity)


def _remedy(rank: RankTrace, policy: DependencyPolicy) -> str:
    """Return the advice on how to restore the missing waits, given the content of the trace."""
    policies = []
    if has_streams(rank) and not policy.stream:
        policies.append(str(replace(policy, stream=True)))
    if recorded_start_ns(rank) is not None and not policy.recorded:
        policies.append(str(replace(policy, recorded=True)))
    if policies:
        return (
            f"their durations delay no other node; add the GPU's order: dependencies {' or '.join(policies)}"
        )
    if policy.communicator:
        return "their durations delay only the next operation of their communicator; collect the trace with GPU streams"
    return f"their durations delay nothing; add at least their order: dependencies {replace(policy, communicator=True)}"


def replicate(trace: Trace, settings: WorkloadSettings, log: FindingLog) -> Trace:
    """Return the trace with its only rank repeated `settings.replicate_ranks` times, or unchanged if that setting is
    None.

    A copy differs in its rank number and in the groups that contain the recorded rank alone: the default group,
    which always has all ranks, gets all of them; any other group gets the copy's rank. Sends, and collectives of
    groups that do not contain all ranks, then fail their own checks, because the peers of a copy are unknown.
    """
    count = settings.replicate_ranks
    if count is None:
        return trace
    actual = f"{len(trace.ranks)} rank{'' if len(trace.ranks) == 1 else 's'}"
    severity, remedy = (
        Severity.WARNING,
        f"it is replicated to {count} ranks (workload.replicate_ranks)",
    )
    if len(trace.ranks) != 1:
        severity, remedy = Severity.ERROR, "remove workload.replicate_ranks"
    expected = (
        f"the traces of all {count} ranks" if len(trace.ranks) == 1 else "the trace of one rank to replicate"
    )
    log.add(Check.RANKS_REPLICATED, remedy, job_example(trace.source, expected, actual), severity=severity)
    if len(trace.ranks) != 1:
        return trace
    recorded_rank = trace.ranks[0]
    # The receive splits came from peers with other send splits; the copies all send what the recorded rank sent.
    template = replace(recorded_rank, recv_splits=None)
    ranks = (
        replace(template, rank=rank, groups=_groups(recorded_rank.groups, rank, count))
        for rank in range(count)
    )
    return replace(trace, ranks=tuple(ranks))


def _groups(
    groups: dict[str, tuple[int, ...]] | None, rank: int, count: int
) -> dict[str, tuple[int, ...]] | None:
    """Return the groups of the recorded rank as replica `rank` has them."""
    if groups is None:
        return None
    all_ranks = tuple(range(count))
    replacement = {key: all_ranks if key in WORLD_KEYS else (rank,) for key in groups}
    return {key: replacement[key] if members == (0,) else members for key, members in groups.items()}
