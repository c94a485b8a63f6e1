"""Builds one split matrix per uneven collective from the split rows of its ranks: bytes from each member to each other.

Decides whether rows are consistent, alone and together, and which operations share a matrix. An operation whose
members all split their buffers evenly has no matrix: it is an ordinary all-to-all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.graph.matching import Matching
from etloop.workload.graph.network_ops import RankOps
from etloop.workload.graph.uneven import differing_items, drawn_rows, kinds_of_items, report_assumed
from etloop.workload.trace.findings import (
    EXAMPLES_KEPT,
    Check,
    FindingLog,
    job_example,
    node_example,
    node_words,
)
from etloop.workload.trace.program import Communicator
from etloop.workload.trace.settings import Uneven, UnevenChoice
from etloop.workload.trace.trace import CollectiveKind, Trace
from etloop.workload.trace.trace_names import printable_name

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_SPLITS: Final = 1 << 25
"""Limit of entries in all matrices together (256 MiB), before equal ones are merged. A rank without a row counts as if
it had one."""

EVEN: Final = -1
"""Index used in place of a matrix if the members' buffers are split evenly."""


@dataclass(frozen=True, slots=True, eq=False)
class SplitMatrices:
    """Distinct split matrices: `matrices[k][i, j]` bytes go from position i to position j, before scaling."""

    matrices: tuple[NDArray[np.int64], ...]
    of_item: NDArray[np.int32]
    """Index of the matrix per item of the matching; `EVEN` for an item without one."""


@dataclass(frozen=True, slots=True, eq=False)
class _UnevenOps:
    """Uneven operations of one communicator: items, kinds, a mask of those that state no split at all (`bare`), and how
    splits of the latter are drawn (None: evenly)."""

    items: NDArray[np.int64]
    kinds: NDArray[np.int8]
    bare: NDArray[np.bool_]
    draws: Uneven | None


NO_SPLITS: Final = SplitMatrices((), np.zeros(0, np.int32))


def check_counts(
    trace: Trace,
    ops: Sequence[RankOps],
    communicators: Sequence[Communicator],
    communicator_of: Sequence[NDArray[np.int32]],
    log: FindingLog,
) -> None:
    """Report split rows that do not have one entry per member, and mark their operations as not sound."""
    sizes = np.array([len(communicator.members) for communicator in communicators] + [0], dtype=np.int64)
    for rank, rank_ops, column in zip(trace.ranks, ops, communicator_of, strict=True):
        for rows in (rank_ops.send_splits, rank_ops.recv_splits):
            if rows is None:
                continue
            counts = rows.counts
            wrong = np.flatnonzero((counts > 0) & (column >= 0) & (counts != sizes[column]))
            if len(wrong):
                rank_ops.sound[wrong] = False
                examples = (
                    node_example(
                        rank,
                        int(rank_ops.node[op]),
                        f"{sizes[column[op]]} splits, one for each member of "
                        f'"{printable_name(communicators[int(column[op])].name)}"',
                        f"{counts[op]} splits",
                    )
                    for op in wrong[:EXAMPLES_KEPT].tolist()
                )
                remedy = "correct the split sizes, or the ranks of the communicator"
                log.add(Check.SPLIT_COUNT, remedy, *examples, count=len(wrong))


