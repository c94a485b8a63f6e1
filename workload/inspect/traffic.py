"""Computes how many bytes each rank sends to each other in one pass over a job, if every collective ran as a ring.

Decides the closed forms: all-reduce moves 2 S (n-1) in all, all-gather S n (n-1), reduce-scatter, broadcast, reduce
and all-to-all S (n-1) for n members and size S as the trace states it. The bytes of a real run depend on the chosen
algorithms and are in its plan. Exact: remainders of a division go to the first members, so totals are whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.workload.trace.program import OpKind
from etloop.workload.trace.trace import CollectiveKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.workload.graph.analysis import Analysis

MAX_CELLS_A_SIDE: Final = 1024
"""Limit of rows of the matrix (8 MiB). Larger jobs are reported in blocks of neighbouring ranks."""


@dataclass(frozen=True, slots=True)
class KindBytes:
    """Totals of one kind of operation on one communicator."""

    kind: CollectiveKind
    operations: int
    payload_bytes: int
    """Sum of the sizes that one member puts in."""
    wire_bytes: int
    """Sum of the bytes that all members send."""


@dataclass(frozen=True, slots=True, eq=False)
class Traffic:
    """Bytes of a job by communicator and by pair."""

    by_communicator: tuple[tuple[KindBytes, ...], ...]
    """In the order of `Analysis.communicators`."""
    sends: int
    send_bytes: int
    distances: dict[int, int]
    """Number of point-to-point messages by distance (receiver minus sender)."""
    ranks_a_cell: int
    matrix: NDArray[np.int64]
    """Bytes from block of ranks (row) to block of ranks (column), int64 [side, side]."""


def traffic_of(analysis: Analysis) -> Traffic:
    """Sum the operations of a trace by communicator and by pair. Operations with a mistake of their own are left out."""
    world = len(analysis.trace.ranks)
    ranks_a_cell = max(1, -(-world // MAX_CELLS_A_SIDE))
    side = -(-world // ranks_a_cell)
    pairs = _Pairs(np.zeros((side, side), dtype=np.int64), ranks_a_cell)
    by_communicator = []
    for communicator in analysis.communicators:
        members = np.array([member for member in communicator.members if 0 <= member < world], dtype=np.int64)
        by_communicator.append(_collectives(analysis, communicator.index, members, pairs))
    sends, send_bytes, distances = _messages(analysis, pairs)
    return Traffic(tuple(by_communicator), sends, send_bytes, distances, ranks_a_cell, pairs.matrix)


@dataclass(frozen=True, slots=True, eq=False)
class _Pairs:
    """The matrix while it is filled. Each method returns the number of bytes added."""

    matrix: NDArray[np.int64]
    ranks_a_cell: int

    def add(self, src: NDArray[np.int64], dst: NDArray[np.int64], size_bytes: NDArray[np.int64]) -> int:
        """Add `size_bytes` of each (src, dst) pair; all three are int64 arrays of one length."""
        np.add.at(self.matrix, (src // self.ranks_a_cell, dst // self.ranks_a_cell), size_bytes)
        return int(size_bytes.sum())

    def add_exchange(self, members: NDArray[np.int64], size_bytes: int) -> int:
        """Add an even all-to-all in which every member puts in `size_bytes`."""
        parts = _parts(size_bytes, len(members))
        cells = members // self.ranks_a_cell
        senders = np.bincount(cells, minlength=len(self.matrix))
        received_bytes = np.zeros(len(self.matrix), dtype=np.int64)
        np.add.at(received_bytes, cells, parts)
        used_cells = np.unique(cells)
        self.matrix[np.ix_(used_cells, used_cells)] += (
            senders[used_cells][:, None] * received_bytes[used_cells][None, :]
        )
        np.add.at(self.matrix, (cells, cells), -parts)
        return size_bytes * (len(members) - 1)

    def add_uneven(self, members: NDArray[np.int64], entry_bytes: NDArray[np.int64]) -> int:
        """Add an all-to-all in which position i sends `entry_bytes[i, j]` to position j. The diagonal is not sent."""
        sent_bytes = entry_bytes.copy()
        np.fill_diagonal(sent_bytes, 0)
        src, dst = np.meshgrid(members, members, indexing="ij")
        return self.add(src.reshape(-1), dst.reshape(-1), sent_bytes.reshape(-1))


def _parts(total: int, count: int) -> NDArray[np.int64]:
    """Split `total` into `count` parts that differ by at most one, larger parts first."""
    return total // count + (np.arange(count) < total % count).astype(np.int64)


def _collectives(
    analysis: Analysis, index: int, members: NDArray[np.int64], pairs: _Pairs
) -> tuple[KindBytes, ...]:
    if not len(members):
        return ()
    first = int(members[0])
    ops = analysis.ops[first]
    on_communicator = (analysis.communicator_of[first] == index) & ops.sound
    kind_bytes = []
    for kind in np.unique(ops.collective[on_communicator]).tolist():
        ops_of_kind = np.flatnonzero(on_communicator & (ops.collective == kind))
        moves = kind != CollectiveKind.BARRIER
        payload_bytes = int(ops.size_bytes[ops_of_kind].sum()) if moves else 0
        wire_bytes = 0
        if len(members) > 1 and moves:
            matrix = _matrix_of(analysis, first, ops_of_kind)
            even_bytes = ops.size_bytes[ops_of_kind[matrix < 0]]
            wire_bytes = _add_ring(CollectiveKind(kind), members, int(even_bytes.sum()), pairs)
            for matrix_index, repeats in zip(
                *np.unique(matrix[matrix >= 0], return_counts=True), strict=True
            ):
                wire_bytes += pairs.add_uneven(members, analysis.splits.matrices[matrix_index] * repeats)
        kind_bytes.append(KindBytes(CollectiveKind(kind), len(ops_of_kind), payload_bytes, wire_bytes))
    return tuple(kind_bytes)


def _matrix_of(analysis: Analysis, rank: int, at: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the split matrix index of each operation of a rank, negative where it splits evenly."""
    if not len(analysis.splits.of_item):
        return np.full(len(at), -1, dtype=np.int64)
    return analysis.splits.of_item[analysis.matching.item[rank][at]].astype(np.int64)


def _add_ring(kind: CollectiveKind, members: NDArray[np.int64], size_bytes: int, pairs: _Pairs) -> int:
    count = len(members)
    next_members = np.roll(members, -1)
    match kind:
        case CollectiveKind.ALL_REDUCE:
            return pairs.add(members, next_members, _parts(2 * size_bytes * (count - 1), count))
        case CollectiveKind.REDUCE_SCATTER | CollectiveKind.REDUCE_SCATTER_BLOCK:
            return pairs.add(members, next_members, _parts(size_bytes * (count - 1), count))
        case CollectiveKind.ALL_GATHER:
            return pairs.add(members, next_members, np.full(count, size_bytes * (count - 1), dtype=np.int64))
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
        is_send = (ops.kind == OpKind.SEND) & ops.sound
        src, dst, size_bytes = ops.src[is_send], ops.dst[is_send], ops.size_bytes[is_send]
        pairs.add(src, dst, size_bytes)
        count += len(src)
        total += int(size_bytes.sum())
        values, counts = np.unique(dst - src, return_counts=True)
        for value, repeats in zip(values.tolist(), counts.tolist(), strict=True):
            distances[value] = distances.get(value, 0) + repeats
    return count, total, distances
