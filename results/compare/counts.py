"""Tests whether a counter changed between two sets of runs, and corrects for the number of counters.

Counters vary from run to run by far more than a Poisson count (docs/experiments.md has figures), so the variance of a mean
is that of the runs, with `USUAL_CV` where a side has too few to show it. A counter that is 0 in one side and not in the other
is also tested by the runs in which it is present (Fisher's exact test). Pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from math import comb
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.special import stdtr, stdtrit

from etloop.contract.base.late_dataclass import dataclass
from etloop.results.compare.statistics import LEAST_PAIRS, NORMAL_FREEDOM

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

USUAL_CV: Final = 0.35
"""Variation between runs assumed for counters of packets where fewer than `LEAST_PAIRS` runs show it."""


@dataclass(frozen=True, slots=True)
class CountChange:
    """Change of a counter: ratio of the means over runs, B / A, each with half a count added."""

    a: float
    b: float
    ratio: float
    low: float
    """Bounds of the ratio."""
    high: float
    p_value: float
    """Probability of a change at least as large if there is none."""


def compare_counts(a: Floats, b: Floats, confidence: float, *, paired: bool, usual_cv: float) -> CountChange:
    """Return the change of a counter from the runs of A to those of B (float64, one value a run, at least 0).

    `paired`: `a[i]` and `b[i]` share their draws. `usual_cv`: variation between runs to assume for fewer than three.
    """
    means = float(a.mean()), float(b.mean())
    # Rates and bytes are so large that half a unit does not matter.
    gap = math.log((means[1] + 0.5) / (means[0] + 0.5))
    if np.array_equal(a, b):
        return CountChange(*means, 1.0, 1.0, 1.0, 1.0)
    if paired and len(a) >= LEAST_PAIRS and a.all() and b.all():
        gaps = np.log(b / a)
        gap, variance, freedom = float(gaps.mean()), float(gaps.var(ddof=1)) / len(gaps), len(gaps) - 1.0
    else:
        sides = [_relative_variance(values, usual_cv) for values in (a, b)]
        variance = sum(of_side for of_side, _ in sides)
        estimated = sum(of_side**2 / freedom for of_side, freedom in sides if freedom)
        freedom = min(variance**2 / estimated, NORMAL_FREEDOM) if estimated else NORMAL_FREEDOM
    error = math.sqrt(variance)
    reach = float(stdtrit(freedom, (1 + confidence) / 2)) * error
    by_ratio = min(2 * float(stdtr(freedom, -abs(gap) / error)), 1.0) if error else 0.0
    return CountChange(
        *means, math.exp(gap), math.exp(gap - reach), math.exp(gap + reach), min(by_ratio, presence(a, b))
    )


def _relative_variance(values: Floats, usual_cv: float) -> tuple[float, float]:
    """Return the variance of the logarithm of the mean, and its degrees of freedom; 0: it is assumed."""
    mean, runs = float(values.mean()), len(values)
    counted = 1 / (runs * mean + 0.5)
    if runs < LEAST_PAIRS:
        return counted + usual_cv**2 / runs, 0.0
    return counted + float(values.var(ddof=1)) / (mean + 0.5) ** 2 / runs, runs - 1.0


def presence(a: Floats, b: Floats) -> float:
    """Return the probability that the runs with a counter above 0 fall on one side by chance; 1 if both sides have some."""
    if a.any() and b.any():
        return 1.0
    present = a if a.any() else b
    hits = int((present > 0).sum())
    return comb(len(present), hits) / comb(len(a) + len(b), hits)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected so that any false finding among them is as rare as each alone (Holm 1979)."""
    corrected, largest = [1.0] * len(p_values), 0.0
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    for rank, number in enumerate(order):
        largest = max(largest, min((len(order) - rank) * p_values[number], 1.0))
        corrected[number] = largest
    return corrected


def false_discovery(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for the share of false ones among the findings (Benjamini and Hochberg 1995)."""
    corrected, least = [1.0] * len(p_values), 1.0
    order = sorted(range(len(p_values)), key=p_values.__getitem__, reverse=True)
    for rank, number in enumerate(order):
        least = min(least, p_values[number] * len(order) / (len(order) - rank))
        corrected[number] = least
    return corrected
