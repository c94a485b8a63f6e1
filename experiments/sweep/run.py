"""Runs the points of a sweep one after the other: in virtual time, on a rig, or through labs that it brings up.

A shell: processes, signals, directories. Other modules decide the runs and evaluate them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Self

from etloop.contract.base.errors import EtloopError
from etloop.contract.base.late_dataclass import dataclass
from etloop.controller.plan.run_numbers import TWIN_ID
from etloop.controller.run.execute import SessionExecution
from etloop.controller.run.pipeline import (
    Execution,
    PrepareOptions,
    RunInputs,
    RunOptions,
    RunWatcher,
    SilentWatcher,
    new_run_id,
    prepare,
    run_plan,
)
from etloop.controller.run.prepare import Prepared
from etloop.controller.run.twin import TwinExecution
from etloop.experiments.sweep.file import Sweep
from etloop.experiments.sweep.own_lab import OwnLab
from etloop.experiments.sweep.points import Point, PointFiles, Turn
from etloop.results.report.findings import short_names
from etloop.results.report.values import time_words
from etloop.results.schema.summary import Summary
from etloop.results.schema.sweep import Mode, RunRecord, SweepRecord
from etloop.results.schema.verdict import RunResult
from etloop.results.store.run_dir import read_run
from etloop.traffic.twin import SAMPLE_INTERVAL_NS, TwinSettings

if TYPE_CHECKING:
    from etloop.experiments.sweep.directory import SweepDirectory

Report = Callable[[str], None]
SEEDS_OF_A_REPEAT: Final = 1 << 20
"""Distance of the seeds of two repeats; every switch of a repeat gets a seed of its own, and none is used twice."""
MOST_BROKEN_IN_A_ROW: Final = 3
_KEPT_PLANS: Final = 8


class Stopped(EtloopError):
    """A sweep ended before its last run; the completed runs are kept."""


@dataclass(frozen=True, slots=True)
class SweepOptions:
    """Options of the command line for the runs."""

    mode: Mode
    expects: bool
    """True if ideal network and twin are computed for every run."""
    allow_overcommit: bool
    """True if labs are brought up at rates that this host does not sustain."""
    allow_plugins: bool = False
    """True if agents of labs run congestion control plugins of scenarios."""
    strict: bool = False
    """True if settings that contradict the device's profile are errors."""


@dataclass(frozen=True, slots=True, eq=False)
class Study:
    """The sweep to run, and its directory."""

    sweep: Sweep
    options: SweepOptions
    points: tuple[tuple[Point, PointFiles], ...]
    directory: SweepDirectory


def carry_out(study: Study, turns: tuple[Turn, ...], record: SweepRecord, watcher: RunWatcher) -> SweepRecord:
    """Make the runs of `turns` that do not exist yet; write the index after each, and return it.

    Raises KeyboardInterrupt once the remains of an interrupted run are removed, `InputError` if a rig is not ready, and
    `Stopped` after several failed runs in a row. The index is correct in every case.
    """
    broken_in_a_row = 0
    with Runs(study, watcher) as runs:
        for number, turn in enumerate(turns):
            point, files = study.points[turn.point]
            if study.directory.has(point.name, turn.repeat):
                recorded = _known(record, turn, point)
                if recorded is None:  # killed between the run and its index
                    recorded = run_record(point, turn.repeat, runs.earlier(point, turn.repeat))
                    record = _with_run(record, recorded)
                if recorded.result is not RunResult.BROKEN:
                    continue
            summary = runs.run(point, files, turn.repeat)
            run_result = run_record(point, turn.repeat, summary)
            record = _with_run(record, run_result)
            study.directory.keep(record)
            watcher.report(
                f"[{number + 1}/{len(turns)}] {point.name} repeat {turn.repeat} ({point.words}): {_words(summary, run_result)}"
            )
            broken_in_a_row = broken_in_a_row + 1 if run_result.result is RunResult.BROKEN else 0
            if broken_in_a_row == MOST_BROKEN_IN_A_ROW:
                raise Stopped(f"{broken_in_a_row} runs in a row failed, the last one: {run_result.reason}")
    return record


