"""Whether one mean differs from another, from few values: intervals, and what may be called better, worse or alike.

Decides the statistics (docs/experiments.md has them with their measured rates of false alarm). Runs are independent of each
other; iterations of one run are not, and are taken as a chain of first order (AR(1)). Pure.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np
from etloop.contract.base.late_dataclass import dataclass
from etloop.results.schema.comparison import Basis, Outcome
from scipy.special import stdtr, stdtrit

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEAST_ITERATIONS: Final = 5
"""Of a single run: of fewer neither their variance nor how they hang together can be told."""
LEAST_PAIRS: Final = 3
"""Of fewer no interval is shown: the deviation of two is hardly known."""
WIDEST: Final = 10.0
"""Factor between the ends of an interval that is shown."""
MOST_NEEDED: Final = 100
"""More runs than that are not foretold."""
_MOST_CORRELATION: Final = 0.98


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean and how well it is known. Variances are relative to it, squared."""

    value: float
    variance: float
    """Of the mean; infinite if nothing is known of it."""
    freedom: float
    """Degrees of freedom of that variance; infinite where it is given and not estimated."""
    count: int
    """Values that it is the mean of."""
    basis: Basis
    cv: float | None
    """Standard deviation of the values / their mean; None for one."""


@dataclass(frozen=True, slots=True)
class Difference:
    """B against A."""

    change: float
    """B / A - 1, or B - A in the figure's own unit where A and B are not both above 0."""
    low: float
    high: float
    """Bounds of its interval; infinite where nothing is known."""
    confidence: float
    """Of the interval."""
    p_value: float
    """How likely a difference at least as large is when there is none; 1 where nothing is known."""
    relative: bool
    count: int = 0
    """Pairs, or runs of the side that has fewer; 0 where it is of the iterations of single runs."""
    deviation: float = math.nan
    """Standard deviation of what is between one run of each side: of the logarithm if `relative`; NaN: not known."""
    is_paired: bool = False


def mean_of_runs(values: NDArray[np.float64], *, relative: bool) -> Mean:
    """The mean over runs, one value each, which are above 0 if `relative`: then it is the geometric one.

    One value has a mean of which nothing more is known.
    """
    scaled = np.log(values) if relative else values
    mean = float(scaled.mean())
    value = math.exp(mean) if relative else mean
    if len(values) < 2:
        return Mean(value, math.inf, 1.0, 1, Basis.NOTHING, None)
    variance = float(scaled.var(ddof=1)) / len(values)
    return Mean(value, variance, len(values) - 1.0, len(values), Basis.RUNS, variation(values))


def mean_of_iterations(values: NDArray[np.float64], between_runs: float) -> Mean:
    """The mean of the iterations of one run, all above 0; `between_runs` is the variation (CV) to allow between runs.

    The variance is that of as many independent values as the iterations are worth: n (1 - r) / (1 + r) for neighbours that
    correlate by r (a chain of first order). r is estimated, and raised by its known bias, (1 + 3 r) / n (Kendall 1954).
    """
    count = len(values)
    mean = float(values.mean())
    if count < LEAST_ITERATIONS:
        return Mean(mean, math.inf, 1.0, count, Basis.NOTHING, variation(values))
    worth = independent_count(values)
    within = float(values.var(ddof=1)) / worth / mean**2
    allowed = between_runs**2
    variance = within + allowed
    # Welch-Satterthwaite; the allowance is given, not estimated.
    freedom = (worth - 1) * (variance / within) ** 2 if within > 0 else math.inf
    return Mean(mean, variance, freedom, count, Basis.ITERATIONS, variation(values))


def independent_count(values: NDArray[np.float64]) -> float:
    """As how many independent values they count, at least 2."""
    count = len(values)
    off = values - values.mean()
    total = float((off**2).sum())
    if total <= 0:
        return float(count)
    raw = float((off[1:] * off[:-1]).sum()) / total
    correlation = min(max(raw + (1 + 3 * max(raw, 0.0)) / count, 0.0), _MOST_CORRELATION)
    return max(count * (1 - correlation) / (1 + correlation), 2.0)


def variation(values: NDArray[np.float64]) -> float | None:
    """Standard deviation (n - 1) / mean; None for fewer than two values or a mean of 0."""
    mean = float(values.mean())
    return float(values.std(ddof=1)) / abs(mean) if len(values) > 1 and mean else None


def difference(a: Mean, b: Mean, confidence: float, *, relative: bool) -> Difference:
    """The interval of B against A by Welch's t; of logarithms if `relative`, so that it is one of their ratio."""
    gap = math.log(b.value / a.value) if relative else b.value - a.value
    variance = a.variance + b.variance
    if math.isinf(variance):
        return Difference(_as_change(gap, relative), -math.inf, math.inf, confidence, 1.0, relative)
    runs = min(a.count, b.count) if {a.basis, b.basis} == {Basis.RUNS} else 0
    # As if both sides had as many runs as the smaller one.
    spread = (runs, math.sqrt(variance * runs), False)
    spent = sum(one.variance**2 / one.freedom for one in (a, b) if one.variance > 0)
    freedom = variance**2 / spent if spent > 0 else math.inf
    return _interval((gap, variance, freedom), confidence, relative, spread)


