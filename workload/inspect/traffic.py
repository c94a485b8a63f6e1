"""Which rank sends how much to which in one pass over a job, if every collective ran as a ring.

Decides the closed forms: all-reduce moves 2 S (n-1) in all, all-gather S n (n-1), reduce-scatter, broadcast, reduce and
all-to-all S (n-1) for n members and size S as a trace states it. What a run really sends depends on the algorithms it
chooses, and is in its plan. Exact: remainders of a division go to the first members, so totals are whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from etloop.workload.trace.program import OpKind
from etloop.workload.trace.trace import CollectiveKind

if TYPE_CHECKING:
    from etloop.workload.graph.analysis import Analysis
    from numpy.typing import NDArray

MAX_CELLS_A_SIDE: Final = 1024
"""Ranks of a larger job are told in blocks of neighbours: the matrix stays at 8 MiB."""


@dataclass(frozen=True, slots=True)
class KindBytes:
    """All operations of one kind on one communicator."""

    kind: CollectiveKind
    operations: int
    payload_bytes: int
    """Sum of what one member puts in."""
    wire_bytes: int
    """Sum of what all members send."""


@dataclass(frozen=True, slots=True, eq=False)
class Traffic:
    """Bytes of a job by communicator and by pair."""

    by_communicator: tuple[tuple[KindBytes, ...], ...]
    """In the order of `Analysis.communicators`."""
    sends: int
    send_bytes: int
    distances: dict[int, int]
    """Receiver minus sender of point-to-point messages, and how many there are."""
    ranks_a_cell: int
    matrix: NDArray[np.int64]
    """Bytes from block of ranks (row) to block of ranks (column)."""


def traffic_of(analysis: Analysis) -> Traffic:
    """Adds up the operations of a trace; those with a mistake of their own are left out."""
    world = len(analysis.trace.ranks)
    ranks_a_cell = max(1, -(-world // MAX_CELLS_A_SIDE))
    side = -(-world // ranks_a_cell)
    pairs = _Pairs(np.zeros((side, side), dtype=np.int64), ranks_a_cell)
    by_communicator = []
    for communicator in analysis.communicators:
        members = np.array([one for one in communicator.members if 0 <= one < world], dtype=np.int64)
        by_communicator.append(_collectives(analysis, communicator.index, members, pairs))
    sends, send_bytes, distances = _messages(analysis, pairs)
    return Traffic(tuple(by_communicator), sends, send_bytes, distances, ranks_a_cell, pairs.matrix)


@dataclass(frozen=True, slots=True, eq=False)
class _Pairs:
    """The matrix while it fills. Each addition returns how many bytes it was."""

    matrix: NDArray[np.int64]
    ranks_a_cell: int

    def add(self, src: NDArray[np.int64], dst: NDArray[np.int64], size_bytes: NDArray[np.int64]) -> int:
        np.add.at(self.matrix, (src // self.ranks_a_cell, dst // self.ranks_a_cell), size_bytes)
        return int(size_bytes.sum())

    def add_exchange(self, members: NDArray[np.int64], size_bytes: int) -> int:
        """An even all-to-all in which every member puts in `size_bytes`."""
        parts = _parts(size_bytes, len(members))
        cells = members // self.ranks_a_cell
        senders = np.bincount(cells, minlength=len(self.matrix))
        arriving = np.zeros(len(self.matrix), dtype=np.int64)
        np.add.at(arriving, cells, parts)
        used = np.unique(cells)
        self.matrix[np.ix_(used, used)] += senders[used][:, None] * arriving[used][None, :]
        np.add.at(self.matrix, (cells, cells), -parts)
        return size_bytes * (len(members) - 1)

    def add_uneven(self, members: NDArray[np.int64], entry_bytes: NDArray[np.int64]) -> int:
        """An all-to-all in which position i sends `entry_bytes[i, j]` to position j, and keeps what is on the diagonal."""
        moved = entry_bytes.copy()
        np.fill_diagonal(moved, 0)
        src, dst = np.meshgrid(members, members, indexing="ij")
        return self.add(src.reshape(-1), dst.reshape(-1), moved.reshape(-1))


def _parts(total: int, count: int) -> NDArray[np.int64]:
    """`total` in `count` parts that differ by at most one."""
    return total // count + (np.arange(count) < total % count).astype(np.int64)


def _collectives(
    analysis: Analysis, index: int, members: NDArray[np.int64], pairs: _Pairs
) -> tuple[KindBytes, ...]:
    if not len(members):
        return ()
    first = int(members[0])
    ops = analysis.ops[first]
    mine = (analysis.communicator_of[first] == index) & ops.sound
    found = []
    for kind in np.unique(ops.collective[mine]).tolist():
        at = np.flatnonzero(mine & (ops.collective == kind))
        moves = kind != CollectiveKind.BARRIER
        payload_bytes = int(ops.size_bytes[at].sum()) if moves else 0
        wire_bytes = 0
        if len(members) > 1 and moves:
            matrix = _matrix_of(analysis, first, at)
            even = ops.size_bytes[at[matrix < 0]]
            wire_bytes = _add_ring(CollectiveKind(kind), members, int(even.sum()), pairs)
            for used, times in zip(*np.unique(matrix[matrix >= 0], return_counts=True), strict=True):
                wire_bytes += pairs.add_uneven(members, analysis.splits.matrices[used] * times)
        found.append(KindBytes(CollectiveKind(kind), len(at), payload_bytes, wire_bytes))
    return tuple(found)


def _matrix_of(analysis: Analysis, rank: int, at: NDArray[np.int64]) -> NDArray[np.int64]:
    """Split matrix of each operation of a rank, negative where it splits evenly."""
    if not len(analysis.splits.of_item):
        return np.full(len(at), -1, dtype=np.int64)
    return analysis.splits.of_item[analysis.matching.item[rank][at]].astype(np.int64)


def _add_ring(kind: CollectiveKind, members: NDArray[np.int64], size_bytes: int, pairs: _Pairs) -> int:
    count = len(members)
    following = np.roll(members, -1)
    match kind:
        case CollectiveKind.ALL_REDUCE:
            return pairs.add(members, following, _parts(2 * size_bytes * (count - 1), count))
        case CollectiveKind.REDUCE_SCATTER | CollectiveKind.REDUCE_SCATTER_BLOCK:
            return pairs.add(members, following, _parts(size_bytes * (count - 1), count))
        case CollectiveKind.ALL_GATHER:
            return pairs.add(members, following, np.full(count, size_bytes * (count - 1), dtype=np.int64))
        case CollectiveKind.BROADCAST:
            return pairs.add(members[:-1], members[1:], np.full(count - 1, size_bytes, dtype=np.int64))
        case CollectiveKind.REDUCE:
            return pairs.add(members[1:], members[:-1], np.full(count - 1, size_bytes, dtype=np.int64))
        case CollectiveKind.ALL_TO_ALL:
            return pairs.add_exchange(members, size_bytes)
        case CollectiveKind.GATHER:
            root = np.full(count - 1, members[0], dtype=np.int64)
            return pairs.add(members[1:], root, np.full(count - 1, size_bytes, dtype=np.int64))
        case CollectiveKind.SCATTER:
            root = np.full(count - 1, members[0], dtype=np.int64)
            return pairs.add(root, members[1:], _parts(size_bytes, count)[1:])
        case CollectiveKind.BARRIER:
            return 0


def _messages(analysis: Analysis, pairs: _Pairs) -> tuple[int, int, dict[int, int]]:
    count, total, distances = 0, 0, dict[int, int]()
    for ops in analysis.ops:
        sent = (ops.kind == OpKind.SEND) & ops.sound
        src, dst, size_bytes = ops.src[sent], ops.dst[sent], ops.size_bytes[sent]
        pairs.add(src, dst, size_bytes)
        count += len(src)
        total += int(size_bytes.sum())
        values, counts = np.unique(dst - src, return_counts=True)
        for value, times in zip(values.tolist(), counts.tolist(), strict=True):
            distances[value] = distances.get(value, 0) + times
    return count, total, distances
