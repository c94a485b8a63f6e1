"""Tests whether a counter changed between two sets of runs, and corrects for the number of counters.

Counters vary from run to run by far more than a Poisson count (docs/experiments.md has figures), so the variance of a mean
is that of the runs, with `USUAL_CV` where a side has too few to show it. The order of the runs, and for a counter that one
side does not have its presence, is tested, too (Fisher's exact test). Pure.
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
    if np.array_equal(a, b):
        return CountChange(*means, 1.0, 1.0, 1.0, 1.0)
    if paired and len(a) >= LEAST_PAIRS and a.all() and b.all():
        gaps = np.log(b / a)
        gap, variance, freedom = float(gaps.mean()), float(gaps.var(ddof=1)) / len(gaps), len(gaps) - 1.0
    else:
        # Half a count more for each side: rates and bytes are so large that it does not matter.
        gap = math.log((b.sum() + 0.5) / len(b)) - math.log((a.sum() + 0.5) / len(a))
        variance, freedom = _variance(a, b, usual_cv)
    error = math.sqrt(variance)
    reach = float(stdtrit(freedom, (1 + confidence) / 2)) * error
    p_value = 2 * float(stdtr(freedom, -abs(gap) / error)) if error else 0.0
    # A comparison looks for more in B; the other direction is tested as one of two.
    fewer, more, sides = (a, b, 1) if means[1] > means[0] else (b, a, 2)
    by_order = sides * separation(fewer, more)
    # A counter that comes and goes says nothing by its size where it is absent.
    p_value = min(p_value, by_order) if fewer.any() or more.all() else by_order
    ratios = math.exp(gap), math.exp(gap - reach), math.exp(gap + reach)
    return CountChange(*means, *ratios, min(p_value, 1.0))


def _variance(a: Floats, b: Floats, usual_cv: float) -> tuple[float, float]:
    """Return the variance of the logarithm of the ratio of both means, and its degrees of freedom.

    It is that of a count (Poisson), which is known, and that from run to run, which is estimated or assumed (Welch).
    """
    total, estimated = 0.0, 0.0
    for values in (a, b):
        mean, runs = float(values.mean()), len(values)
        total += 1 / (float(values.sum()) + 0.5)
        if runs < LEAST_PAIRS:
            total += usual_cv**2 / runs
        elif mean:
            between = float(values.var(ddof=1)) / mean**2 / runs
            total += between
            estimated += between**2 / (runs - 1)
    return total, min(total**2 / estimated, NORMAL_FREEDOM) if estimated else NORMAL_FREEDOM


def separation(fewer: Floats, more: Floats) -> float:
    """Return the probability that the runs of both sides fall into this order by chance (Fisher's exact test, one-sided).

    Either all runs of `more` have more than any of `fewer`, or `fewer` has none at all and some of `more` have some;
    1 for any other order.
    """
    if more.min() > fewer.max():
        return 1 / comb(len(fewer) + len(more), len(more))
    hits = int((more > 0).sum())
    return 1.0 if fewer.any() else comb(len(more), hits) / comb(len(fewer) + len(more), hits)


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