def run_record(point: Point, number: int, summary: Summary) -> RunRecord:
    """Return the record of a run for the index."""
    reason = ""
    if summary.result is RunResult.BROKEN:
        reason = summary.reason.splitlines()[0] if summary.reason else "its records are inconsistent (checks)"
    return RunRecord(point.name, number, summary.result, reason, short_names(summary.diagnosis))


def _known(record: SweepRecord, turn: Turn, point: Point) -> RunRecord | None:
    return next((run for run in record.runs if (run.point, run.repeat) == (point.name, turn.repeat)), None)


def _with_run(record: SweepRecord, one: RunRecord) -> SweepRecord:
    other_runs = tuple(run for run in record.runs if (run.point, run.repeat) != (one.point, one.repeat))
    return replace(record, runs=(*other_runs, one))


def _words(summary: Summary, one: RunRecord) -> str:
    if one.result is RunResult.BROKEN:
        return f"failed: {one.reason}"
    iteration = time_words(summary.job.iteration_jct_avg_ns)
    notes = [one.result.value] if one.result is not RunResult.NO_VERDICT else []
    return "; ".join([f"iteration {iteration}", *notes, *summary.overload])


class Runs:
    """Resources that several runs share: plans in virtual time, a lab in real time. They are released on exit."""

    def __init__(self, study: Study, watcher: RunWatcher) -> None:
        self._study = study
        self._watcher = watcher
        self._plans: dict[str, Prepared] = {}
        options = study.options
        self._lab = OwnLab(
            study.sweep.lab,
            allow_overcommit=options.allow_overcommit,
            allow_plugins=options.allow_plugins,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._lab.down()

    def earlier(self, point: Point, number: int) -> Summary:
        """Return the summary of a run that exists already."""
        return read_run(self._study.directory.run(point.name, number)).summary

    def run(self, point: Point, files: PointFiles, number: int) -> Summary:
        """Make one run and keep it once it is complete; return its summary.

        Raises `InputError` if it cannot be made, KeyboardInterrupt if a user stops it; it leaves no files then.
        """
        directory = self._study.directory
        try:
            room = directory.room(point.name, number)
            options = replace(self._options, out_dir=room)
            prepared, execution = self._prepared(point, files, number)
            # Only the first run reports its progress; a failed run has its reason in its results.
            watcher, self._watcher = self._watcher, SilentWatcher()
            finished = run_plan(prepared, execution, options, watcher)
        except BaseException:
            directory.drop(point.name, number)
            raise
        if finished.stopped_in is not None:
            directory.drop(point.name, number)
            raise KeyboardInterrupt
        directory.finish(point.name, number)
        return finished.summary

    @property
    def _options(self) -> RunOptions:
        options = self._study.options
        lab = self._lab.name if options.mode is Mode.LAB else ""
        return RunOptions(None, expects=options.expects, pages=False, lab=lab)

    def _prepared(self, point: Point, files: PointFiles, number: int) -> tuple[Prepared, Execution]:
        if self._study.options.mode is not Mode.TWIN:
            if self._study.options.mode is Mode.LAB:
                assert files.topology is not None
                self._lab.up(files.topology)
            return self._laid_out(files, new_run_id()), SessionExecution()
        if point.name not in self._plans:
            while len(self._plans) >= _KEPT_PLANS:
                del self._plans[next(iter(self._plans))]
            self._plans[point.name] = self._laid_out(files, TWIN_ID)
        seed = self._study.sweep.seed + number * SEEDS_OF_A_REPEAT
        settings = TwinSettings(seed=seed, sample_interval_ns=SAMPLE_INTERVAL_NS)
        return self._plans[point.name], TwinExecution(settings)

    def _laid_out(self, files: PointFiles, run_id: str) -> Prepared:
        inputs = RunInputs(files.scenario, files.rig, files.topology, run_id)
        return prepare(inputs, PrepareOptions(strict=self._study.options.strict))
