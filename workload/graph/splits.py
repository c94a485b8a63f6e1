"""Uneven collectives: what each member sends to each other one, from the rows of the ranks to one matrix an operation.

Decides whether rows make sense, alone and together, and which operations share a matrix. An operation of which every
member splits its buffer evenly has no matrix: it is an ordinary all-to-all.
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
from etloop.workload.trace.trace_names import shown

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_SPLITS: Final = 1 << 25
"""Entries of all matrices together before equal ones are found: 256 MiB. A rank without a row fills one all the same."""

EVEN: Final = -1
"""Instead of a matrix: the members' buffers are split evenly."""


@dataclass(frozen=True, slots=True, eq=False)
class SplitMatrices:
    """Distinct matrices: `matrices[k][i, j]` bytes go from position i to position j, before scaling."""

    matrices: tuple[NDArray[np.int64], ...]
    of_item: NDArray[np.int32]
    """Per item of the matching; `EVEN` where there is none."""


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    """Uneven operations of one communicator: items, kinds, which of them state no split at all, and how those are drawn (None:
    evenly)."""

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
    """Notes rows that do not have one entry a member; their operations are no longer sound."""
    sizes = np.array([len(one.members) for one in communicators] + [0], dtype=np.int64)
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
                        int(rank_ops.node[at]),
                        f"{sizes[column[at]]} splits, one for each member of "
                        f'"{shown(communicators[int(column[at])].name)}"',
                        f"{counts[at]} splits",
                    )
                    for at in wrong[:EXAMPLES_KEPT].tolist()
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
    """The matrix of every operation that has one. Only for operations without mistakes; notes ends that disagree, and what is
    assumed by `choice` of operations that state no splits."""
    choice = choice or Uneven()
    takes_uneven = choice.choice is not UnevenChoice.REFUSED
    has_rows = any(one.send_splits is not None or one.recv_splits is not None for one in ops)
    if not has_rows and not takes_uneven:
        return NO_SPLITS
    stated = np.zeros(matching.item_count, dtype=np.bool_)
    for rank_ops, item in zip(ops, matching.item, strict=True):
        for rows in (rank_ops.send_splits, rank_ops.recv_splits):
            if rows is not None:
                stated[item[rows.counts > 0]] = True
    uneven = stated.copy()
    if takes_uneven:
        uneven |= differing_items(ops, matching)
        report_assumed(trace, ops, matching, uneven & ~stated, choice, log)
    if not uneven.any():
        return NO_SPLITS
    kinds = kinds_of_items(ops, matching)
    communicator_of_item = np.full(matching.item_count, -1, dtype=np.int64)
    for column, item in zip(communicator_of, matching.item, strict=True):
        communicator_of_item[item] = column
    of_item = np.full(matching.item_count, EVEN, dtype=np.int32)
    index_of: dict[bytes, int] = {}
    matrices: list[NDArray[np.int64]] = []
    sizes = np.array([len(one.members) for one in communicators] + [0], dtype=np.int64)
    if int((sizes[communicator_of_item[uneven]] ** 2).sum()) > MAX_SPLITS:
        expected = f"uneven all-to-alls with at most {MAX_SPLITS} splits together, members squared each"
        example = job_example(trace.source, expected, f"more in {int(uneven.sum())} operations")
        log.add(Check.SPLIT_VOLUME, "replay fewer steps of the job", example)
        return NO_SPLITS
    for communicator in communicators:
        items = np.flatnonzero(uneven & (communicator_of_item == communicator.index))
        if not len(items) or len(communicator.members) < 2:
            continue
        draws = choice if choice.choice is UnevenChoice.SKEW else None
        asked = _Asked(items, kinds[items], ~stated[items], draws)
        stack = _stack(trace, ops, communicator, matching, asked, log)
        even = _even_rows(stack[:, :1, :].sum(axis=2), len(communicator.members))
        is_even = (stack == even).all(axis=(1, 2))
        for k in np.flatnonzero(~is_even).tolist():
            index = index_of.setdefault(stack[k].tobytes(), len(matrices))
            if index == len(matrices):
                matrices.append(stack[k].copy())
            of_item[items[k]] = index
    return SplitMatrices(tuple(matrices), of_item)


def _stack(
    trace: Trace,
    ops: Sequence[RankOps],
    communicator: Communicator,
    matching: Matching,
    asked: _Asked,
    log: FindingLog,
) -> NDArray[np.int64]:
    """[operation, source position, destination position] of the operations asked for, all of one communicator."""
    items, members = asked.items, len(communicator.members)
    stack = np.empty((len(items), members, members), dtype=np.int64)
    sizes = np.empty((len(items), members), dtype=np.int64)
    has_row = np.zeros((len(items), members), dtype=np.bool_)
    at_of = []
    for position, member in enumerate(communicator.members):
        item = matching.item[member]
        by_item = np.argsort(item, kind="stable")
        at = by_item[np.searchsorted(item[by_item], items)]
        at_of.append(at)
        rank_ops = ops[member]
        sizes[:, position] = rank_ops.size_bytes[at]
        stack[:, position, :] = _even_rows(rank_ops.size_bytes[at][:, None], members)[:, 0, :]
        rows = rank_ops.send_splits
        if rows is not None:
            stated = np.flatnonzero(rows.counts[at] > 0)
            stack[stated, position, :] = rows.rows(at[stated], members)
            has_row[stated, position] = True
    _fill_whole(trace, ops, communicator, asked, at_of, (stack, sizes, has_row), log)
    for position, member in enumerate(communicator.members):
        rows = ops[member].recv_splits
        if rows is not None:
            stated = np.flatnonzero(rows.counts[at_of[position]] > 0)
            expected = rows.rows(at_of[position][stated], members)
            differing = np.argwhere(stack[stated, :, position] != expected)
            for k, source in differing[:EXAMPLES_KEPT].tolist():
                op, sender = int(stated[k]), communicator.members[source]
                sending = node_words(trace.ranks[sender], int(ops[sender].node[at_of[source][op]]))
                sent = f"the {stack[op, source, position]} bytes that rank {sender} {sending} sends to it"
                receiving = int(ops[member].node[at_of[position][op]])
                example = node_example(trace.ranks[member], receiving, sent, f"{expected[k, source]} bytes")
                remedy = (
                    "what one member sends to another must be what that one expects: correct the split sizes"
                )
                log.add(Check.SPLIT_DIFFERS, remedy, example)
    return stack


