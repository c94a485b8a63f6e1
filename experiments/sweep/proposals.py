"""Proposals of a search by Optuna, a study in a file that Optuna's dashboard opens.

Decides which combination of settings is tried next. Half of the proposals are Optuna's (TPE); the other half differ from one of
the best trials in one axis, which finds the last steps to an optimum sooner. Every proposal has a random generator of its own,
seeded by its number: a search that is made again proposes the same, as long as it learns the same.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from math import prod
from pathlib import Path
from typing import Final

import optuna
from optuna.storages.journal import JournalFileBackend

from etloop.contract.base.late_dataclass import dataclass
from etloop.experiments.sweep.optimize import Objective

_STARTUP_TRIALS: Final = 10
"""Trials drawn at random before the first of TPE, and complete ones before the first that is pruned."""
_DUPLICATES: Final = 4
"""Proposals in a row that were tried before, after which an untried combination is taken."""
Labels = tuple[str, ...]
"""A combination: the label of a setting of each axis, in the order of the axes."""


@dataclass(frozen=True, slots=True)
class Learned:
    """Result of a trial: a value for each objective, and by how much each condition was broken (0: it holds)."""

    values: tuple[float, ...]
    violations: Mapping[str, float]

    @property
    def violation(self) -> float:
        """Return the sum of all violations; 0 if the trial is feasible."""
        return sum(self.violations.values())


class Proposals:
    """A study of Optuna over the settings of axes."""

    def __init__(
        self, axes: Mapping[str, Labels], objectives: Sequence[Objective], seed: int, file: Path | None
    ) -> None:
        """Begin a study; a `file` that exists is replaced. Without one the study stays in memory."""
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._axes = axes
        self._is_ordered = {name: all(_is_number(label) for label in labels) for name, labels in axes.items()}
        self._signs = [-1 if objective.is_maximized else 1 for objective in objectives]
        self._seed = seed
        if file is not None:
            for path in (file, file.with_name(f"{file.name}.lock")):
                path.unlink(missing_ok=True)
        directions = [
            optuna.study.StudyDirection.MAXIMIZE
            if objective.is_maximized
            else optuna.study.StudyDirection.MINIMIZE
            for objective in objectives
        ]
        with _without_warnings():
            self._study = optuna.create_study(
                storage=_storage(file),
                study_name="etloop",
                directions=directions,
                pruner=optuna.pruners.MedianPruner(n_startup_trials=_STARTUP_TRIALS),
            )
            self._study.set_metric_names([objective.figure for objective in objectives])
        self._asked = 0
        self._pending: dict[Labels, list[optuna.Trial]] = {}
        self.learned: dict[Labels, Learned] = {}
        """Results of complete trials, by combination."""
        self._tried: set[Labels] = set()

    def propose(self, count: int) -> list[Labels]:
        """Return up to `count` combinations that were never proposed; fewer if there are no more."""
        proposals: list[Labels] = []
        duplicates = 0
        while len(proposals) < count and len(self._tried) < prod(map(len, self._axes.values())):
            rng = random.Random(f"{self._seed} {self._asked}")  # noqa: S311 - the same proposals again
            combination = None
            if self._asked % 2 or duplicates >= _DUPLICATES:
                combination = self._neighbour(rng)
            if combination is None and duplicates >= _DUPLICATES:
                combination = self._draw_untried(rng)
            combination = self._ask(combination, rng)
            if combination in self._tried:
                duplicates += 1
                continue
            duplicates = 0
            self._tried.add(combination)
            proposals.append(combination)
        return proposals

    def _ask(self, combination: Labels | None, rng: random.Random) -> Labels:
        """Begin a trial with a combination, or with one of the sampler; return its combination."""
        self._asked += 1
        if combination is not None:
            self._study.enqueue_trial(dict(zip(self._axes, combination, strict=True)))
        self._study.sampler = optuna.samplers.TPESampler(
            seed=rng.randrange(1 << 32), n_startup_trials=_STARTUP_TRIALS
        )
        spaces: dict[str, optuna.distributions.BaseDistribution] = {
            name: optuna.distributions.CategoricalDistribution(labels) for name, labels in self._axes.items()
        }
        trial = self._study.ask(spaces)
        labels = tuple(str(trial.params[name]) for name in self._axes)
        if labels in self.learned:
            self._tell(trial, self.learned[labels])
        elif labels in self._tried and labels not in self._pending:
            self._study.tell(trial, state=optuna.trial.TrialState.FAIL)
        else:
            self._pending.setdefault(labels, []).append(trial)
        return labels

    def is_hopeless(self, combination: Labels, step: int, value: float) -> bool:
        """Report the value of the only objective after some iterations; return whether the trial may end there.

        A trial that may end is closed.
        """
        trials = self._pending[combination]
        for trial in trials:
            trial.report(value, step)
        if not trials[0].should_prune():
            return False
        for trial in self._pending.pop(combination):
            self._study.tell(trial, state=optuna.trial.TrialState.PRUNED)
        return True

    def learn(self, combination: Labels, learned: Learned | None, attributes: Mapping[str, str]) -> None:
        """Close a trial with its result; None: it could not be run. `attributes` are shown with it."""
        for trial in self._pending.pop(combination):
            for name, value in attributes.items():
                trial.set_user_attr(name, value)
            if learned is None:
                self._study.tell(trial, state=optuna.trial.TrialState.FAIL)
            else:
                self.learned[combination] = learned
                self._tell(trial, learned)

    def _tell(self, trial: optuna.Trial, learned: Learned) -> None:
        for name, violation in learned.violations.items():
            trial.set_constraint(name, violation)
        self._study.tell(trial, list(learned.values))

    def ranking(self) -> list[Labels]:
        """Return the complete trials, best first: feasible ones, then by the number of trials that are better in all
        objectives, then by the first objective."""
        costs = self._costs(self.learned)
        feasible = [labels for labels, learned in self.learned.items() if learned.violation == 0]

        def rank(labels: Labels) -> tuple[float, int, float]:
            better = 0
            if len(self._signs) > 1:
                better = sum(_dominates(costs[other], costs[labels]) for other in feasible)
            return self.learned[labels].violation, better, costs[labels][0]

        return sorted(costs, key=rank)

    def pareto(self) -> list[Labels]:
        """Return the feasible trials that no feasible trial dominates; with one objective the best ones."""
        feasible = [labels for labels in self.ranking() if self.learned[labels].violation == 0]
        costs = self._costs(feasible)
        return [
            labels
            for labels in feasible
            if not any(_dominates(cost, costs[labels]) for cost in costs.values())
        ]

    def _costs(self, trials: Iterable[Labels]) -> dict[Labels, tuple[float, ...]]:
        """Return the values of trials, those to maximize with the other sign."""
        return {
            labels: tuple(
                sign * value for sign, value in zip(self._signs, self.learned[labels].values, strict=True)
            )
            for labels in trials
        }

    def importances(self) -> list[dict[str, float]]:
        """Return for each objective the share of every axis in the settings common to good trials (PED-ANOVA)."""
        evaluator = optuna.importance.PedAnovaImportanceEvaluator()
        shares = []
        for index, sign in enumerate(self._signs):
            values = {learned.values[index] for learned in self.learned.values()}
            if len(values) < 2:
                shares.append(dict.fromkeys(self._axes, 0.0))
                continue

            def cost(trial: optuna.trial.FrozenTrial, index: int = index, sign: int = sign) -> float:
                return sign * float(trial.values[index])

            with _without_warnings():
                shares.append(
                    dict(
                        optuna.importance.get_param_importances(self._study, evaluator=evaluator, target=cost)
                    )
                )
        return shares

    def _neighbour(self, rng: random.Random) -> Labels | None:
        """Return an untried combination that differs in one axis from the best trial that has such neighbours."""
        for labels in self.ranking():
            untried = [other for other in self._neighbours(labels) if other not in self._tried]
            if untried:
                return rng.choice(untried)
        return None

    def _neighbours(self, labels: Labels) -> Iterator[Labels]:
        for index, (name, choices) in enumerate(self._axes.items()):
            place = choices.index(labels[index])
            for other, label in enumerate(choices):
                if abs(other - place) == 1 or (other != place and not self._is_ordered[name]):
                    yield (*labels[:index], label, *labels[index + 1 :])

    def _draw_untried(self, rng: random.Random) -> Labels | None:
        for _ in range(64):
            labels = tuple(rng.choice(choices) for choices in self._axes.values())
            if labels not in self._tried:
                return labels
        return next((labels for labels in product(*self._axes.values()) if labels not in self._tried), None)


def _storage(file: Path | None) -> optuna.storages.BaseStorage:
    if file is None:
        return optuna.storages.InMemoryStorage()
    return optuna.storages.JournalStorage(JournalFileBackend(str(file)))


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Use parts of Optuna that it calls experimental; the locks hold its version."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        warnings.filterwarnings("ignore", "PedAnova", UserWarning)
        yield


def _dominates(cost: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return cost != other and all(mine <= theirs for mine, theirs in zip(cost, other, strict=True))


def _is_number(label: str) -> bool:
    return label[:1].isdigit()
