"""Tests whether one mean differs from another, given few values: confidence intervals, and the outcome that follows.

Decides the statistics (docs/experiments.md has them with their measured false alarm rates). Runs are independent of each
other; iterations of one run are not, and are modelled as a first-order autoregressive process (AR(1)). Pure.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.special import stdtr, stdtrit

from etloop.contract.base.late_dataclass import dataclass
from etloop.results.schema.comparison import Basis, Outcome

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEAST_ITERATIONS: Final = 5
"""Least iterations of a single run: with fewer, neither variance nor autocorrelation can be estimated."""
LEAST_PAIRS: Final = 3
"""Least pairs for which an interval is shown: the deviation of two values is hardly known."""
WIDEST: Final = 10.0
"""Greatest ratio between the ends of an interval that is shown."""
MOST_NEEDED: Final = 100
"""Greatest number of further runs that is predicted."""
NORMAL_FREEDOM: Final = 1e9
"""Degrees of freedom that are as good as infinitely many, which the library's functions do not accept."""
_MOST_CORRELATION: Final = 0.98
POWER: Final = 0.8
"""Probability with which a change of the stated size is to be found."""


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean and its uncertainty. Variances are relative to the squared mean if the comparison is relative."""

    value: float
    variance: float
    """Variance of the mean; infinite if not known."""
    freedom: float
    """Degrees of freedom of that variance; infinite if it is given and not estimated."""
    count: int
    """Number of values."""
    basis: Basis
    cv: float | None
    """Standard deviation of the values / their mean; None for a single value."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Difference of B from A, with its interval."""

    change: float
    """B / A - 1, or B - A in the figure's own unit if A and B are not both above 0."""
    low: float
    """Lower bound of its interval; both bounds are infinite if not known."""
    high: float
    """Bounds of its interval; infinite if not known."""
    confidence: float
    """Confidence level of the interval."""
    p_value: float
    """Probability of a difference at least as large if there is none; 1 if not known."""
    relative: bool
    count: int = 0
    """Pairs, or runs of the side that has fewer; 0 for the iterations of single runs."""
    deviation: float = math.nan
    """Standard deviation of the difference between one run of each side, of its logarithm if `relative`; NaN if not known."""
    is_paired: bool = False
    smallest_found: float = math.inf
    """Smallest change, as `change`, that the test finds with a probability of `POWER`; infinite if not known."""


def mean_of_runs(values: NDArray[np.float64], *, relative: bool) -> Mean:
    """Return the mean over runs, one value each. If `relative`, values must be above 0 and the mean is the geometric one.

    The mean of a single value has infinite variance.
    """
    scaled = np.log(values) if relative else values
    mean = float(scaled.mean())
    value = math.exp(mean) if relative else mean
    if len(values) < 2:
        return Mean(value, math.inf, 1.0, 1, Basis.NOTHING, None)
    variance = float(scaled.var(ddof=1)) / len(values)
    return Mean(value, variance, len(values) - 1.0, len(values), Basis.RUNS, variation(values))


def mean_of_iterations(values: NDArray[np.float64], between_runs: float) -> Mean:
    """Return the mean of the iterations of one run, all above 0; `between_runs` is the variation (CV) to assume between
    runs.

    The variance is that of the effective number of independent values, n (1 - r) / (1 + r), where neighbours correlate by
    r (AR(1)). r is estimated, and raised by its known bias, (1 + 3 r) / n (Kendall 1954).
    """
    count = len(values)
    mean = float(values.mean())
    if count < LEAST_ITERATIONS:
        return Mean(mean, math.inf, 1.0, count, Basis.NOTHING, variation(values))
    effective_count = independent_count(values)
    within = float(values.var(ddof=1)) / effective_count / mean**2
    allowed = between_runs**2
    variance = within + allowed
    # Welch-Satterthwaite; the allowance is given, not estimated.
    freedom = (effective_count - 1) * (variance / within) ** 2 if within > 0 else math.inf
    return Mean(mean, variance, freedom, count, Basis.ITERATIONS, variation(values))


def independent_count(values: NDArray[np.float64]) -> float:
    """Return the effective number of independent values, at least 2."""
    count = len(values)
    off = values - values.mean()
    total = float((off**2).sum())
    if total <= 0:
        return float(count)
    raw = float((off[1:] * off[:-1]).sum()) / total
    correlation = min(max(raw + (1 + 3 * max(raw, 0.0)) / count, 0.0), _MOST_CORRELATION)
    return max(count * (1 - correlation) / (1 + correlation), 2.0)


def variation(values: NDArray[np.float64]) -> float | None:
    """Return standard deviation (n - 1) / mean; None for fewer than two values or a mean of 0."""
    mean = float(values.mean())
    return float(values.std(ddof=1)) / abs(mean) if len(values) > 1 and mean else None


def difference(a: Mean, b: Mean, confidence: float, *, relative: bool) -> Difference:
    """Return the difference of B from A by Welch's t test; of logarithms if `relative`, so that the interval is of their
    ratio."""
    gap = math.log(b.value / a.value) if relative else b.value - a.value
    variance = a.variance + b.variance
    if math.isinf(variance):
        return Difference(_to_change(gap, relative), -math.inf, math.inf, confidence, 1.0, relative)
    runs = min(a.count, b.count) if {a.basis, b.basis} == {Basis.RUNS} else 0
    # Treat both sides as having as many runs as the smaller one.
    spread = (runs, math.sqrt(variance * runs), False)
    freedom_terms = sum(mean.variance**2 / mean.freedom for mean in (a, b) if mean.variance > 0)
    freedom = variance**2 / freedom_terms if freedom_terms > 0 else math.inf
    return _interval((gap, variance, freedom), confidence, relative, spread)


