"""Roots that a trace states of broadcasts, reduces, gathers and scatters: which are obeyed, and as what communicator.

The root of a collective is position 0 of its communicator. An operation with another root runs on a communicator of the same
name whose members are turned until the root comes first; what orders the operations of the two is the trace's, as before.
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
from etloop.workload.trace.trace_names import shown

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
    """Return the communicators with those that roots ask for, and that of each operation. Notes roots that are none, and
    operations whose root is not told."""
    least = np.full(matching.item_count + 1, _NONE, np.int64)
    most = np.full(matching.item_count + 1, -1, np.int64)
    for rank_ops, item in zip(ops, matching.item, strict=True):
        stated = np.flatnonzero(
            np.isin(rank_ops.collective, ROOTED) & (rank_ops.root != ABSENT) & (item >= 0)
        )
        np.minimum.at(least, item[stated], rank_ops.root[stated])
        np.maximum.at(most, item[stated], rank_ops.root[stated])
    root = np.where(least == most, least, 0)
    turned: dict[tuple[int, int], int] = {}
    made = list(communicators)
    columns = []
    sizes = np.array([len(one.members) for one in communicators] + [0], dtype=np.int64)
    for rank, rank_ops, column, item in zip(trace.ranks, ops, communicator_of, matching.item, strict=True):
        rooted = np.isin(rank_ops.collective, ROOTED) & (column >= 0) & (item >= 0)
        untold = rooted & (least[item] != most[item])
        remedy = "position 0 of the communicator is taken"
        for which, found in (
            (untold & (most[item] < 0), "none: the schema has no attribute for it"),
            (
                untold & (most[item] >= 0),
                "roots that differ between the members, as PyTorch 1 wrote the own rank",
            ),
        ):
            RankFindings(rank, log).add(Check.ROOT_UNKNOWN, remedy, rank_ops.node[which], "a root", found)
        outside = np.flatnonzero(rooted & ~untold & ((root[item] < 0) | (root[item] >= sizes[column])))
        if len(outside):
            examples = (
                node_example(
                    rank,
                    int(rank_ops.node[at]),
                    f'a root among the {sizes[column[at]]} members of "{shown(communicators[int(column[at])].name)}"',
                    f"{root[item[at]]}",
                )
                for at in outside[:EXAMPLES_KEPT].tolist()
            )
            remedy = "a root is the position of a member, from 0: correct the exporter"
            log.add(Check.ROOT_RANGE, remedy, *examples, count=len(outside))
        moved = np.flatnonzero(rooted & (root[item] > 0) & (root[item] < sizes[column]))
        own = column.copy()
        for at in moved.tolist():
            key = int(column[at]), int(root[item[at]])
            if key not in turned:
                base = communicators[key[0]]
                turned[key] = len(made)
                members = base.members[key[1] :] + base.members[: key[1]]
                made.append(Communicator(len(made), base.name, members))
            own[at] = turned[key]
        columns.append(own)
    return _in_use(made, columns) if turned else (communicators, communicator_of)


def _in_use(
    made: Sequence[Communicator], columns: Sequence[NDArray[np.int32]]
) -> tuple[tuple[Communicator, ...], tuple[NDArray[np.int32], ...]]:
    """Without those that none of their operations is left in."""
    used = sorted({int(one) for column in columns for one in np.unique(column) if one >= 0})
    number = np.full(len(made) + 1, -1, np.int32)
    number[used] = np.arange(len(used), dtype=np.int32)
    kept = tuple(replace(made[one], index=index) for index, one in enumerate(used))
    return kept, tuple(number[column] for column in columns)
