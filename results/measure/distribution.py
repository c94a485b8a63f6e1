"""Multisets of integers for percentiles over more values than memory holds: each distinct value once, with its count.

Exact up to `MOST_DISTINCT` distinct values; beyond that, values are rounded down to their 20 leading bits (one part in a
million), while the least, the greatest and the sum stay exact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_DISTINCT: Final = 1 << 20
"""16 MiB of values and counts."""
_LEADING_BITS: Final = 20


def nearest_rank(ordered: NDArray[np.int64], percent: int) -> int:
    """Return the smallest value that is at least as large as `percent` % of the values; `ordered` is ascending and not
    empty."""
    assert 0 < percent <= 100
    return int(ordered[-(-len(ordered) * percent // 100) - 1])


class Distribution:
    """A multiset of integers with its percentiles, extremes and sum."""

    def __init__(self) -> None:
        self.count = 0
        self.total = 0
        self._least = self._greatest = 0
        self._values = np.empty(0, np.int64)
        self._counts = np.empty(0, np.int64)
        self._is_coarse = False

    def add(self, numbers: NDArray[np.int64]) -> None:
        """Add numbers, in any order."""
        if not len(numbers):
            return
        least, greatest = int(numbers.min()), int(numbers.max())
        self._least = min(self._least, least) if self.count else least
        self._greatest = max(self._greatest, greatest) if self.count else greatest
        self.count += len(numbers)
        self.total += int(numbers.sum())
        values, counts = np.unique(_round_down(numbers) if self._is_coarse else numbers, return_counts=True)
        self._merge(values, counts)

    def percentile(self, percent: int) -> int:
        """Return the smallest number that is at least as large as `percent` % of all numbers; there must be at least one."""
        assert 0 < percent <= 100
        assert self.count
        rank = -(-self.count * percent // 100)
        if rank == self.count:
            return self._greatest
        value = int(self._values[np.searchsorted(np.cumsum(self._counts), rank)])
        return max(value, self._least)

    @property
    def least(self) -> int:
        """Return the least number; there must be at least one."""
        assert self.count
        return self._least

    @property
    def greatest(self) -> int:
        """Return the greatest number; there must be at least one."""
        assert self.count
        return self._greatest

    def _merge(self, values: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
        self._values, self._counts = _merged_counts(
            np.concatenate([self._values, values]), np.concatenate([self._counts, counts])
        )
        if len(self._values) > MOST_DISTINCT and not self._is_coarse:
            self._is_coarse = True
            self._values, self._counts = _merged_counts(_round_down(self._values), self._counts)


def _merged_counts(
    values: NDArray[np.int64], counts: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return every value once, ascending, with the sum of its counts."""
    order = np.argsort(values, kind="stable")
    values, counts = values[order], counts[order]
    first = np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1]]))
    return values[first], np.add.reduceat(counts, first)


def _round_down(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the numbers with all but their `_LEADING_BITS` leading bits cleared, toward zero."""
    size = np.abs(numbers)
    _, bits = np.frexp(size.astype(np.float64))
    shift = np.maximum(bits - _LEADING_BITS, 0).astype(np.int64)
    return np.asarray(np.sign(numbers) * ((size >> shift) << shift), np.int64)
