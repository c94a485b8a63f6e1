"""Programs of all ranks from an analysed trace: numbering, scaling, slots, one copy for ranks that run the same.

Decides the `sequence` of every operation. Leaves meaning and order to analysis.py, how bytes shrink to scaling.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from etloop.workload.graph.analysis import Analysis, Lowering, slots_of
from etloop.workload.graph.scaling import scaled_column, scaled_splits
from etloop.workload.graph.splits import SplitMatrices
from etloop.workload.trace.program import OpKind, Program, RankProgram

if TYPE_CHECKING:
    from numpy.typing import NDArray

_Column = TypeVar("_Column", bound=np.integer)


@dataclass(frozen=True, slots=True, eq=False)
class Programs:
    """What the columns of a `Job` are made of."""

    programs: tuple[Program, ...]
    ranks: tuple[RankProgram, ...]
    splits: tuple[NDArray[np.int64], ...]
    """`Job.splits`."""
    sequence: NDArray[np.int32]
    """Number of each item of the matching."""


def build_programs(analysis: Analysis, lowering: Lowering) -> Programs:
    """Programs, and per rank which one it runs with which communicators and peers."""
    sequence = sequences(analysis, lowering)
    splits = scaled_splits(analysis.splits, analysis.settings.bytes_scale)
    row_bytes = tuple(matrix.sum(axis=1) for matrix in splits.matrices)
    index_of: dict[bytes, int] = {}
    programs: list[Program] = []
    ranks = []
    for rank in range(len(lowering.ranks)):
        program, rank_program = _rank_program(analysis, lowering, rank, sequence)
        if splits.matrices:
            program, rank_program = _with_splits(analysis, lowering, splits, row_bytes, program, rank_program)
        index = index_of.setdefault(_columns(program), len(programs))
        if index == len(programs):
            programs.append(program)
        ranks.append(replace(rank_program, program=index))
    return Programs(tuple(programs), tuple(ranks), splits.matrices, sequence)


def sequences(analysis: Analysis, lowering: Lowering) -> NDArray[np.int32]:
    """Number of each item: k-th of its communicator; k-th of its (src, dst), receives as their sends; in global order.

    Taken from one order that every rank can follow, so executing items of one communicator or one (src, dst) strictly
    by number never deadlocks.
    """
    matching = analysis.matching
    place = np.empty(len(lowering.order), dtype=np.int64)
    place[lowering.order] = np.arange(len(lowering.order))
    group = np.full(matching.item_count, -1, dtype=np.int64)
    for rank, (ops, items) in enumerate(zip(analysis.ops, matching.item, strict=True)):
        collective = ops.kind == OpKind.COLLECTIVE
        group[items[collective]] = analysis.communicator_of[rank][collective]
        send = ops.kind == OpKind.SEND
        pair = ops.src[send] * len(analysis.ops) + ops.dst[send]
        group[items[send]] = len(analysis.communicators) + pair
    sequence = np.full(matching.item_count, -1, dtype=np.int32)
    numbered = np.flatnonzero(group >= 0)
    numbered = numbered[np.lexsort((place[numbered], group[numbered]))]
    _, starts, counts = np.unique(group[numbered], return_index=True, return_counts=True)
    sequence[numbered] = np.arange(len(numbered)) - np.repeat(starts, counts)
    sequence[matching.recvs] = sequence[matching.sends]
    return sequence


def _rank_program(
    analysis: Analysis, lowering: Lowering, rank: int, sequence: NDArray[np.int32]
) -> tuple[Program, RankProgram]:
    lowered, ops = lowering.ranks[rank], analysis.ops[rank]
    at = np.flatnonzero(lowered.op >= 0)
    op = lowered.op[at]
    communicator = analysis.communicator_of[rank][op]
    op_kind = ops.kind[op]
    collective = op_kind == OpKind.COLLECTIVE
    peer = np.where(collective, -1, np.where(op_kind == OpKind.SEND, ops.dst[op], ops.src[op]))
    size_bytes = ops.size_bytes[op]
    members = np.array([len(one.members) for one in analysis.communicators] + [0], dtype=np.int64)[
        communicator
    ]
    scaled = scaled_column(size_bytes, ops.collective[op], members, analysis.settings.bytes_scale)
    program = Program(
        kind=_spread(lowered.op, at, op_kind, OpKind.DELAY, np.uint8),
        collective=_spread(lowered.op, at, ops.collective[op], -1, np.int8),
        slot=_spread(
            lowered.op, at, np.where(collective, slots_of(communicator), slots_of(peer)), -1, np.int32
        ),
        sequence=_spread(lowered.op, at, sequence[analysis.matching.item[rank][op]], -1, np.int32),
        message_bytes=_spread(lowered.op, at, scaled, 0, np.int64),
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
        else _spread(lowered.op, at, size_bytes, 0, np.int64),
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
    """The same with the matrix of every uneven all-to-all, and its scaled row as the message. `row_bytes` are the sums of
    the rows of each matrix."""
    rank = rank_program.rank
    lowered = lowering.ranks[rank]
    at = np.flatnonzero(lowered.op >= 0)
    op = lowered.op[at]
    own = splits.of_item[analysis.matching.item[rank][op]]
    if not (own >= 0).any():
        return program, rank_program
    message_bytes = program.message_bytes.copy()
    uneven = np.flatnonzero(own >= 0)
    communicator = analysis.communicator_of[rank][op[uneven]]
    for row in np.unique(np.stack([communicator, own[uneven]], axis=1), axis=0).tolist():
        here = uneven[(communicator == row[0]) & (own[uneven] == row[1])]
        position = analysis.communicators[row[0]].members.index(rank)
        message_bytes[at[here]] = row_bytes[row[1]][position]
    column = _spread(lowered.op, at, own, -1, np.int32)
    return replace(program, message_bytes=message_bytes), replace(rank_program, splits=column)


def _spread(
    op: NDArray[np.int64],
    at: NDArray[np.int64],
    values: NDArray[np.integer],
    absent: int,
    dtype: type[_Column],
) -> NDArray[_Column]:
    """A program column from its values at the operations."""
    column = np.full(len(op), absent, dtype=dtype)
    column[at] = values
    return column


def _by_appearance(values: NDArray[np.integer]) -> tuple[int, ...]:
    distinct, first = np.unique(values, return_index=True)
    return tuple(int(one) for one in distinct[np.argsort(first)] if one >= 0)


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