def split_matrices(
    trace: Trace,
    ops: Sequence[RankOps],
    communicators: Sequence[Communicator],
    communicator_of: Sequence[NDArray[np.int32]],
    matching: Matching,
    log: FindingLog,
    choice: Uneven | None = None,
) -> SplitMatrices:
    """Return the split matrix of every operation that has one. All operations must be free of mistakes.

    Reports members that disagree on a split, and the splits assumed by `choice` for operations that state none.
    """
    choice = choice or Uneven()
    takes_uneven = choice.choice is not UnevenChoice.REFUSED
    has_rows = any(rank_ops.send_splits is not None or rank_ops.recv_splits is not None for rank_ops in ops)
    if not has_rows and not takes_uneven:
        return NO_SPLITS
    states_splits = np.zeros(matching.item_count, dtype=np.bool_)
    for rank_ops, item in zip(ops, matching.item, strict=True):
        for rows in (rank_ops.send_splits, rank_ops.recv_splits):
            if rows is not None:
                states_splits[item[rows.counts > 0]] = True
    uneven = states_splits.copy()
    if takes_uneven:
        uneven |= differing_items(ops, matching)
        report_assumed(trace, ops, matching, uneven & ~states_splits, choice, log)
    if not uneven.any():
        return NO_SPLITS
    kinds = kinds_of_items(ops, matching)
    communicator_of_item = np.full(matching.item_count, -1, dtype=np.int64)
    for column, item in zip(communicator_of, matching.item, strict=True):
        communicator_of_item[item] = column
    of_item = np.full(matching.item_count, EVEN, dtype=np.int32)
    index_of: dict[bytes, int] = {}
    matrices: list[NDArray[np.int64]] = []
    sizes = np.array([len(communicator.members) for communicator in communicators] + [0], dtype=np.int64)
    if int((sizes[communicator_of_item[uneven]] ** 2).sum()) > MAX_SPLITS:
        expected = f"uneven all-to-alls with at most {MAX_SPLITS} splits in total (members squared each)"
        example = job_example(trace.source, expected, f"more in {int(uneven.sum())} operations")
        log.add(Check.SPLIT_VOLUME, "replay fewer steps of the job", example)
        return NO_SPLITS
    for communicator in communicators:
        items = np.flatnonzero(uneven & (communicator_of_item == communicator.index))
        if not len(items) or len(communicator.members) < 2:
            continue
        draws = choice if choice.choice is UnevenChoice.SKEW else None
        uneven_ops = _UnevenOps(items, kinds[items], ~states_splits[items], draws)
        stack = _build_matrices(trace, ops, communicator, matching, uneven_ops, log)
        even = _even_rows(stack[:, :1, :].sum(axis=2), len(communicator.members))
        is_even = (stack == even).all(axis=(1, 2))
        for k in np.flatnonzero(~is_even).tolist():
            index = index_of.setdefault(stack[k].tobytes(), len(matrices))
            if index == len(matrices):
                matrices.append(stack[k].copy())
            of_item[items[k]] = index
    return SplitMatrices(tuple(matrices), of_item)


def _build_matrices(
    trace: Trace,
    ops: Sequence[RankOps],
    communicator: Communicator,
    matching: Matching,
    asked: _UnevenOps,
    log: FindingLog,
) -> NDArray[np.int64]:
    """Return bytes as int64 [operation, source position, destination position] for the given operations of one
    communicator."""
    items, members = asked.items, len(communicator.members)
    stack = np.empty((len(items), members, members), dtype=np.int64)
    sizes = np.empty((len(items), members), dtype=np.int64)
    has_row = np.zeros((len(items), members), dtype=np.bool_)
    op_positions = []
    for position, member in enumerate(communicator.members):
        item = matching.item[member]
        by_item = np.argsort(item, kind="stable")
        positions = by_item[np.searchsorted(item[by_item], items)]
        op_positions.append(positions)
        rank_ops = ops[member]
        sizes[:, position] = rank_ops.size_bytes[positions]
        stack[:, position, :] = _even_rows(rank_ops.size_bytes[positions][:, None], members)[:, 0, :]
        rows = rank_ops.send_splits
        if rows is not None:
            with_row = np.flatnonzero(rows.counts[positions] > 0)
            stack[with_row, position, :] = rows.rows(positions[with_row], members)
            has_row[with_row, position] = True
    _fill_matrices(trace, ops, communicator, asked, op_positions, (stack, sizes, has_row), log)
    for position, member in enumerate(communicator.members):
        rows = ops[member].recv_splits
        if rows is not None:
            with_row = np.flatnonzero(rows.counts[op_positions[position]] > 0)
            expected = rows.rows(op_positions[position][with_row], members)
            differing = np.argwhere(stack[with_row, :, position] != expected)
            for k, source in differing[:EXAMPLES_KEPT].tolist():
                op, sender = int(with_row[k]), communicator.members[source]
                sending = node_words(trace.ranks[sender], int(ops[sender].node[op_positions[source][op]]))
                sent = f"the {stack[op, source, position]} bytes that rank {sender} {sending} sends to it"
                receiving = int(ops[member].node[op_positions[position][op]])
                example = node_example(trace.ranks[member], receiving, sent, f"{expected[k, source]} bytes")
                remedy = "the sender's and the receiver's split sizes must agree: correct the split sizes"
                log.add(Check.SPLIT_DIFFERS, remedy, example)
    return stack


