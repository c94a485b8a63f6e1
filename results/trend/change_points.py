"""Change points of several figures over the runs of one job. Pure.

Method: binary segmentation. A cut between two runs has, for each figure, the standardised rank sum of the runs before it
(Mann-Whitney). The greatest one over all cuts and figures is compared with that of the same runs in permuted order; figures
of a run stay together, so the probability of a false alarm holds for all figures jointly (Westfall and Young, 1993, maxT).
The cut is dated where the absolute deviations from the medians of both sides are least, and both sides are searched again.

It assumes that runs of an unchanged device could have come in any order. `measure_false_alarms` measures how far that holds.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from etloop.contract.base.late_dataclass import dataclass

LEAST_RUNS: Final = 3
"""Least runs on each side of a cut."""
PERMUTATIONS: Final = 1999
_FIRST_ORDERS: Final = 199
_CLEARLY_CHANCE: Final = 0.2
"""Share of the first permutations that are as clear as the runs, above which the others are not tried."""
SHUFFLES: Final = 400
"""Histories of shuffled blocks on which the rate of false alarms is measured."""
MOST_CHANGES: Final = 64
_VALUES_AT_ONCE: Final = 1 << 21
_SEED: Final = 52


@dataclass(frozen=True, slots=True)
class Cut:
    """A change: `run` is the index of the first run after it, `figures` the changed rows by index, the clearest first."""

    run: int
    figures: tuple[int, ...]
    p_value: float


@dataclass(frozen=True, slots=True)
class FalseAlarms:
    """Alarms among histories without a change, which are the runs themselves, without their changes, in shuffled blocks."""

    alarms: int
    histories: int
    block_runs: int


def least_runs(level: float) -> int:
    """Return the number of runs from which on a complete separation of two halves is rarer than `level` by chance."""
    return next(runs for runs in range(2 * LEAST_RUNS, 1000, 2) if 2 / math.comb(runs, runs // 2) <= level)


def find_cuts(values: NDArray[np.float64], level: float) -> tuple[Cut, ...]:
    """Return the changes in `values` (figures, runs), NaN where a run lacks a figure, by run.

    `level`: probability that a history without a change gets one.
    """
    cuts: list[Cut] = []
    open_parts = [(0, values.shape[1])]
    while open_parts and len(cuts) < MOST_CHANGES:
        begin, end = open_parts.pop(0)
        cut = _strongest_cut(values[:, begin:end], level)
        if cut is not None:
            at = begin + cut.run
            cuts.append(Cut(at, cut.figures, cut.p_value))
            open_parts += [(begin, at), (at, end)]
    return tuple(sorted(cuts, key=lambda cut: cut.run))


def measure_false_alarms(
    values: NDArray[np.float64], cuts: tuple[Cut, ...], level: float, histories: int = SHUFFLES
) -> FalseAlarms:
    """Count the alarms among `histories` shuffles of the runs without their changes.

    Blocks of neighbouring runs stay together: where runs resemble their neighbours, more alarms than `level` appear.
    """
    count = values.shape[1]
    level_values = _without_changes(values, cuts)
    scores = _scores(level_values)
    block_runs = max(2, round(1.5 * count ** (1 / 3)))
    if not len(scores) or count < 2 * LEAST_RUNS:
        return FalseAlarms(0, 0, block_runs)
    null = np.sort(_most_shifted(scores, _orders(PERMUTATIONS, count, _SEED)))
    critical = null[min(int(np.ceil((1 - level) * (len(null) + 1))) - 1, len(null) - 1)]
    statistics = _most_shifted(scores, _block_orders(histories, count, block_runs))
    return FalseAlarms(int((statistics > critical * (1 + 1e-12)).sum()), histories, block_runs)


def _strongest_cut(values: NDArray[np.float64], level: float) -> Cut | None:
    """Return the clearest change within a part of the history; None if chance explains it."""
    count = values.shape[1]
    varying = np.flatnonzero([len(set(row[~np.isnan(row)].tolist())) > 1 for row in values])
    if count < 2 * LEAST_RUNS or not varying.size:
        return None
    scores = _scores(values[varying])
    shifts = _shifts(scores)
    orders = _orders(PERMUTATIONS, count, _SEED)
    if (_most_shifted(scores, orders[:_FIRST_ORDERS]) >= shifts.max()).mean() > _CLEARLY_CHANCE:
        return None
    null = _most_shifted(scores, orders)
    p_values = (1 + (null[None, :] >= shifts.max(axis=1)[:, None] * (1 - 1e-12)).sum(axis=1)) / (
        len(null) + 1
    )
    changed = np.flatnonzero(p_values <= level)
    if not changed.size:
        return None
    clearest_first = changed[np.argsort(-shifts[changed].max(axis=1), kind="stable")]
    dates = [_date(values[varying[figure]]) for figure in clearest_first]
    near = [
        int(varying[figure])
        for figure, date in zip(clearest_first, dates, strict=True)
        if abs(date - dates[0]) < LEAST_RUNS
    ]
    return Cut(dates[0], tuple(near), float(p_values[clearest_first[0]]))


def _scores(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ranks with mean 0 and variance 1 by figure; 0 for runs without the figure. Figures that do not vary are left out."""
    ranks = rankdata(values, axis=1, nan_policy="omit") if values.size else values
    centred = np.nan_to_num(ranks - np.nanmean(ranks, axis=1, keepdims=True)) if values.size else values
    spread = np.sqrt((centred**2).mean(axis=1, keepdims=True)) if values.size else values
    varying = spread[:, 0] > 0 if values.size else np.zeros(len(values), bool)
    scaled: NDArray[np.float64] = centred[varying] / spread[varying]
    return scaled