def difference_of_pairs(
    a: NDArray[np.float64], b: NDArray[np.float64], confidence: float, *, relative: bool
) -> Difference:
    """Return the difference of paired runs, `a[i]` and `b[i]`, by Student's t test of the pairwise differences."""
    gaps = np.log(b / a) if relative else b - a
    mean = float(gaps.mean())
    if len(gaps) < 2:
        change = _to_change(mean, relative)
        return Difference(change, -math.inf, math.inf, confidence, 1.0, relative, 1, is_paired=True)
    variance = float(gaps.var(ddof=1))
    spread = (len(gaps), math.sqrt(variance), True)
    return _interval((mean, variance / len(gaps), len(gaps) - 1.0), confidence, relative, spread)


def _interval(
    gap_of: tuple[float, float, float], confidence: float, relative: bool, spread: tuple[int, float, bool]
) -> Difference:
    """Return the difference with its interval. `gap_of`: difference, its variance and degrees of freedom; `spread`: last
    three fields of `Difference`."""
    gap, variance, freedom = gap_of
    if variance <= 0:
        change = _to_change(gap, relative)
        p_value = 1.0 if gap == 0 else 0.0
        return Difference(change, change, change, confidence, p_value, relative, *spread)
    freedom = min(freedom, NORMAL_FREEDOM)
    error = math.sqrt(variance)
    reach = float(stdtrit(freedom, (1 + confidence) / 2)) * error
    p_value = min(2 * float(stdtr(freedom, -abs(gap) / error)), 1.0)
    return Difference(
        _to_change(gap, relative),
        _to_change(gap - reach, relative),
        _to_change(gap + reach, relative),
        confidence,
        p_value,
        relative,
        *spread,
        smallest_found=_to_change(reach + float(stdtrit(freedom, POWER)) * error, relative),
    )


def is_shown(difference: Difference, size: float) -> bool:
    """Return whether its interval is informative: from at least three pairs, and at most a factor of ten wide.

    `size`: the greater of both means, which limits the interval of a difference in a figure's own unit.
    """
    if difference.low == difference.high:
        return True
    if not (math.isfinite(difference.low) and math.isfinite(difference.high)):
        return False
    if difference.is_paired and difference.count < LEAST_PAIRS:
        return False
    if not difference.relative:
        return difference.high - difference.low <= WIDEST * size
    return 1 + difference.high <= WIDEST * (1 + difference.low)


def more_needed(difference: Difference, least_effect: float) -> int | None:
    """Return how many more runs of each side would likely give a decision, from the present deviation; None if more than
    `MOST_NEEDED`.

    As many as find the present change, or, if it is too small to matter, exclude every relevant one, with `POWER`.
    """
    fewest = max(LEAST_PAIRS - max(difference.count, 1), 1)
    if not math.isfinite(difference.deviation):
        return fewest
    gap = abs(math.log1p(difference.change)) if difference.relative else abs(difference.change)
    least = math.log1p(least_effect) if difference.relative else least_effect
    wanted_gap = gap if gap >= least else least - gap
    for runs in range(difference.count + fewest, MOST_NEEDED + difference.count + 1):
        freedom = runs - 1.0 if difference.is_paired else 2 * runs - 2.0
        reach = float(stdtrit(freedom, (1 + difference.confidence) / 2)) + float(stdtrit(freedom, POWER))
        if reach * difference.deviation < wanted_gap * math.sqrt(runs):
            return runs - difference.count
    return None


def open_words(difference: Difference, least_effect: float) -> str:
    """Return how many runs an inconclusive difference has, and how many more it needs, in short."""
    more = more_needed(difference, least_effect)
    count = max(difference.count, 1)
    thing = "pair" if difference.is_paired else "run"
    many = f"about {more}" if more is not None else f"more than {MOST_NEEDED}"
    return f"inconclusive: {count} {thing}{'s' if count > 1 else ''}, {many} more needed"


def outcome(difference: Difference, least_effect: float, *, less_is_better: bool) -> Outcome:
    """Return the outcome of a difference. `least_effect` is the smallest relevant change, in the unit of `found.change`.

    A regression or an improvement has a certain sign and is at least that large; no difference is certain to be smaller;
    not worse is certain to be no regression of that size.
    """
    certain = difference.low > 0 or difference.high < 0
    if certain and abs(difference.change) >= least_effect:
        return Outcome.REGRESSION if (difference.change > 0) == less_is_better else Outcome.IMPROVEMENT
    small = -least_effect < difference.low and difference.high < least_effect
    if small or difference.low == difference.high == 0:
        return Outcome.ALIKE
    return (
        Outcome.NOT_WORSE
        if surely_no_regression(difference, least_effect, less_is_better=less_is_better)
        else Outcome.OPEN
    )


def surely_no_regression(difference: Difference, least_effect: float, *, less_is_better: bool) -> bool:
    """Return whether B is certain not to be worse by `least_effect` or more."""
    return difference.high < least_effect if less_is_better else difference.low > -least_effect


def _to_change(gap: float, relative: bool) -> float:
    """Return a difference of logarithms as a relative change; other differences unchanged."""
    if not relative:
        return gap
    return math.expm1(gap) if gap < 700 else math.inf
