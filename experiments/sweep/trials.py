"""Runs a search over the axes of a sweep: trials in virtual time, proposed and compared by `proposals`.

A shell: directories, processes. A search that is continued makes its proposals again and finds their runs in the directory, so
it ends with the same trials as one that was never interrupted, on any number of processes.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import yaml

from etloop.contract.base.errors import ConfigError, InputError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.yaml_tree import Change
from etloop.controller.run.execution import SilentWatcher
from etloop.experiments.sweep.file import Sweep, points_of
from etloop.experiments.sweep.optimize import Optimize, add_constraints
from etloop.experiments.sweep.points import Point, point_files
from etloop.experiments.sweep.proposals import Labels, Learned, Proposals
from etloop.experiments.sweep.run import Runs, Study
from etloop.experiments.sweep.tasks import content_of
from etloop.results.schema.summary import Summary
from etloop.results.schema.trials import STUDY_FILE, TRIALS_SCHEMA, SettingTrial, TrialsRecord, TrialState
from etloop.results.schema.verdict import Result, RunResult
from etloop.results.store.run_dir import read_kpis, read_summary

if TYPE_CHECKING:
    from etloop.controller.run.execution import RunWatcher

START: Final = "start"
"""Name of the scenario without changes."""
EARLY: Final = "early"
_INT_TAG: Final = "tag:yaml.org,2002:int"
Map = Callable[[Callable[..., Any], Sequence[tuple[Any, ...]]], Iterable[Any]]
"""Calls a function for every task, in their order."""


@dataclass(frozen=True, slots=True)
class Tried:
    """Result of the run of one combination."""

    values: tuple[float, ...]
    """Values of the objectives; () if the run failed."""
    violations: dict[str, float]
    reason: str
    """The first condition that did not hold, or why the run failed; "" otherwise."""
    problems: tuple[Problem, ...] = ()
    """Problems of the files, if it could not be planned."""
    findings: tuple[str, ...] = ()
    """As those of a `RunRecord`."""

    @property
    def learned(self) -> Learned | None:
        """Return what the search learns; None if the run failed."""
        return Learned(self.values, self.violations) if self.values else None

    @property
    def state(self) -> TrialState:
        """Return the state of a trial that ran to its end."""
        if not self.values:
            return TrialState.FAILED
        return TrialState.INFEASIBLE if any(self.violations.values()) else TrialState.FEASIBLE


def try_point(study: bytes, point: Point) -> Tried:
    """Run a combination in virtual time, unless the run exists; return what it shows. `study` is pickled."""
    runs, sweep = _runs_of(study)
    optimize = sweep.optimize
    assert optimize is not None
    try:
        files = point_files(sweep, point, content_of, lab=False)
        files = replace(files, scenario=add_constraints(files.scenario, optimize.constraints))
        point = runs.plan(point, files)
    except InputError as error:
        return Tried((), {}, str(error.problems[0]), error.problems)
    runs.add_files(point.name, files)
    run = runs.made_or_found(point, files, 0).record
    run_dir = runs.place(point.name, 0)
    if run.result is RunResult.BROKEN:
        return Tried((), {}, run.reason, findings=run.findings)
    kpis = read_kpis(run_dir)
    values = [kpis.value(objective.figure) for objective in optimize.objectives]
    missing = [
        objective.figure
        for objective, value in zip(optimize.objectives, values, strict=True)
        if value is None
    ]
    if missing:
        return Tried((), {}, f"the run has no {missing[0]}", findings=run.findings)
    violations, reason = _violations(read_summary(run_dir))
    return Tried(
        tuple(value for value in values if value is not None), violations, reason, findings=run.findings
    )


def _violations(summary: Summary) -> tuple[dict[str, float], str]:
    """Return by condition the share of the rows that broke it, 1 if it could not be evaluated; and the first broken one."""
    violations: dict[str, float] = {}
    reason = ""
    for check in () if summary.verdict is None else summary.verdict.checks:
        if check.result is Result.PASS:
            violations[check.expression] = 0.0
            continue
        is_share = check.result is Result.FAIL and check.checked and check.broken
        violations[check.expression] = check.broken / check.checked if is_share else 1.0
        reason = reason or f"{check.expression}: {check.reason or f'{check.value}, limit {check.limit}'}"
    return violations, reason


@lru_cache(maxsize=1)
def _runs_of(content: bytes) -> tuple[Runs, Sweep]:
    study: Study = pickle.loads(content)  # noqa: S301 - written by our own parent
    return Runs(study, SilentWatcher()), study.sweep


class SettingSearch:
    """A search over the axes of a sweep, batch by batch."""

    def __init__(self, study: Study, map_tasks: Map, watcher: RunWatcher) -> None:
        assert study.sweep.optimize is not None
        self._sweep, self._optimize = study.sweep, study.sweep.optimize
        self._content = pickle.dumps(replace(study, points=()), pickle.HIGHEST_PROTOCOL)
        self._map, self._watcher = map_tasks, watcher
        axes = {axis.name: tuple(setting.label for setting in axis.settings) for axis in self._sweep.axes}
        self._axes = axes
        self.proposals = Proposals(
            axes, self._optimize.objectives, self._sweep.seed, study.directory.path / STUDY_FILE
        )
        self.names: dict[Labels, str] = {}
        """Name of every combination that was proposed."""
        self._trials: dict[str, SettingTrial] = {}

    def carry_out(self) -> TrialsRecord:
        """Make all trials, and return their record.

        Raises `ConfigError` if the scenario cannot be planned without changes, or no trial of the first batch can.
        """
        (start,) = self._run([Point(START, (), self._sweep.common)])
        if start.problems:
            raise ConfigError(*start.problems)
        while count := min(self._optimize.parallel, self._optimize.trials - len(self.names)):
            batch = self.proposals.propose(count)
            if not batch:
                break
            for labels in batch:
                self.names[labels] = f"t{len(self.names):04d}"
            self._carry_out(self._survivors(batch))
        return self._record()

    def _run(self, points: Sequence[Point]) -> list[Tried]:
        return list(self._map(try_point, [(self._content, point) for point in points]))

    def point(self, labels: Labels) -> Point:
        """Return the point of a combination."""
        settings = [
            next(setting for setting in axis.settings if setting.label == label)
            for axis, label in zip(self._sweep.axes, labels, strict=True)
        ]
        changes = (*self._sweep.common, *(change for setting in settings for change in setting.changes))
        return Point(self.names[labels], tuple(zip(self._axes, labels, strict=True)), changes)

    def _survivors(self, batch: list[Labels]) -> list[Labels]:
        """Run the early iterations of a batch; return the trials that go on."""
        iterations = self._optimize.early_iterations
        if not iterations:
            return batch
        change = Change(("iterations",), yaml.ScalarNode(_INT_TAG, str(iterations)))
        points = [self.point(labels) for labels in batch]
        early = [
            replace(point, name=f"{point.name}/{EARLY}", changes=(*point.changes, change)) for point in points
        ]
        survivors = []
        for labels, tried in zip(batch, self._run(early), strict=True):
            if tried.values and self.proposals.is_hopeless(labels, iterations, tried.values[0]):
                self._close(labels, tried, TrialState.PRUNED)
            else:
                survivors.append(labels)
        return survivors

    def _carry_out(self, batch: list[Labels]) -> None:
        results = self._run([self.point(labels) for labels in batch])
        is_first = len(self.names) == len(batch)
        if is_first and results and all(tried.problems for tried in results):
            raise ConfigError(*results[0].problems)
        for labels, tried in zip(batch, results, strict=True):
            self.proposals.learn(
                labels, tried.learned, {"directory": self.names[labels], "reason": tried.reason}
            )
            self._close(labels, tried, tried.state)

    def _close(self, labels: Labels, tried: Tried, state: TrialState) -> None:
        name = self.names[labels]
        settings = dict(zip(self._axes, labels, strict=True))
        self._trials[name] = SettingTrial(name, settings, state, tried.values, tried.reason, tried.findings)
        words = ", ".join(f"{axis}={label}" for axis, label in settings.items())
        self._watcher.report(
            f"[{len(self._trials)}/{self._optimize.trials}] {name} {words}: {_words(self._optimize, tried, state)}"
        )

    def _record(self) -> TrialsRecord:
        objectives = self._optimize.objectives
        best = self.proposals.pareto() if len(objectives) > 1 else self.feasible()[: self._optimize.best]
        return TrialsRecord(
            schema=TRIALS_SCHEMA,
            source=self._sweep.source,
            objectives=tuple(map(str, objectives)),
            figures=tuple(objective.figure for objective in objectives),
            axes=self._axes,
            combinations=points_of(self._sweep),
            trials=tuple(self._trials[name] for name in sorted(self._trials)),
            best=tuple(self.names[labels] for labels in best),
            importances=tuple(self.proposals.importances()),
        )

    def feasible(self) -> list[Labels]:
        """Return the feasible trials, best first."""
        learned = self.proposals.learned
        return [labels for labels in self.proposals.ranking() if learned[labels].violation == 0]


def _words(optimize: Optimize, tried: Tried, state: TrialState) -> str:
    values = ", ".join(
        f"{objective.figure} {value:.6g}"
        for objective, value in zip(optimize.objectives, tried.values, strict=False)
    )
    return "; ".join(filter(None, (values, "" if state is TrialState.FEASIBLE else str(state), tried.reason)))