def _fill_whole(
    trace: Trace,
    ops: Sequence[RankOps],
    communicator: Communicator,
    asked: _Asked,
    at_of: Sequence[NDArray[np.int64]],
    filled: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]],
    log: FindingLog,
) -> None:
    """Complete what no row of one member tells: `filled` are matrices, what each member puts in, and which rows are stated."""
    stack, sizes, has_row = filled
    gathers = asked.kinds == CollectiveKind.ALL_GATHER
    stack[gathers] = np.broadcast_to(sizes[gathers][:, :, None], stack[gathers].shape)
    reduces = asked.kinds == CollectiveKind.REDUCE_SCATTER
    bare = reduces & ~has_row.any(axis=1)
    stack[bare] = np.broadcast_to(sizes[bare][:, None, :], stack[bare].shape)
    if asked.draws is not None:
        drawn = (asked.kinds == CollectiveKind.ALL_TO_ALL) & asked.bare
        stack[drawn] = drawn_rows(sizes[drawn], communicator, asked.draws)
    for k in np.flatnonzero(reduces & ~bare).tolist():
        first = int(np.argmax(has_row[k]))
        wrong = np.flatnonzero(has_row[k] & (stack[k] != stack[k, first]).any(axis=1))
        for position in wrong[:EXAMPLES_KEPT].tolist():
            member = communicator.members[position]
            node = int(ops[member].node[at_of[position][k]])
            wanted = f"the parts that rank {communicator.members[first]} has: {_some(stack[k, first])} bytes"
            example = node_example(trace.ranks[member], node, wanted, f"{_some(stack[k, position])} bytes")
            log.add(Check.SPLIT_DIFFERS, "members reduce the same parts: correct the split sizes", example)
        stack[k] = stack[k, first]


def _some(row: NDArray[np.int64]) -> str:
    return ", ".join(map(str, row[:8].tolist())) + (", ..." if len(row) > 8 else "")


def as_pairs(
    ops: Sequence[RankOps],
    communicators: Sequence[Communicator],
    matching: Matching,
    splits: SplitMatrices,
    communicator_of: Sequence[NDArray[np.int32]],
) -> tuple[RankOps, ...]:
    """The operations with uneven all-gathers and reduce-scatters as the all-to-alls that they are carried out as."""
    of_item, matrices = splits.of_item, splits.matrices
    if not matrices:
        return tuple(ops)
    changed = []
    position_of = [{member: at for at, member in enumerate(one.members)} for one in communicators]
    for rank, (rank_ops, item, column) in enumerate(zip(ops, matching.item, communicator_of, strict=True)):
        at = np.flatnonzero((of_item[item] >= 0) & (rank_ops.collective != CollectiveKind.ALL_TO_ALL))
        if not len(at):
            changed.append(rank_ops)
            continue
        collective, size_bytes = rank_ops.collective.copy(), rank_ops.size_bytes.copy()
        collective[at] = CollectiveKind.ALL_TO_ALL
        for one in at.tolist():
            matrix = matrices[int(of_item[item[one]])]
            size_bytes[one] = int(matrix[position_of[int(column[one])][rank]].sum())
        changed.append(replace(rank_ops, collective=collective, size_bytes=size_bytes))
    return tuple(changed)


def report_uneven(
    trace: Trace, ops: Sequence[RankOps], matching: Matching, splits: SplitMatrices, log: FindingLog
) -> None:
    """Tells a reader that split sizes are followed, and how uneven they are."""
    count = int((splits.of_item >= 0).sum())
    if not count:
        return
    item = int(np.argmax(splits.of_item >= 0))
    rank = next(rank for rank, items in enumerate(matching.item) if bool((items == item).any()))
    position = int(np.argmax(matching.item[rank] == item))
    matrix = splits.matrices[int(splits.of_item[item])]
    between = matrix[~np.eye(len(matrix), dtype=np.bool_)]
    found = (
        f"between {int(between.min())} and {int(between.max())} bytes from one member to another, "
        f"{int((between == 0).sum())} of {between.size} pairs without any"
    )
    remedy = "every pair is sent its own bytes; a pair of zero bytes is sent nothing"
    kind = CollectiveKind(int(ops[rank].collective[position]))
    if kind is not CollectiveKind.ALL_TO_ALL:
        remedy += "; it is carried out, and counted, as an all-to-all"
    example = node_example(
        trace.ranks[rank],
        int(ops[rank].node[position]),
        "an all-to-all" if kind is CollectiveKind.ALL_TO_ALL else f"{kind.name} of even parts",
        found,
    )
    log.add(Check.UNEVEN, remedy, example, count=count)


def _even_rows(total_bytes: NDArray[np.int64], members: int) -> NDArray[np.int64]:
    """Each total in one more axis as `members` equal parts, cut as the engine cuts (traffic/collectives/core/table.py)."""
    bounds = total_bytes[..., None] * np.arange(members + 1) // members
    return np.asarray(np.diff(bounds, axis=-1), np.int64)
