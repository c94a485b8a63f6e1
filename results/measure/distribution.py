"""Counts of whole numbers, for percentiles over more of them than memory holds: each value once, with how often it came.

Exact up to `MOST_DISTINCT` different values; beyond that values are rounded down to their 20 leading bits, a part in a million,
but the least, the greatest and the sum stay exact.
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
    """The smallest value that at least `percent` % of the values do not exceed; `ordered` ascending, not empty."""
    assert 0 < percent <= 100
    return int(ordered[-(-len(ordered) * percent // 100) - 1])


class Distribution:
    """Numbers, as far as percentiles, extremes and their sum go."""

    def __init__(self) -> None:
        self.count = 0
        self.total = 0
        self._least = self._greatest = 0
        self._values = np.empty(0, np.int64)
        self._counts = np.empty(0, np.int64)
        self._is_coarse = False

    def add(self, numbers: NDArray[np.int64]) -> None:
        """Take more numbers, in any order."""
        if not len(numbers):
            return
        least, greatest = int(numbers.min()), int(numbers.max())
        self._least = min(self._least, least) if self.count else least
        self._greatest = max(self._greatest, greatest) if self.count else greatest
        self.count += len(numbers)
        self.total += int(numbers.sum())
        values, counts = np.unique(_rounded(numbers) if self._is_coarse else numbers, return_counts=True)
        self._merge(values, counts)

    def percentile(self, percent: int) -> int:
        """Return the smallest number that at least `percent` % of all do not exceed; there must be one."""
        assert 0 < percent <= 100
        assert self.count
        place = -(-self.count * percent // 100)
        if place == self.count:
            return self._greatest
        found = int(self._values[np.searchsorted(np.cumsum(self._counts), place)])
        return max(found, self._least)

    @property
    def least(self) -> int:
        """The least number; there must be one."""
        assert self.count
        return self._least

    @property
    def greatest(self) -> int:
        """The greatest number; there must be one."""
        assert self.count
        return self._greatest

    def _merge(self, values: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
        self._values, self._counts = _added(
            np.concatenate([self._values, values]), np.concatenate([self._counts, counts])
        )
        if len(self._values) > MOST_DISTINCT and not self._is_coarse:
            self._is_coarse = True
            self._values, self._counts = _added(_rounded(self._values), self._counts)


def _added(
    values: NDArray[np.int64], counts: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return every value once, ascending, with the sum of its counts."""
    order = np.argsort(values, kind="stable")
    values, counts = values[order], counts[order]
    first = np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1]]))
    return values[first], np.add.reduceat(counts, first)


def _rounded(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the numbers with all but their leading bits cleared; toward zero."""
    size = np.abs(numbers)
    _, bits = np.frexp(size.astype(np.float64))
    shift = np.maximum(bits - _LEADING_BITS, 0).astype(np.int64)
    return np.asarray(np.sign(numbers) * ((size >> shift) << shift), np.int64)
