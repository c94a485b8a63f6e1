"""Builds the programs of all ranks from an analysed trace: numbering, scaling, slots, one copy for ranks that run the
same.

Decides the `sequence` of every operation, and how `scale.bytes` of a scenario is rounded: sizes stay multiples of
one fp32 and no size becomes zero, so a scaled job keeps the order and nearly the proportions of the original.
Algorithms, protocols and channels are chosen by the unscaled sizes, which ranks keep for that. Leaves meaning and
order to analysis.py.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np

from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.graph.analysis import Analysis, Lowering, slots_of
from etloop.workload.graph.splits import SplitMatrices
from etloop.workload.program.op_names import NO_NAME, OpNames
from etloop.workload.trace.program import OpKind, Program, RankProgram
from etloop.workload.trace.trace import CollectiveKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

_Column = TypeVar("_Column", bound=np.integer)
_WORD_BYTES: Final = 4
"""Size of one fp32. Scaled sizes are multiples of it, so that no operation ends in a partial element."""

_SPLIT: Final = (CollectiveKind.ALL_TO_ALL, CollectiveKind.REDUCE_SCATTER)
"""Collectives that divide their payload into one part per member; the parts stay multiples of one fp32 too."""


@dataclass(frozen=True, slots=True, eq=False)
class Programs:
    """The parts of a `Job` that this module builds."""

    programs: tuple[Program, ...]
    ranks: tuple[RankProgram, ...]
    splits: tuple[NDArray[np.int64], ...]
    """`Job.splits`."""
    split_trace_bytes: tuple[int, ...]
    """`Job.split_trace_bytes`."""
    sequence: NDArray[np.int32]
    """Sequence number of each item of the matching."""
    op_names: tuple[str, ...]
    """`Job.op_names`."""
    notes: tuple[str, ...]
    """Descriptions of content of the trace that the programs lack."""


def build_programs(analysis: Analysis, lowering: Lowering) -> Programs:
    """Return the distinct programs and, per rank, the program that it runs with its communicators and peers."""
    sequence = sequences(analysis, lowering)
    splits = scaled_splits(analysis.splits, analysis.settings.bytes_scale)
    row_bytes = tuple(matrix.sum(axis=1) for matrix in splits.matrices)
    index_of: dict[bytes, int] = {}
    programs: list[Program] = []
    ranks = []
    names = OpNames()
    for rank in range(len(lowering.ranks)):
        program, rank_program = _rank_program(analysis, lowering, rank, sequence)
        if splits.matrices:
            program, rank_program = _with_splits(analysis, lowering, splits, row_bytes, program, rank_program)
        index = index_of.setdefault(_columns(program), len(programs))
        if index == len(programs):
            programs.append(program)
        column = _names(analysis, lowering, rank, names)
        ranks.append(replace(rank_program, program=index, name=column))
    return Programs(
        programs=tuple(programs),
        ranks=tuple(ranks),
        splits=splits.matrices,
        split_trace_bytes=busiest_bytes(analysis.splits, splits),
        sequence=sequence,
        op_names=names.names(),
        notes=names.notes(),
    )


def _names(analysis: Analysis, lowering: Lowering, rank: int, names: OpNames) -> NDArray[np.int32]:
    """Return the number of the trace's name of each network op of a rank, `NO_NAME` for delays, int32 [ops]."""
    lowered = lowering.ranks[rank]
    op_rows = np.flatnonzero(lowered.op >= 0)
    column = names.column(analysis.trace.ranks[rank], lowered.node[op_rows])
    return _spread(lowered.op, op_rows, column, NO_NAME, np.int32)