def _shifts(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the standardised rank sums before every allowed cut; the last axis of `scores` is the runs."""
    count = scores.shape[-1]
    cuts = np.arange(LEAST_RUNS, count - LEAST_RUNS + 1)
    sums = np.abs(np.cumsum(scores, axis=-1)[..., cuts - 1])
    standardised: NDArray[np.float64] = sums / np.sqrt(cuts * (count - cuts) / (count - 1))
    return standardised


def _most_shifted(scores: NDArray[np.float64], orders: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the greatest shift over cuts and figures for every order of the runs."""
    at_once = max(1, _VALUES_AT_ONCE // max(scores.size, 1))
    return np.concatenate(
        [
            _shifts(scores[:, orders[begin : begin + at_once]]).max(axis=(0, 2))
            for begin in range(0, len(orders), at_once)
        ]
    )


@lru_cache(maxsize=4)
def _orders(number: int, count: int, seed: int) -> NDArray[np.int64]:
    """Return permutations of the runs (number, count), the same in every version of numpy: sorted raw random numbers."""
    raw = np.random.PCG64(seed).random_raw(number * count).reshape(number, count)
    orders: NDArray[np.int64] = np.argsort(raw, axis=1, kind="stable")
    return orders


def _block_orders(number: int, count: int, block_runs: int) -> NDArray[np.int64]:
    """Return orders of the runs in which blocks of neighbours (the history is a circle) are permuted."""
    blocks = -(-count // block_runs)
    starts = np.random.PCG64(_SEED + 1).random_raw(number) % np.uint64(count)
    orders = np.empty((number, count), np.int64)
    for row, (start, order) in enumerate(
        zip(starts.tolist(), _orders(number, blocks, _SEED + 2), strict=True)
    ):
        places = [np.arange(block * block_runs, min((block + 1) * block_runs, count)) for block in order]
        orders[row] = (np.concatenate(places) + start) % count
    return orders


def _date(values: NDArray[np.float64]) -> int:
    """Return the cut with the least absolute deviations from the medians of both sides."""
    count = len(values)
    costs = [
        _deviations(values[:cut]) + _deviations(values[cut:])
        for cut in range(LEAST_RUNS, count - LEAST_RUNS + 1)
    ]
    return LEAST_RUNS + int(np.argmin(costs))


def _deviations(values: NDArray[np.float64]) -> float:
    known = values[~np.isnan(values)]
    return float(np.abs(known - np.median(known)).sum()) if known.size else 0.0


def _without_changes(values: NDArray[np.float64], cuts: tuple[Cut, ...]) -> NDArray[np.float64]:
    """Return the values less the median of their part of the history."""
    parts = np.split(values, [cut.run for cut in cuts], axis=1)
    return np.concatenate([part - _medians(part)[:, None] for part in parts], axis=1)


def _medians(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the median of every row (figures), 0 for one without values."""
    return np.array([np.median(row[~np.isnan(row)]) if (~np.isnan(row)).any() else 0.0 for row in values])
