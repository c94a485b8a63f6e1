"""Bounds of the functions of `evaluation.aggregate` if each row lies between two bounds. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.results.verdict.evaluation import SHARES, aggregate

if TYPE_CHECKING:
    from numpy.typing import NDArray

_RISING: Final = frozenset({"min", "max", "sum", "mean", *SHARES})
"""Functions that are monotonically increasing in every row."""


def aggregate_bounds(
    function: str, low: NDArray[np.float64], high: NDArray[np.float64]
) -> tuple[float, float]:
    """Return the bounds of `aggregate(function, rows)` for all rows between `low` and `high` (float64, one value a row).

    (NaN, NaN) without rows or if a bound is NaN.
    """
    if not low.size or np.isnan(low).any() or np.isnan(high).any():
        return math.nan, math.nan
    if np.array_equal(low, high):
        exact = aggregate(function, low)
        return exact, exact
    if function in _RISING:
        with np.errstate(invalid="ignore"):
            ends = aggregate(function, low), aggregate(function, high)
        return (-math.inf, math.inf) if any(map(math.isnan, ends)) else ends
    if (low < 0).any():
        return -math.inf, math.inf
    if not np.isfinite(high).all():
        rows = float(low.size)
        return {"jain": (1 / rows, 1.0), "cv": (0.0, math.sqrt(rows)), "max_to_mean": (1.0, rows)}[function]
    if function == "max_to_mean":
        most = float(high.max()) / float(low.mean()) if low.mean() > 0 else math.inf
        return max(float(low.max()) / float(high.mean()), 1.0), min(most, float(low.size))
    least, most = cv_bounds(low, high)
    if function == "cv":
        return least, most
    # Jain's index is 1 / (1 + cv^2), where cv uses the variance over n; `cv_bounds` uses n - 1.
    share = (low.size - 1) / low.size
    return max(1 / (1 + share * most**2), 1 / low.size), 1 / (1 + share * least**2)


def cv_bounds(low: NDArray[np.float64], high: NDArray[np.float64]) -> tuple[float, float]:
    """Return the bounds of the coefficient of variation for all rows between `low` and `high`, which must not be
    negative.

    Subtracting the mean is a projection, so the deviation changes by at most the norm of the change of the rows. (NaN,
    NaN) for fewer than two rows.
    """
    count = low.size
    if count < 2 or not high.any():
        return math.nan, math.nan
    middle = (low + high) / 2
    most_shift = float(np.linalg.norm((high - low) / 2)) / math.sqrt(count - 1)
    deviation = float(middle.std(ddof=1))
    least_mean = float(low.mean())
    # The largest value for n non-negative numbers is sqrt(n): all but one are zero.
    most = (
        min((deviation + most_shift) / least_mean, math.sqrt(count)) if least_mean > 0 else math.sqrt(count)
    )
    return max(deviation - most_shift, 0.0) / float(high.mean()), most