def _fill_matrices(
    trace: Trace,
    ops: Sequence[RankOps],
    communicator: Communicator,
    asked: _UnevenOps,
    at_of: Sequence[NDArray[np.int64]],
    filled: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]],
    log: FindingLog,
) -> None:
    """Fill the matrices of kinds that single rows do not determine. `filled` has the matrices, the sizes that members
    put in, and a mask of stated rows."""
    stack, sizes, has_row = filled
    gathers = asked.kinds == CollectiveKind.ALL_GATHER
    stack[gathers] = np.broadcast_to(sizes[gathers][:, :, None], stack[gathers].shape)
    reduces = asked.kinds == CollectiveKind.REDUCE_SCATTER
    without_rows = reduces & ~has_row.any(axis=1)
    stack[without_rows] = np.broadcast_to(sizes[without_rows][:, None, :], stack[without_rows].shape)
    if asked.draws is not None:
        is_drawn = (asked.kinds == CollectiveKind.ALL_TO_ALL) & asked.bare
        stack[is_drawn] = drawn_rows(sizes[is_drawn], communicator, asked.draws)
    for k in np.flatnonzero(reduces & ~without_rows).tolist():
        first = int(np.argmax(has_row[k]))
        wrong = np.flatnonzero(has_row[k] & (stack[k] != stack[k, first]).any(axis=1))
        for position in wrong[:EXAMPLES_KEPT].tolist():
            member = communicator.members[position]
            node = int(ops[member].node[at_of[position][k]])
            expected = f"the parts that rank {communicator.members[first]} has: {_first_bytes(stack[k, first])} bytes"
            example = node_example(
                trace.ranks[member], node, expected, f"{_first_bytes(stack[k, position])} bytes"
            )
            log.add(
                Check.SPLIT_DIFFERS,
                "all members must reduce parts of the same sizes: correct the split sizes",
                example,
            )
        stack[k] = stack[k, first]


def _first_bytes(row: NDArray[np.int64]) -> str:
    return ", ".join(map(str, row[:8].tolist())) + (", ..." if len(row) > 8 else "")


def as_pairs(
    ops: Sequence[RankOps],
    communicators: Sequence[Communicator],
    matching: Matching,
    splits: SplitMatrices,
    communicator_of: Sequence[NDArray[np.int32]],
) -> tuple[RankOps, ...]:
    """Return the operations with uneven all-gathers and reduce-scatters changed to the all-to-alls that carry them out."""
    of_item, matrices = splits.of_item, splits.matrices
    if not matrices:
        return tuple(ops)
    changed = []
    position_of = [
        {member: position for position, member in enumerate(communicator.members)}
        for communicator in communicators
    ]
    for rank, (rank_ops, item, column) in enumerate(zip(ops, matching.item, communicator_of, strict=True)):
        converted = np.flatnonzero((of_item[item] >= 0) & (rank_ops.collective != CollectiveKind.ALL_TO_ALL))
        if not len(converted):
            changed.append(rank_ops)
            continue
        collective, size_bytes = rank_ops.collective.copy(), rank_ops.size_bytes.copy()
        collective[converted] = CollectiveKind.ALL_TO_ALL
        for op in converted.tolist():
            matrix = matrices[int(of_item[item[op]])]
            size_bytes[op] = int(matrix[position_of[int(column[op])][rank]].sum())
        changed.append(replace(rank_ops, collective=collective, size_bytes=size_bytes))
    return tuple(changed)


def report_uneven(
    trace: Trace, ops: Sequence[RankOps], matching: Matching, splits: SplitMatrices, log: FindingLog
) -> None:
    """Report that split sizes are used, with the range of bytes between members of the first such operation."""
    count = int((splits.of_item >= 0).sum())
    if not count:
        return
    item = int(np.argmax(splits.of_item >= 0))
    rank = next(rank for rank, items in enumerate(matching.item) if bool((items == item).any()))
    position = int(np.argmax(matching.item[rank] == item))
    matrix = splits.matrices[int(splits.of_item[item])]
    between = matrix[~np.eye(len(matrix), dtype=np.bool_)]
    actual = (
        f"between {int(between.min())} and {int(between.max())} bytes from one member to another, "
        f"{int((between == 0).sum())} of {between.size} pairs with 0 bytes"
    )
    remedy = "each pair exchanges its own number of bytes; pairs of zero bytes exchange no message"
    kind = CollectiveKind(int(ops[rank].collective[position]))
    if kind is not CollectiveKind.ALL_TO_ALL:
        remedy += "; it is executed and counted as an all-to-all"
    example = node_example(
        trace.ranks[rank],
        int(ops[rank].node[position]),
        "an all-to-all" if kind is CollectiveKind.ALL_TO_ALL else f"{kind.name} with equal parts",
        actual,
    )
    log.add(Check.UNEVEN, remedy, example, count=count)


def _even_rows(total_bytes: NDArray[np.int64], members: int) -> NDArray[np.int64]:
    """Split each total into `members` equal parts along a new last axis, cut as the engine cuts
    (traffic/collectives/core/table.py)."""
    bounds = total_bytes[..., None] * np.arange(members + 1) // members
    return np.asarray(np.diff(bounds, axis=-1), np.int64)
