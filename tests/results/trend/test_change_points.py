"""A planted change is dated to the run, quiet histories raise no alarm, and outliers are no change."""

from __future__ import annotations

import numpy as np
import pytest

from etloop.results.trend.change_points import Cut, find_cuts, measure_false_alarms
from tests.measure.change_points import LEVEL, planted, quiet


def runs_of(cuts: tuple[Cut, ...]) -> list[int]:
    return [cut.run for cut in cuts]


def test_at_most_one_of_forty_quiet_histories_raises_an_alarm() -> None:
    assert sum(bool(find_cuts(quiet(seed, figures=4), LEVEL)) for seed in range(40)) <= 1


@pytest.mark.parametrize("seed", range(8))
def test_a_planted_change_is_dated_to_the_run(seed: int) -> None:
    at, values = planted(seed, figures=4)
    cuts = find_cuts(values, LEVEL)
    assert [(cut.run, cut.figures) for cut in cuts] == [(at, (1,))], f"seed {seed}"


def test_changes_of_one_release_are_one_change() -> None:
    values = quiet(1, figures=4, runs=60)
    values[[0, 2], 25:] *= 1.3
    values[3, 40:] *= 0.7
    assert {cut.run: set(cut.figures) for cut in find_cuts(values, LEVEL)} == {25: {0, 2}, 40: {3}}


def test_a_change_and_its_repair_are_two() -> None:
    values = quiet(2, figures=2, runs=90)
    values[1, 30:60] *= 1.2
    assert runs_of(find_cuts(values, LEVEL)) == [30, 60]


def test_outliers_are_no_change() -> None:
    values = quiet(3, figures=2, runs=60)
    values[0, [5, 31, 59]] *= 50
    assert not find_cuts(values, LEVEL)


def test_equal_runs_in_virtual_time() -> None:
    values = np.array([[5.0] * 8 + [6.0] * 8, [1.0] * 16])
    assert [(cut.run, cut.figures) for cut in find_cuts(values, LEVEL)] == [(8, (0,))]
    assert not find_cuts(values[1:], LEVEL), "constant"
    assert not find_cuts(values[:, 6:11], LEVEL), "five runs are too few"


def test_a_figure_that_older_runs_lack() -> None:
    values = quiet(4, figures=2, runs=60)
    values[0, :20] = np.nan
    assert not find_cuts(values, LEVEL)
    values[0, 40:] *= 1.3
    assert runs_of(find_cuts(values, LEVEL)) == [40]


def test_the_measured_rate_shows_that_runs_resemble_their_neighbours() -> None:
    values = quiet(5, figures=2, runs=100)
    independent = measure_false_alarms(values, (), LEVEL, 200)
    for run in range(1, values.shape[1]):
        values[:, run] = 0.8 * values[:, run - 1] + 0.2 * values[:, run]
    dependent = measure_false_alarms(values, (), LEVEL, 200)
    assert independent.alarms <= 6
    assert dependent.alarms > 20
    assert measure_false_alarms(values[:, :5], (), LEVEL).histories == 0