def sequences(analysis: Analysis, lowering: Lowering) -> NDArray[np.int32]:
    """Return the sequence number of each item: its index in its communicator, or in its (src, dst), in global order,
    int32 [items].

    A receive has the number of its send. The numbers follow one order that every rank can follow, so executing the
    items of one communicator or one (src, dst) strictly by number never deadlocks.
    """
    matching, graph, alike = analysis.matching, lowering.graph, lowering.alike
    place = np.empty(len(lowering.order), dtype=np.int64)
    place[lowering.order] = np.arange(len(lowering.order))
    group = np.full(len(graph.item), -1, dtype=np.int64)
    for rank, entries in zip(alike.first_rank.tolist(), graph.ops, strict=True):
        ops = analysis.ops[rank]
        is_collective = ops.kind == OpKind.COLLECTIVE
        communicator = alike.first_communicator[analysis.communicator_of[rank][is_collective]]
        group[entries[is_collective]] = communicator
        is_send = ops.kind == OpKind.SEND
        pair = ops.src[is_send] * len(analysis.ops) + ops.dst[is_send]
        group[entries[is_send]] = len(analysis.communicators) + pair
    sequence = np.full(len(graph.item), -1, dtype=np.int32)
    entries = np.flatnonzero(group >= 0)
    entries = entries[np.lexsort((place[entries], group[entries]))]
    _, starts, counts = np.unique(group[entries], return_index=True, return_counts=True)
    sequence[entries] = np.arange(len(entries)) - np.repeat(starts, counts)
    items = np.arange(matching.item_count)
    of_item = sequence[np.searchsorted(graph.item, alike.canonical(matching, items))]
    of_item[matching.recvs] = of_item[matching.sends]
    return of_item


def _rank_program(
    analysis: Analysis, lowering: Lowering, rank: int, sequence: NDArray[np.int32]
) -> tuple[Program, RankProgram]:
    lowered, ops = lowering.ranks[rank], analysis.ops[rank]
    op_rows = np.flatnonzero(lowered.op >= 0)
    op = lowered.op[op_rows]
    communicator = analysis.communicator_of[rank][op]
    op_kind = ops.kind[op]
    is_collective = op_kind == OpKind.COLLECTIVE
    peer = ops.peer[op]
    size_bytes = ops.size_bytes[op]
    members = np.array([len(group.members) for group in analysis.communicators] + [0], dtype=np.int64)[
        communicator
    ]
    message_bytes = scaled_column(size_bytes, ops.collective[op], members, analysis.settings.bytes_scale)
    program = Program(
        kind=_spread(lowered.op, op_rows, op_kind, OpKind.DELAY, np.uint8),
        collective=_spread(lowered.op, op_rows, ops.collective[op], -1, np.int8),
        slot=_spread(
            lowered.op, op_rows, np.where(is_collective, slots_of(communicator), slots_of(peer)), -1, np.int32
        ),
        sequence=_spread(lowered.op, op_rows, sequence[analysis.matching.item[rank][op]], -1, np.int32),
        message_bytes=_spread(lowered.op, op_rows, message_bytes, 0, np.int64),
        delay_ns=lowered.delay_ns,
        dep_offsets=lowered.dep_offsets,
        deps=lowered.deps.astype(np.int32),
    )
    rank_program = RankProgram(
        rank=rank,
        program=-1,
        communicators=_by_appearance(communicator),
        peers=_by_appearance(peer),
        node_id=analysis.trace.ranks[rank].node_id[lowered.node],
        trace_bytes=None
        if analysis.settings.bytes_scale == 1
        else _spread(lowered.op, op_rows, size_bytes, 0, np.int64),
    )
    return program, rank_program


def _with_splits(
    analysis: Analysis,
    lowering: Lowering,
    splits: SplitMatrices,
    row_bytes: tuple[NDArray[np.int64], ...],
    program: Program,
    rank_program: RankProgram,
) -> tuple[Program, RankProgram]:
    """Return the program and rank with the matrix of every uneven all-to-all, and its scaled row sum as the message
    size.

    `row_bytes` has the row sums of each matrix, int64 [members].
    """
    rank = rank_program.rank
    lowered = lowering.ranks[rank]
    op_rows = np.flatnonzero(lowered.op >= 0)
    op = lowered.op[op_rows]
    matrix_of_op = splits.of_item[analysis.matching.item[rank][op]]
    if not (matrix_of_op >= 0).any():
        return program, rank_program
    message_bytes = program.message_bytes.copy()
    uneven = np.flatnonzero(matrix_of_op >= 0)
    communicator = analysis.communicator_of[rank][op[uneven]]
    for row in np.unique(np.stack([communicator, matrix_of_op[uneven]], axis=1), axis=0).tolist():
        same_matrix = uneven[(communicator == row[0]) & (matrix_of_op[uneven] == row[1])]
        position = analysis.communicators[row[0]].members.index(rank)
        message_bytes[op_rows[same_matrix]] = row_bytes[row[1]][position]
    column = _spread(lowered.op, op_rows, matrix_of_op, -1, np.int32)
    return replace(program, message_bytes=message_bytes), replace(rank_program, splits=column)


