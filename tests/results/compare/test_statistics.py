"""Intervals of means: against a library's own tests, against simulated runs, and what may be said of them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from etloop.results.compare.statistics import (
    Difference,
    Mean,
    difference,
    difference_of_pairs,
    independent_count,
    is_shown,
    mean_of_iterations,
    mean_of_runs,
    more_needed,
    open_words,
    outcome,
    surely_no_regression,
)
from etloop.results.schema.comparison import Basis, Outcome

RUNS_A = np.array([10.0, 10.4, 9.9, 10.2])
RUNS_B = np.array([11.0, 11.9, 10.7])


def test_runs_are_compared_by_welch_of_their_logarithms() -> None:
    found = difference(
        mean_of_runs(RUNS_A, relative=True), mean_of_runs(RUNS_B, relative=True), 0.9, relative=True
    )
    oracle = stats.ttest_ind(np.log(RUNS_B), np.log(RUNS_A), equal_var=False)
    interval = oracle.confidence_interval(0.9)
    assert found.p_value == pytest.approx(oracle.pvalue)
    assert found.low == pytest.approx(math.expm1(interval.low))
    assert found.high == pytest.approx(math.expm1(interval.high))
    assert found.change == pytest.approx(np.exp(np.log(RUNS_B).mean()) / np.exp(np.log(RUNS_A).mean()) - 1)


def test_rounds_are_compared_by_student_of_what_is_between_them() -> None:
    found = difference_of_pairs(RUNS_A[:3], RUNS_B, 0.95, relative=True)
    oracle = stats.ttest_rel(np.log(RUNS_B), np.log(RUNS_A[:3]))
    assert found.p_value == pytest.approx(oracle.pvalue)
    assert found.low == pytest.approx(math.expm1(oracle.confidence_interval(0.95).low))


def test_what_may_be_zero_is_compared_by_differences() -> None:
    a, b = np.array([0.0, 1.0, 2.0]), np.array([5.0, 6.0, 8.0])
    found = difference(mean_of_runs(a, relative=False), mean_of_runs(b, relative=False), 0.95, relative=False)
    assert found.change == pytest.approx(16 / 3)
    assert found.p_value == pytest.approx(stats.ttest_ind(b, a, equal_var=False).pvalue)


def test_of_one_value_nothing_is_known() -> None:
    one = mean_of_runs(np.array([7.0]), relative=True)
    assert replace(one, value=round(one.value, 9)) == Mean(7.0, math.inf, 1.0, 1, Basis.NOTHING, None)
    found = difference(one, mean_of_runs(RUNS_A, relative=True), 0.95, relative=True)
    assert (found.low, found.high, found.p_value) == (-math.inf, math.inf, 1.0)
    assert outcome(found, 0.02, less_is_better=True) is Outcome.OPEN


def test_of_few_iterations_nothing_is_known() -> None:
    assert mean_of_iterations(np.array([1.0, 1.1, 0.9, 1.0]), 0.01).variance == math.inf


def test_the_same_again_to_the_nanosecond_is_no_difference() -> None:
    alike = mean_of_runs(np.array([5.0, 5.0]), relative=True)
    found = difference(alike, alike, 0.95, relative=True)
    assert (found.change, found.low, found.high, found.p_value) == (0, 0, 0, 1)
    assert outcome(found, 0.0, less_is_better=True) is Outcome.ALIKE
    longer = mean_of_runs(np.array([6.0, 6.0]), relative=True)
    certain = difference(alike, longer, 0.95, relative=True)
    assert certain.low == certain.high == pytest.approx(0.2)
    assert outcome(certain, 0.02, less_is_better=True) is Outcome.REGRESSION


def test_neighbours_that_go_together_count_for_less() -> None:
    rng = np.random.default_rng(5)
    assert independent_count(chains(rng, 400, 0.0)[0]) > 330
    assert 60 < independent_count(chains(rng, 400, 0.6)[0]) < 140  # 400 / 4
    assert independent_count(np.arange(30.0)) == 2
    assert independent_count(np.full(8, 3.0)) == 8


OUTCOMES = (
    ("longer, and certainly", (0.05, 0.03, 0.07), Outcome.REGRESSION, Outcome.IMPROVEMENT),
    ("shorter, and certainly", (-0.05, -0.07, -0.03), Outcome.IMPROVEMENT, Outcome.REGRESSION),
    ("certainly longer, but by nothing that matters", (0.01, 0.005, 0.015), Outcome.ALIKE, Outcome.ALIKE),
    ("certainly longer, and perhaps by what matters", (0.015, 0.005, 0.025), Outcome.OPEN, Outcome.NOT_WORSE),
    ("much longer, but perhaps by chance", (0.10, -0.01, 0.20), Outcome.OPEN, Outcome.NOT_WORSE),
    ("much shorter, but perhaps by chance", (-0.059, -0.116, 0.002), Outcome.NOT_WORSE, Outcome.OPEN),
    ("alike, and certain of it", (0.001, -0.01, 0.012), Outcome.ALIKE, Outcome.ALIKE),
    ("alike, and not certain of it", (0.001, -0.03, 0.032), Outcome.OPEN, Outcome.OPEN),
)


@pytest.mark.parametrize(
    ("bounds", "less_is_better", "more_is_better"),
    [row[1:] for row in OUTCOMES],
    ids=[row[0] for row in OUTCOMES],
)
def test_what_may_be_said(
    bounds: tuple[float, float, float], less_is_better: Outcome, more_is_better: Outcome
) -> None:
    found = Difference(*bounds, 0.95, 0.01, relative=True)
    assert outcome(found, 0.02, less_is_better=True) is less_is_better
    assert outcome(found, 0.02, less_is_better=False) is more_is_better
    assert surely_no_regression(found, 0.02, less_is_better=True) is (bounds[2] < 0.02)


def chains(rng: np.random.Generator, length: int, correlation: float, count: int = 1) -> NDArray[np.float64]:
    """Rows of chains of first order with variance 1."""
    values = rng.standard_normal((count, length))
    for index in range(1, length):
        values[:, index] = (
            correlation * values[:, index - 1] + math.sqrt(1 - correlation**2) * values[:, index]
        )
    return values


def far_off(missed: int, trials: int, promised: float) -> bool:
    """More than three standard errors above what is promised."""
    return missed > trials * promised + 3 * math.sqrt(trials * promised * (1 - promised))


@pytest.mark.parametrize("runs", [2, 3, 5, 12])
def test_intervals_of_runs_hold_the_truth_as_often_as_they_say(runs: int) -> None:
    rng = np.random.default_rng(runs)
    missed = 0
    for _ in range(500):
        a, b = np.exp(0.03 * rng.standard_normal((2, runs))) * [[10.0], [10.5]]
        found = difference(mean_of_runs(a, relative=True), mean_of_runs(b, relative=True), 0.9, relative=True)
        missed += not found.low <= 0.05 <= found.high
    assert not far_off(missed, 500, 0.1), missed
    assert missed > 5 or runs == 2, "an interval that never misses is too wide to be of use"


@pytest.mark.parametrize(("iterations", "correlation"), [(10, 0.0), (20, 0.3), (50, 0.6)])
def test_intervals_of_iterations_hold_it_although_neighbours_go_together(
    iterations: int, correlation: float
) -> None:
    rng = np.random.default_rng(iterations)
    missed = naive = 0
    for a, b in zip(
        10 + 0.2 * chains(rng, iterations, correlation, 500),
        10 + 0.2 * chains(rng, iterations, correlation, 500),
        strict=True,
    ):
        found = difference(mean_of_iterations(a, 0.0), mean_of_iterations(b, 0.0), 0.95, relative=True)
        missed += not found.low <= 0 <= found.high
        plain = difference(
            mean_of_runs(a, relative=True), mean_of_runs(b, relative=True), 0.95, relative=True
        )
        naive += not plain.low <= 0 <= plain.high
    assert not far_off(missed, 500, 0.06), missed
    if correlation >= 0.3:
        assert naive > 2 * missed, "taken as independent they would be wrong far more often"


def test_the_allowance_between_runs_is_what_it_says() -> None:
    """Runs that differ by as much as is allowed for are told apart no more often than promised; without it they are."""
    rng = np.random.default_rng(9)
    missed = {0.0: 0, 0.01: 0}
    for _ in range(400):
        levels = 10 * np.exp(0.01 * rng.standard_normal(2))
        a, b = levels[:, None] * (1 + 0.01 * rng.standard_normal((2, 40)))
        for allowed in missed:
            found = difference(
                mean_of_iterations(a, allowed), mean_of_iterations(b, allowed), 0.95, relative=True
            )
            missed[allowed] += not found.low <= 0 <= found.high
    assert not far_off(missed[0.01], 400, 0.05)
    assert missed[0.0] > 200


def pairs_of(*changes: float) -> Difference:
    """Pairs of which B takes as many times as long as A."""
    ones = np.ones(len(changes))
    return difference_of_pairs(ones, np.array(changes), 0.95, relative=True)


@pytest.mark.parametrize(
    ("sentence", "found", "shown"),
    [
        ("two pairs know nothing of their deviation", pairs_of(1.1, 1.2), False),
        ("whatever they say", pairs_of(3.5, 3.6), False),
        ("three do", pairs_of(1.1, 1.2, 1.15), True),
        ("of three that say nothing it is left out", pairs_of(1.0, 9.0, 0.2), False),
        ("alike in virtual time, and exactly known", pairs_of(1.5, 1.5), True),
        ("one pair", pairs_of(1.5), False),
    ],
)
def test_an_interval_that_says_nothing_is_not_shown(sentence: str, found: Difference, shown: bool) -> None:
    assert is_shown(found, 1.0) is shown, sentence


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (pairs_of(1.1, 1.2), "inconclusive: 2 pairs, about 2 more needed"),
        (pairs_of(1.1), "inconclusive: 1 pair, about 2 more needed"),
        (pairs_of(1.0, 9.0, 0.2), "inconclusive: 3 pairs, more than 100 more needed"),
    ],
)
def test_an_open_comparison_says_how_many_more_it_takes(found: Difference, words: str) -> None:
    assert open_words(found, 0.02) == words


def test_as_many_more_as_are_said_are_mostly_enough() -> None:
    rng = np.random.default_rng(7)
    decided = 0
    for _ in range(200):
        found = difference_of_pairs(np.ones(3), np.exp(rng.normal(0.1, 0.08, 3)), 0.95, relative=True)
        more = more_needed(found, 0.02) or 100
        again = difference_of_pairs(
            np.ones(3 + more), np.exp(rng.normal(0.1, 0.08, 3 + more)), 0.95, relative=True
        )
        decided += outcome(again, 0.02, less_is_better=True) is not Outcome.OPEN
    assert decided >= 80, f"{decided} of 200, seed 7"
