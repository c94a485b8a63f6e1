"""Split sizes put on traces written by hand, and every trace whose splits are wrong in exactly one way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from etloop.workload.trace.findings import Check
from etloop.workload.trace.trace import CollectiveKind, RankTrace, Rows, Trace
from tests.support.traces.traces_by_hand import all_reduce, collective, trace_of

Matrix = tuple[tuple[int, ...], ...]
Sizes = Mapping[tuple[int, int], tuple[int, ...]]
"""(rank, node id) -> bytes to, or from, each member."""


def with_splits(trace: Trace, sends: Sizes, receives: Sizes | None = None) -> Trace:
    """The trace with split sizes on some nodes."""
    return replace(trace, ranks=tuple(_with_rows(rank, sends, receives or {}) for rank in trace.ranks))


def _with_rows(rank: RankTrace, sends: Sizes, receives: Sizes) -> RankTrace:
    return replace(rank, send_splits=_columns(rank, sends), recv_splits=_columns(rank, receives))


def _columns(rank: RankTrace, rows: Sizes) -> Rows[np.int64] | None:
    of_node = [rows.get((rank.rank, node), ()) for node in rank.node_id.tolist()]
    if not any(of_node):
        return None
    offsets = np.cumsum([0, *map(len, of_node)]).astype(np.int64)
    return Rows(offsets, np.array([entry for row in of_node for entry in row], np.int64))


def all_to_all_v(*matrices: Matrix, sized: bool = True, received: bool = False) -> Trace:
    """Uneven all-to-alls one after another on all ranks; node k runs matrix k - 1."""
    size = len(matrices[0])
    nodes = []
    for rank in range(size):
        own = [
            collective(k + 1, CollectiveKind.ALL_TO_ALL, sum(matrix[rank]))
            for k, matrix in enumerate(matrices)
        ]
        nodes.append([node if sized else node.without("comm_size") for node in own])
    sends = {(rank, k + 1): row for k, matrix in enumerate(matrices) for rank, row in enumerate(matrix)}
    expects = {
        (rank, k + 1): tuple(row[rank] for row in matrix)
        for k, matrix in enumerate(matrices)
        for rank in range(size)
    }
    return with_splits(trace_of(*nodes), sends, expects if received else None)


PAIR: Final[Matrix] = ((4, 8), (16, 32))

SPLIT_ERRORS: Final[tuple[tuple[Check, Trace, str], ...]] = (
    (
        Check.SPLIT_KIND,
        with_splits(trace_of([all_reduce(1, 12)], [all_reduce(1, 12)]), {(1, 1): (4, 8)}),
        (
            'hand/w.1.et: rank 1 node 1 "all_reduce1": expected split sizes on ALL_TO_ALL or REDUCE_SCATTER alone, found '
            "split sizes on comm_type 0; remove the split sizes: this collective has none"
        ),
    ),
    (
        Check.SPLIT_RANGE,
        with_splits(all_to_all_v(PAIR), {(0, 1): (13, -1), (1, 1): (16, 32)}),
        (
            'hand/w.0.et: rank 0 node 1 "all_to_all1": expected split sizes of 0 to 17592186044416 bytes, alone and '
            "together, found -1; correct the exporter"
        ),
    ),
    (
        Check.SPLIT_RANGE,
        with_splits(all_to_all_v(PAIR, sized=False), {(0, 1): (1 << 44, 1), (1, 1): (16, 32)}),
        "found 17592186044417; correct the exporter",
    ),
    (
        Check.SPLIT_SUM,
        with_splits(all_to_all_v(PAIR), {(0, 1): (4, 8), (1, 1): (16, 33)}),
        (
            'hand/w.1.et: rank 1 node 1 "all_to_all1": expected splits that add up to the 48 bytes of comm_size, found '
            "49 bytes; correct comm_size or the split sizes; both count the bytes that the rank sends, including those to itself"
        ),
    ),
    (
        Check.SPLIT_COUNT,
        with_splits(all_to_all_v(PAIR), {(0, 1): (4, 8), (1, 1): (16, 16, 16)}),
        (
            'hand/w.1.et: rank 1 node 1 "all_to_all1": expected 2 splits, one for each member of "world", found 3 splits; '
            "correct the split sizes, or the ranks of the communicator"
        ),
    ),
    (
        Check.SPLIT_DIFFERS,
        with_splits(all_to_all_v(PAIR), {(0, 1): (4, 8), (1, 1): (16, 32)}, {(1, 1): (9, 32)}),
        (
            'hand/w.1.et: rank 1 node 1 "all_to_all1": expected the 8 bytes that rank 0 node 1 "all_to_all1" sends to '
            "it, found 9 bytes; the sender's and the receiver's split sizes must agree: correct the split sizes"
        ),
    ),
)
SPLIT_CHECKS: Final = {*(check for check, _, _ in SPLIT_ERRORS), Check.SPLIT_VOLUME}
"""Errors that tests/workload/graph/test_splits.py causes."""