def _spread(
    op: NDArray[np.int64],
    at: NDArray[np.int64],
    values: NDArray[np.integer],
    absent: int,
    dtype: type[_Column],
) -> NDArray[_Column]:
    """Return a program column, `absent` except for `values` at the rows `at`."""
    column = np.full(len(op), absent, dtype=dtype)
    column[at] = values
    return column


def _by_appearance(values: NDArray[np.integer]) -> tuple[int, ...]:
    distinct, first = np.unique(values, return_index=True)
    return tuple(int(value) for value in distinct[np.argsort(first)] if value >= 0)


def _columns(program: Program) -> bytes:
    return b"".join(
        column.tobytes()
        for column in (
            program.kind,
            program.collective,
            program.slot,
            program.sequence,
            program.message_bytes,
            program.delay_ns,
            program.dep_offsets,
            program.deps,
        )
    )


def scaled_bytes(size_bytes: int, scale: Fraction, unit_bytes: int) -> int:
    """Return `size_bytes` scaled down to whole units, at least one unit unless it is 0. Scale 1 returns it unchanged."""
    if scale == 1 or size_bytes == 0:
        return size_bytes
    return max(unit_bytes, int(size_bytes * scale // unit_bytes) * unit_bytes)


def scaled_column(
    size_bytes: NDArray[np.int64], collective: NDArray[np.int8], members: NDArray[np.int64], scale: Fraction
) -> NDArray[np.int64]:
    """Return the sizes of operations scaled, int64 [ops]; `members` is the number of ranks in each. Barriers are not
    scaled."""
    if scale == 1 or not len(size_bytes):
        return size_bytes
    unit_bytes = np.where(np.isin(collective, _SPLIT), _WORD_BYTES * members, _WORD_BYTES)
    # The payload of a barrier is the constant BARRIER_BYTES, not a size of the trace.
    is_scaled = collective != CollectiveKind.BARRIER
    distinct, inverse = np.unique(np.stack([size_bytes, unit_bytes], axis=1), axis=0, return_inverse=True)
    scaled = np.array([scaled_bytes(size, scale, unit) for size, unit in distinct.tolist()], dtype=np.int64)
    return np.where(is_scaled, scaled[inverse.reshape(-1)], size_bytes)


def scaled_splits(splits: SplitMatrices, scale: Fraction) -> SplitMatrices:
    """Return the matrices with every entry scaled separately, so that the bytes sent from i to j equal those that j
    expects.

    Matrices that become equal are merged. The size of an operation is the sum of its scaled entries.
    """
    if scale == 1 or not splits.matrices:
        return splits
    index_of: dict[bytes, int] = {}
    matrices: list[NDArray[np.int64]] = []
    renumbered = []
    for matrix in splits.matrices:
        distinct, inverse = np.unique(matrix, return_inverse=True)
        scaled_values = np.array(
            [scaled_bytes(entry, scale, _WORD_BYTES) for entry in distinct.tolist()], np.int64
        )
        scaled_matrix = scaled_values[inverse.reshape(matrix.shape)]
        index = index_of.setdefault(scaled_matrix.tobytes(), len(matrices))
        if index == len(matrices):
            matrices.append(scaled_matrix)
        renumbered.append(index)
    of_item = np.array([*renumbered, -1], np.int32)[splits.of_item]
    return replace(splits, matrices=tuple(matrices), of_item=of_item)


def busiest_bytes(splits: SplitMatrices, scaled: SplitMatrices) -> tuple[int, ...]:
    """Return, for each scaled matrix, the most bytes that one member sends in any of the unscaled matrices merged into
    it."""
    busiest = [0] * len(scaled.matrices)
    if busiest:
        index_pairs = np.unique(np.stack([splits.of_item, scaled.of_item], axis=1), axis=0)
        for old_index, new_index in index_pairs[index_pairs[:, 0] >= 0].tolist():
            busiest[new_index] = max(busiest[new_index], int(splits.matrices[old_index].sum(axis=1).max()))
    return tuple(busiest)