def paired_difference(
    a: NDArray[np.float64], b: NDArray[np.float64], confidence: float, *, relative: bool
) -> Difference:
    """The same of runs that belong together, `a[i]` and `b[i]`, by Student's t of what is between them."""
    gaps = np.log(b / a) if relative else b - a
    mean = float(gaps.mean())
    if len(gaps) < 2:
        change = _as_change(mean, relative)
        return Difference(change, -math.inf, math.inf, confidence, 1.0, relative, 1, is_paired=True)
    variance = float(gaps.var(ddof=1))
    spread = (len(gaps), math.sqrt(variance), True)
    return _interval((mean, variance / len(gaps), len(gaps) - 1.0), confidence, relative, spread)


def _interval(
    gap_of: tuple[float, float, float], confidence: float, relative: bool, spread: tuple[int, float, bool]
) -> Difference:
    """`gap_of`: what is between the sides, its variance and degrees of freedom; `spread`: of `Difference`, its last three."""
    gap, variance, freedom = gap_of
    if variance <= 0:
        change = _as_change(gap, relative)
        p_value = 1.0 if gap == 0 else 0.0
        return Difference(change, change, change, confidence, p_value, relative, *spread)
    # Many degrees are as good as infinitely many, and the library's functions take them.
    freedom = min(freedom, 1e9)
    error = math.sqrt(variance)
    reach = float(stdtrit(freedom, (1 + confidence) / 2)) * error
    p_value = min(2 * float(stdtr(freedom, -abs(gap) / error)), 1.0)
    return Difference(
        _as_change(gap, relative),
        _as_change(gap - reach, relative),
        _as_change(gap + reach, relative),
        confidence,
        p_value,
        relative,
        *spread,
    )


def is_shown(found: Difference, size: float) -> bool:
    """Return whether its interval says something: one of at least three pairs, and not wider than a factor of ten.

    `size`: the greater of both means, which the interval of a difference in a figure's own unit is held to.
    """
    if found.low == found.high:
        return True
    if not (math.isfinite(found.low) and math.isfinite(found.high)):
        return False
    if found.is_paired and found.count < LEAST_PAIRS:
        return False
    if not found.relative:
        return found.high - found.low <= WIDEST * size
    return 1 + found.high <= WIDEST * (1 + found.low)


def more_needed(found: Difference, least_effect: float) -> int | None:
    """Return how many more runs of each side would likely decide it, as far as those there are tell; None: more than can be told.

    So many that its interval would leave zero out, or, of a change too small to matter, every change that matters.
    """
    fewest = max(LEAST_PAIRS - max(found.count, 1), 1)
    if not math.isfinite(found.deviation):
        return fewest
    gap = abs(math.log1p(found.change)) if found.relative else abs(found.change)
    least = math.log1p(least_effect) if found.relative else least_effect
    wanted = gap if gap >= least else least - gap
    for runs in range(found.count + fewest, MOST_NEEDED + found.count + 1):
        freedom = runs - 1.0 if found.is_paired else 2 * runs - 2.0
        if float(stdtrit(freedom, (1 + found.confidence) / 2)) * found.deviation < wanted * math.sqrt(runs):
            return runs - found.count
    return None


def open_words(found: Difference, least_effect: float) -> str:
    """Return why a difference without an interval is open, in one short form."""
    more = more_needed(found, least_effect)
    count = max(found.count, 1)
    thing = "pair" if found.is_paired else "run"
    many = f"about {more} more needed" if more is not None else f"more than {MOST_NEEDED} more needed"
    return f"inconclusive: {count} {thing}{'s' if count > 1 else ''}, {many}"


def outcome(found: Difference, least_effect: float, *, less_is_better: bool) -> Outcome:
    """What may be said of it. `least_effect` is the smallest change that matters, in the unit of `found.change`.

    A regression or an improvement is certain of its sign and at least that large; no difference is certain to be smaller; not
    worse is certain to be no regression of that size.
    """
    certain = found.low > 0 or found.high < 0
    if certain and abs(found.change) >= least_effect:
        return Outcome.REGRESSION if (found.change > 0) == less_is_better else Outcome.IMPROVEMENT
    small = -least_effect < found.low and found.high < least_effect
    if small or found.low == found.high == 0:
        return Outcome.ALIKE
    return (
        Outcome.NOT_WORSE
        if surely_no_regression(found, least_effect, less_is_better=less_is_better)
        else Outcome.OPEN
    )


def surely_no_regression(found: Difference, least_effect: float, *, less_is_better: bool) -> bool:
    """Whether it is certain not to be worse by as much as `least_effect`."""
    return found.high < least_effect if less_is_better else found.low > -least_effect


def _as_change(gap: float, relative: bool) -> float:
    if not relative:
        return gap
    return math.expm1(gap) if gap < 700 else math.inf
