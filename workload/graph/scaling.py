"""How bytes shrink: `scale.bytes` of a scenario applied to operations and to the splits of uneven all-to-alls.

Decides the rounding. Sizes stay multiples of one fp32 and what was sent is still sent, so a scaled job has the
messages, the order and nearly the proportions of the whole one.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Final

import numpy as np
from etloop.workload.graph.splits import SplitMatrices
from etloop.workload.trace.trace import CollectiveKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

_WORD_BYTES: Final = 4
"""Scaled sizes stay multiples of one fp32, so that no operation ends up with a torn element."""

_SPLIT: Final = (CollectiveKind.ALL_TO_ALL, CollectiveKind.REDUCE_SCATTER)
"""Collectives that cut their payload into one part a member; parts stay whole words too."""


def scaled_bytes(size_bytes: int, scale: Fraction, unit_bytes: int) -> int:
    """`size_bytes` shrunk to whole units, never to nothing: what was sent is still sent. Scale 1 changes nothing."""
    if scale == 1 or size_bytes == 0:
        return size_bytes
    return max(unit_bytes, int(size_bytes * scale // unit_bytes) * unit_bytes)


def scaled_column(
    size_bytes: NDArray[np.int64], collective: NDArray[np.int8], members: NDArray[np.int64], scale: Fraction
) -> NDArray[np.int64]:
    """The sizes of operations, shrunk; `members` is how many ranks take part in each."""
    if scale == 1 or not len(size_bytes):
        return size_bytes
    unit_bytes = np.where(np.isin(collective, _SPLIT), _WORD_BYTES * members, _WORD_BYTES)
    # A barrier's payload is ours, not the trace's.
    sized = collective != CollectiveKind.BARRIER
    distinct, inverse = np.unique(np.stack([size_bytes, unit_bytes], axis=1), axis=0, return_inverse=True)
    scaled = np.array([scaled_bytes(size, scale, unit) for size, unit in distinct.tolist()], dtype=np.int64)
    return np.where(sized, scaled[inverse.reshape(-1)], size_bytes)


def scaled_splits(splits: SplitMatrices, scale: Fraction) -> SplitMatrices:
    """Every entry shrunk by itself, so that what is sent from i to j stays what j expects; matrices that become equal
    are one. An operation's size is the sum of its scaled entries."""
    if scale == 1 or not splits.matrices:
        return splits
    index_of: dict[bytes, int] = {}
    matrices: list[NDArray[np.int64]] = []
    renumbered = []
    for matrix in splits.matrices:
        distinct, inverse = np.unique(matrix, return_inverse=True)
        scaled = np.array([scaled_bytes(entry, scale, _WORD_BYTES) for entry in distinct.tolist()], np.int64)
        shrunk = scaled[inverse.reshape(matrix.shape)]
        index = index_of.setdefault(shrunk.tobytes(), len(matrices))
        if index == len(matrices):
            matrices.append(shrunk)
        renumbered.append(index)
    of_item = np.array([*renumbered, -1], np.int32)[splits.of_item]
    return replace(splits, matrices=tuple(matrices), of_item=of_item)
