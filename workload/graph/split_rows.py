"""Rows of an uneven all-to-all: what one rank says it sends to, or gets from, each member.

Decides how rows of many operations lie in one array. Whether they make sense is decided in `splits`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from etloop.workload.trace.trace import Rows

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class SplitRows:
    """A row of bytes per member for each of m operations, empty where an operation has none."""

    offsets: NDArray[np.int64]
    entry_bytes: NDArray[np.int64]

    @property
    def counts(self) -> NDArray[np.int64]:
        return np.diff(self.offsets)

    def sums(self) -> NDArray[np.int64]:
        """Bytes of each row, 0 for an empty one. Wraps for entries that are no sizes."""
        total = np.concatenate([np.zeros(1, np.int64), np.cumsum(self.entry_bytes)])
        return np.asarray(total[self.offsets[1:]] - total[self.offsets[:-1]], np.int64)

    def rows(self, at: NDArray[np.int64], members: int) -> NDArray[np.int64]:
        """The rows of some operations, all of `members` entries, one below the other."""
        return np.asarray(self.entry_bytes[self.offsets[at][:, None] + np.arange(members)], np.int64)


def rows_of(splits: Rows[np.int64] | None, node: NDArray[np.int64]) -> SplitRows | None:
    """The rows of the operations at `node`; None if none of them has one."""
    if splits is None:
        return None
    offsets, entry_bytes = splits.offsets, splits.values
    counts = np.diff(offsets)[node]
    if not counts.any():
        return None
    own = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]).astype(np.int64)
    within = np.arange(int(own[-1])) - np.repeat(own[:-1], counts)
    return SplitRows(own, entry_bytes[np.repeat(offsets[:-1][node], counts) + within])
