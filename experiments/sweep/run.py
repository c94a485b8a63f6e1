"""Runs the points of a sweep one after the other: in virtual time, on a rig, or through labs that it brings up.

A shell: processes, signals, directories. Other modules decide the runs and evaluate them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Self

from etloop.contract.base.clock import NS_PER_S
from etloop.contract.base.errors import ConfigError, EtloopError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import approximate_duration
from etloop.controller.plan.kept_jobs import kept_jobs
from etloop.controller.plan.kept_plans import kept_plan
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
from etloop.experiments.sweep.directory import KEY_FILE
from etloop.experiments.sweep.file import Sweep
from etloop.experiments.sweep.index import AFRESH, point_record, run_key
from etloop.experiments.sweep.own_lab import OwnLab
from etloop.experiments.sweep.points import Point, PointFiles, Turn
from etloop.results.report.findings import short_names
from etloop.results.report.values import time_words
from etloop.results.schema.run_output import Output
from etloop.results.schema.summary import Summary
from etloop.results.schema.sweep import Mode, RunRecord, SweepRecord
from etloop.results.schema.verdict import RunResult
from etloop.results.store.checksums import refuse_damage
from etloop.results.store.run_dir import read_summary
from etloop.runtime.clock import monotonic_ns
from etloop.runtime.version import installed_version
from etloop.traffic.twin import SAMPLE_INTERVAL_NS, TwinSettings

if TYPE_CHECKING:
    from pathlib import Path

    from etloop.experiments.sweep.directory import SweepDirectory

Keep = Callable[[SweepRecord], None]
KEEP_EVERY_NS: Final = NS_PER_S
"""Least time between two writes of the index; a run that it does not have yet is found in its directory."""
KEEP_SHARE: Final = 20
"""Least time between two writes of the index, in times of one write, which takes 0.1 s for a thousand points."""
LEAST_SHOWN_NS: Final = 5 * NS_PER_S
"""Shorter remaining times are not reported."""
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
    output: Output = Output.EVERYTHING
    """Which files of every run are written."""


@dataclass(frozen=True, slots=True)
class MadeRun:
    """A run that exists now."""

    record: RunRecord
    words: str
    """Result for a status line."""
    is_new: bool
    """False if it existed already."""


@dataclass(frozen=True, slots=True, eq=False)
class Study:
    """The sweep to run, and its directory."""

    sweep: Sweep
    options: SweepOptions
    points: tuple[tuple[Point, PointFiles], ...]
    directory: SweepDirectory


class PacedKeep:
    """Writes the index now and then while runs are made, so that writing it stays a small part of their time."""

    def __init__(self, keep: Keep, now_ns: Callable[[], int] = monotonic_ns) -> None:
        self._keep = keep
        self._now_ns = now_ns
        self._due_ns = now_ns() + KEEP_EVERY_NS

    @property
    def is_due(self) -> bool:
        """Return whether the index should be written."""
        return self._now_ns() >= self._due_ns

    def keep(self, record: SweepRecord) -> None:
        """Write the index."""
        began_ns = self._now_ns()
        self._keep(record)
        ended_ns = self._now_ns()
        self._due_ns = ended_ns + max(KEEP_EVERY_NS, KEEP_SHARE * (ended_ns - began_ns))


def carry_out(
    study: Study, turns: tuple[Turn, ...], record: SweepRecord, watcher: RunWatcher, keep: Keep
) -> SweepRecord:
    """Make the runs of `turns` that do not exist yet, one after the other; `keep` the index now and then, and return it.

    Raises KeyboardInterrupt once the remains of an interrupted run are removed, `InputError` if a rig is not ready, and
    `Stopped` after several failed runs in a row. The index is correct in every case.
    """
    log, paced = RunLog(record, len(turns), watcher), PacedKeep(keep)
    try:
        with Runs(study, watcher) as runs:
            for turn in turns:
                point, files = study.points[turn.point]
                if log.is_done(point, turn.repeat):
                    continue
                made_run = runs.made_or_found(point, files, turn.repeat)
                log.add(point, made_run)
                if made_run.is_new and paced.is_due:
                    paced.keep(log.record)
                log.refuse_broken_row()
    finally:
        keep(log.record)
    return log.record


def run_record_of(point: str, number: int, summary: Summary) -> RunRecord:
    """Return the record of a run of the point of that name for the index."""
    reason = ""
    if summary.result is RunResult.BROKEN:
        reason = summary.reason.splitlines()[0] if summary.reason else "its records are inconsistent (checks)"
    return RunRecord(point, number, summary.result, reason, short_names(summary.diagnosis))


class RunLog:
    """The index while runs are made, with the status line of each and the time that remains."""

    def __init__(self, record: SweepRecord, total: int, watcher: RunWatcher) -> None:
        self._record = record
        self._runs = {(run.point, run.repeat): run for run in record.runs}
        self._total = total
        self._watcher = watcher
        self._began_ns = monotonic_ns()
        self._done = 0
        self._new = 0
        self._broken_in_a_row = 0
        self._reason = ""

    @property
    def record(self) -> SweepRecord:
        """Return the index with the runs made so far."""
        return replace(self._record, runs=tuple(self._runs.values()))

    def is_done(self, point: Point, repeat: int) -> bool:
        """Return whether the index has a run that did not break off; count it as done."""
        run = self._runs.get((point.name, repeat))
        if run is None or run.result is RunResult.BROKEN:
            return False
        self._done += 1
        return True

    def add(self, point: Point, made_run: MadeRun) -> None:
        """Add a run, in place of one that broke off, and report it."""
        run = made_run.record
        self._runs.pop((run.point, run.repeat), None)
        self._runs[run.point, run.repeat] = run
        self._done += 1
        if not made_run.is_new:
            return
        self._new += 1
        is_broken = run.result is RunResult.BROKEN
        self._broken_in_a_row = self._broken_in_a_row + 1 if is_broken else 0
        self._reason = run.reason
        self._watcher.report(
            f"[{self._done}/{self._total}] {point.name} repeat {run.repeat} ({point.words}): {made_run.words}{self._left_words()}"
        )

    def refuse_broken_row(self) -> None:
        """Raise `Stopped` after several failed runs in a row."""
        if self._broken_in_a_row >= MOST_BROKEN_IN_A_ROW:
            raise Stopped(f"{self._broken_in_a_row} runs in a row failed, the last one: {self._reason}")

    def _left_words(self) -> str:
        left_ns = (monotonic_ns() - self._began_ns) // self._new * (self._total - self._done)
        return f"; {approximate_duration(left_ns)} left" if left_ns >= LEAST_SHOWN_NS else ""


def _words(summary: Summary, record: RunRecord) -> str:
    if record.result is RunResult.BROKEN:
        return f"failed: {record.reason}"
    iteration = time_words(summary.job.iteration_jct_avg_ns)
    notes = [record.result.value] if record.result is not RunResult.NO_VERDICT else []
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

    def made_or_found(self, point: Point, files: PointFiles, number: int) -> MadeRun:
        """Return a run that exists and did not break off, else make it.

        Raises `ConfigError` if it exists and was made of other inputs; otherwise as `run`.
        """
        run = self.find(point, files, number)
        if run is not None and run.result is not RunResult.BROKEN:
            return MadeRun(run, "", is_new=False)
        summary = self.run(point, files, number)
        run = run_record_of(point.name, number, summary)
        return MadeRun(run, _words(summary, run), is_new=True)

    def find(self, point: Point, files: PointFiles, number: int) -> RunRecord | None:
        """Return the record of a run that exists. Raises `ConfigError` if it was made of other inputs."""
        if not self._study.directory.has(point.name, number):
            return None
        self._refuse_other_inputs(point, files, number)
        return run_record_of(point.name, number, self.earlier(point, number))

    def _refuse_other_inputs(self, point: Point, files: PointFiles, number: int) -> None:
        key = self._study.directory.key(point.name, number)
        if point.plan and key and key != self._key(point, files, number):
            path = self._study.directory.run(point.name, number)
            raise ConfigError(
                Problem(str(path), "was made of other files, traces, seed or options than now", AFRESH)
            )

    def _key(self, point: Point, files: PointFiles, number: int) -> str:
        options = self._study.options
        words = f"{options.expects} {options.output} {installed_version()}"
        return run_key(point, files, self._seed(number), words)

    def _seed(self, number: int) -> int:
        return self._study.sweep.seed + number * SEEDS_OF_A_REPEAT

    def earlier(self, point: Point, number: int) -> Summary:
        """Return the summary of a run that exists already. Raises `RunDirError` if one of its files is damaged."""
        run_dir = self._study.directory.run(point.name, number)
        refuse_damage(run_dir)
        return read_summary(run_dir)

    def run(self, point: Point, files: PointFiles, number: int) -> Summary:
        """Make one run and keep it once it is complete; return its summary.

        Raises `InputError` if it cannot be made, KeyboardInterrupt if a user stops it; it leaves no files then.
        """
        directory = self._study.directory
        try:
            room = directory.room(point.name, number)
            options = replace(self._options, out_dir=room)
            prepared, execution = self._prepare(point, files, number)
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
        in_twin = options.mode is Mode.TWIN
        return RunOptions(
            None, expects=options.expects, pages=False, lab=lab, output=options.output, in_one_write=in_twin
        )

    def plan(self, point: Point, files: PointFiles) -> Point:
        """Return a point with the digest of its plan, which its run uses. Raises an `InputError`."""
        prepared = self._plan_of(point, files)
        return replace(point, plan=point_record(point, files, prepared.plan).plan)

    def add_files(self, name: str, files: PointFiles) -> None:
        """Write the files of a point, unless they exist. Raises `ConfigError` if it had other files."""
        self._study.directory.add(name, files)

    def place(self, name: str, number: int) -> Path:
        """Return the directory of a complete run."""
        return self._study.directory.run(name, number)

    def _plan_of(self, point: Point, files: PointFiles) -> Prepared:
        if point.name not in self._plans:
            while len(self._plans) >= _KEPT_PLANS:
                del self._plans[next(iter(self._plans))]
            self._plans[point.name] = self._laid_out(files, TWIN_ID)
        return self._plans[point.name]

    def _prepare(self, point: Point, files: PointFiles, number: int) -> tuple[Prepared, Execution]:
        if self._study.options.mode is not Mode.TWIN:
            if self._study.options.mode is Mode.LAB:
                assert files.topology is not None
                self._lab.up(files.topology)
            return self._laid_out(files, new_run_id()), SessionExecution()
        prepared = self._plan_of(point, files)
        if point.plan:
            key = self._key(point, files, number)
            prepared = replace(prepared, texts={**prepared.texts, KEY_FILE: f"{key}\n"})
        settings = TwinSettings(seed=self._seed(number), sample_interval_ns=SAMPLE_INTERVAL_NS)
        return prepared, TwinExecution(settings)

    def _laid_out(self, files: PointFiles, run_id: str) -> Prepared:
        inputs = RunInputs(files.scenario, files.rig, files.topology, run_id)
        options = self._study.options
        keeps_case = options.output is Output.EVERYTHING
        return prepare(
            inputs,
            PrepareOptions(strict=options.strict, keeps_case=keeps_case, jobs=kept_jobs, plan=kept_plan),
        )
