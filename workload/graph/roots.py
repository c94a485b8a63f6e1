"""Applies the roots that a trace gives for broadcasts, reduces, gathers and scatters.

The root of a collective is position 0 of its communicator. An operation with another root runs on a communicator of
the same name whose members are rotated until the root comes first. The order between operations of the two
communicators remains that of the trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.workload.graph.matching import Matching
from etloop.workload.graph.network_ops import ROOTED, RankOps
from etloop.workload.trace.findings import EXAMPLES_KEPT, Check, FindingLog, RankFindings, node_example
from etloop.workload.trace.program import Communicator
from etloop.workload.trace.trace import ABSENT, Trace
from etloop.workload.trace.trace_names import printable_name

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NONE: Final = np.iinfo(np.int64).max


def obey_roots(
    trace: Trace,
    ops: Sequence[RankOps],
    communicators: tuple[Communicator, ...],
    communicator_of: tuple[NDArray[np.int32], ...],
    matching: Matching,
    log: FindingLog,
) -> tuple[tuple[Communicator, ...], tuple[NDArray[np.int32], ...]]:
    """Return the communicators, including those with rotated members, and the index of each operation's communicator.

    Reports roots that are not members, and operations whose root is unknown.
    """
    least_root = np.full(matching.item_count + 1, _NONE, np.int64)
    most_root = np.full(matching.item_count + 1, -1, np.int64)
    for rank_ops, item in zip(ops, matching.item, strict=True):
        with_root = np.flatnonzero(
            np.isin(rank_ops.collective, ROOTED) & (rank_ops.root != ABSENT) & (item >= 0)
        )
        np.minimum.at(least_root, item[with_root], rank_ops.root[with_root])
        np.maximum.at(most_root, item[with_root], rank_ops.root[with_root])
    root = np.where(least_root == most_root, least_root, 0)
    rotated_index: dict[tuple[int, int], int] = {}
    extended = list(communicators)
    columns = []
    sizes = np.array([len(communicator.members) for communicator in communicators] + [0], dtype=np.int64)
    for rank, rank_ops, column, item in zip(trace.ranks, ops, communicator_of, matching.item, strict=True):
        rooted = np.isin(rank_ops.collective, ROOTED) & (column >= 0) & (item >= 0)
        root_unknown = rooted & (least_root[item] != most_root[item])
        remedy = "position 0 of the communicator is used"
        for mask, actual in (
            (root_unknown & (most_root[item] < 0), "none: the schema has no attribute for it"),
            (
                root_unknown & (most_root[item] >= 0),
                "different roots on different members; PyTorch 1 recorded each member's own rank",
            ),
        ):
            RankFindings(rank, log).add(Check.ROOT_UNKNOWN, remedy, rank_ops.node[mask], "a root", actual)
        outside = np.flatnonzero(rooted & ~root_unknown & ((root[item] < 0) | (root[item] >= sizes[column])))
        if len(outside):
            examples = (
                node_example(
                    rank,
                    int(rank_ops.node[op]),
                    f'a root among the {sizes[column[op]]} members of "{printable_name(communicators[int(column[op])].name)}"',
                    f"{root[item[op]]}",
                )
                for op in outside[:EXAMPLES_KEPT].tolist()
            )
            remedy = "a root is the position of a member, from 0: correct the exporter"
            log.add(Check.ROOT_RANGE, remedy, *examples, count=len(outside))
        rotated = np.flatnonzero(rooted & (root[item] > 0) & (root[item] < sizes[column]))
        new_column = column.copy()
        for op in rotated.tolist():
            key = int(column[op]), int(root[item[op]])
            if key not in rotated_index:
                base = communicators[key[0]]
                rotated_index[key] = len(extended)
                members = base.members[key[1] :] + base.members[: key[1]]
                extended.append(Communicator(len(extended), base.name, members))
            new_column[op] = rotated_index[key]
        columns.append(new_column)
    return _drop_unused(extended, columns) if rotated_index else (communicators, communicator_of)


def _drop_unused(
    made: Sequence[Communicator], columns: Sequence[NDArray[np.int32]]
) -> tuple[tuple[Communicator, ...], tuple[NDArray[np.int32], ...]]:
    """Return only the communicators that still have operations, renumbered, and the renumbered columns."""
    used_indices = sorted({int(index) for column in columns for index in np.unique(column) if index >= 0})
    number = np.full(len(made) + 1, -1, np.int32)
    number[used_indices] = np.arange(len(used_indices), dtype=np.int32)
    used_communicators = tuple(
        replace(made[old_index], index=index) for index, old_index in enumerate(used_indices)
    )
    return used_communicators, tuple(number[column] for column in columns)
