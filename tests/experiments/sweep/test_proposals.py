"""Proposals of a search: a planted optimum is found, nothing is tried twice, and the same search proposes the same."""

from __future__ import annotations

from pathlib import Path

import optuna
import pytest
from optuna.storages.journal import JournalFileBackend

from etloop.experiments.sweep.optimize import Objective
from etloop.experiments.sweep.proposals import Labels, Learned, Proposals
from tests.measure.planted_optimum import trials_to_optimum

AXES = {"rate": ("1", "2", "3"), "cc": ("dcqcn", "swift"), "qps": ("1", "4")}
TIME = Objective("jct_avg_ns", is_maximized=False)
GOODPUT = Objective("goodput_bps", is_maximized=True)


@pytest.mark.parametrize("seed", range(2))
def test_a_planted_optimum_in_six_dimensions_takes_at_most_5_percent_of_the_grid(seed: int) -> None:
    trials = trials_to_optimum(seed, levels=4, most=4**6 * 5 // 100)
    assert trials is not None, f"seed {seed}"


def searched(proposals: Proposals, batch: int) -> list[Labels]:
    """All proposals of a search whose optimum is the first setting of every axis."""
    tried: list[Labels] = []
    while labels := proposals.propose(batch):
        for combination in labels:
            cost = float(
                sum(list(AXES[axis]).index(label) for axis, label in zip(AXES, combination, strict=True))
            )
            proposals.learn(combination, Learned((cost,), {"drops": float(combination[1] == "swift")}), {})
        tried += labels
    return tried


def test_all_combinations_are_tried_once_and_the_same_again(tmp_path: Path) -> None:
    proposals = Proposals(AXES, [TIME], 1, tmp_path / "study.log")
    tried = searched(proposals, 4)
    assert len(tried) == len(set(tried)) == 12
    assert proposals.ranking()[0] == ("1", "dcqcn", "1")
    assert proposals.ranking()[6][1] == "swift", "infeasible ones come last"
    assert proposals.pareto() == [("1", "dcqcn", "1")]
    assert searched(Proposals(AXES, [TIME], 1, tmp_path / "study.log"), 4) == tried
    assert searched(Proposals(AXES, [TIME], 2, None), 4) != tried


def test_the_file_is_a_study_of_optuna_with_its_conditions(tmp_path: Path) -> None:
    searched(Proposals(AXES, [TIME], 1, tmp_path / "study.log"), 4)
    storage = optuna.storages.JournalStorage(JournalFileBackend(str(tmp_path / "study.log")))
    study = optuna.load_study(study_name="etloop", storage=storage)
    assert study.best_params == {"rate": "1", "cc": "dcqcn", "qps": "1"}
    assert all(trial.state is not optuna.trial.TrialState.RUNNING for trial in study.trials)
    assert set(study.trials[0].params) == set(AXES)


def test_a_trial_is_hopeless_that_is_worse_than_the_median_early() -> None:
    proposals = Proposals({"a": tuple(map(str, range(40)))}, [TIME], 1, None)
    ended: list[int] = []
    while len(ended) + len(proposals.learned) < 30:
        for (label,) in proposals.propose(5):
            if proposals.is_hopeless((label,), 2, float(label)):
                ended.append(int(label))
            else:
                proposals.learn((label,), Learned((float(label),), {}), {})
    assert len(proposals.learned) >= 10
    assert ended
    assert min(ended) > min(int(label) for (label,) in proposals.learned)


def test_trials_that_fail_are_not_proposed_again() -> None:
    proposals = Proposals({"a": ("1", "2")}, [TIME], 1, None)
    for labels in proposals.propose(2):
        proposals.learn(labels, None, {})
    assert proposals.propose(1) == []
    assert proposals.ranking() == proposals.pareto() == []
    assert proposals.importances() == [{"a": 0.0}]


def test_several_objectives_have_a_pareto_set_and_importances() -> None:
    axes = {"a": ("1", "2", "3", "4"), "b": ("1", "2", "3")}
    proposals = Proposals(axes, [TIME, GOODPUT], 1, None)
    while batch := proposals.propose(3):
        for a, b in batch:
            proposals.learn((a, b), Learned((float(a) + float(b), 10 * float(a)), {}), {})
    assert sorted(proposals.pareto()) == [("1", "1"), ("2", "1"), ("3", "1"), ("4", "1")]
    assert proposals.ranking()[0] in proposals.pareto()
    time, goodput = proposals.importances()
    assert goodput["a"] > goodput["b"]
    assert sum(time.values()) == pytest.approx(1)
