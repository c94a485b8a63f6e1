"""One way through a run: prepare, execute, write, expect, count, decide the verdict.

Every command that makes a run comes through here and differs in its options only: `prepare` takes `PrepareOptions`, `run_plan`
takes `RunOptions` and where the plan is executed. Decides the order of the steps, and what a run keeps of itself when one of
them cannot be done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import numpy as np
from etloop.contract.model.device_counts import CountedDevice
from etloop.contract.model.run import RunEnd, RunOutcome
from etloop.controller.case.making import packed_case
from etloop.controller.run.device_counters import device_basis
from etloop.controller.run.expectation import Expectation, expect, iterations_reached
from etloop.controller.run.out_directory import claimed_directory
from etloop.controller.run.prepare import InputFile, Prepared, PrepareOptions, RunInputs, new_run_id, prepare
from etloop.controller.run.verdict import basis_of, conditions_of_run
from etloop.controller.session.actions import RunProgress
from etloop.results.artifacts import (
    RunRecords,
    compared_run,
    counted_run,
    measured_run,
    run_with_verdict,
    with_losses,
)
from etloop.results.measure.summary import Measurement, measure
from etloop.results.schema.case import CASE_FILE, RepeatedBy
from etloop.results.schema.summary import Summary
from etloop.results.store.run_dir import RunArtifacts, RunNotWritten, write_run
from etloop.traffic.twin import TwinOutcome
from numpy.typing import NDArray

__all__ = ["InputFile", "PrepareOptions", "RunInputs", "new_run_id", "prepare", "run_plan"]

IS_THE_TWIN: Final = "twin: this run is the twin"
_T = TypeVar("_T")


class Step(Enum):
    """Where a run stands."""

    PREPARE = "prepared"
    EXECUTE = "executed"
    WRITE = "written"
    EXPECT = "held against what was expected of it"
    COUNT = "given the device's counters"
    VERDICT = "given its verdict"


class RunStopped(Exception):
    """Somebody wants the run to end before a piece of work is done."""

    def __init__(self) -> None:
        super().__init__("stopped")


class RunWatcher(Protocol):
    """Gets what is to be known of a run while it goes on."""

    def report(self, line: str) -> None:
        """Take a line for people."""

    def enter(self, step: Step) -> None:
        """Take notice of a step that begins."""

    def progress(self, progress: RunProgress) -> None:
        """Take how far a session is, about ten times a second."""


class SilentWatcher:
    """Nobody looks."""

    def report(self, line: str) -> None:
        """See `RunWatcher`."""

    def enter(self, step: Step) -> None:
        """See `RunWatcher`."""

    def progress(self, progress: RunProgress) -> None:
        """See `RunWatcher`."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """In what those who run a plan differ; the defaults are those of `etloop run`."""

    out_dir: Path | None
    """Where the results are kept; None: nowhere."""
    expects: bool = True
    """Whether the run is held against an ideal network and the twin."""
    pages: bool = True
    """Whether the report and the trace for a viewer are made, which `etloop report --verdict` can do later."""
    lab: str = ""
    """What stands for the device, if it is not the lab that the rig names."""


@dataclass(frozen=True, slots=True, eq=False)
class Executed:
    """What the execution of a plan left."""

    outcome: RunOutcome
    connection_rows: Mapping[str, NDArray[np.int32]]
    """Per agent: row i of its connections is this row of the plan's."""
    counted: CountedDevice | None = None
    """What was read of the device's counters."""
    tables: Mapping[str, Any] = field(default_factory=dict)
    """By name: what only a twin knows."""
    twin: TwinOutcome | None = None
    """Of a run in virtual time."""
    notes: tuple[str, ...] = ()
    """What a reader should know of how it was executed."""
    lab_up: str = ""
    """Options of `etloop lab up`, beside those that a rig tells, of the lab that it went through."""


class Execution(Protocol):
    """How plans are executed: by agents (`execute.SessionExecution`), or in virtual time (`twin.TwinExecution`)."""

    @property
    def is_twin(self) -> bool:
        """Return whether it is in virtual time."""

    @property
    def repeated_by(self) -> RepeatedBy:
        """Return the command that executes a plan in the same way."""

    def execute(self, prepared: Prepared, lab: str, watcher: RunWatcher) -> Executed:
        """Execute a plan through `lab`, "" if the device is none. Raises an `InputError` before any traffic."""

    def unless_stopped(self, work: Callable[[], _T]) -> _T:
        """Return what `work` does; raise `RunStopped` as soon as somebody wants the run to end."""


@dataclass(frozen=True, slots=True, eq=False)
class FinishedRun:
    """A run that is over."""

    summary: Summary
    measurement: Measurement
    executed: Executed
    stopped_in: Step | None = None
    """The step that somebody ended early."""


def run_plan(
    prepared: Prepared, execution: Execution, options: RunOptions, watcher: RunWatcher
) -> FinishedRun:
    """Execute a plan, keep the results where the options say, and work out what came of it.

    A run that breaks off is kept like any other, with its reason; so is one that is stopped, which is held against nothing.

    Raises:
        InputError: rig, device, lab or directory cannot be used; nothing was sent.
        RunNotWritten: the results cannot be kept.
    """
    conditions = conditions_of_run(prepared.scenario, prepared.rig, watcher.report, in_twin=execution.is_twin)
    with claimed_directory(options.out_dir, prepared.plan.tables):
        watcher.enter(Step.EXECUTE)
        executed = execution.execute(prepared, options.lab or prepared.rig.lab, watcher)
    outcome, plan = executed.outcome, prepared.plan
    measurement = measure(outcome, plan.tables, executed.connection_rows)
    noted = replace(measurement.summary, notes=(*measurement.summary.notes, *executed.notes))
    measurement = replace(measurement, summary=noted)
    stopped_in = Step.EXECUTE if outcome.state is RunEnd.STOPPED else None
    figures = basis_of(prepared.scenario, prepared.rig, plan)
    if options.out_dir is None and not conditions:
        run = with_losses(measured_run(_records(prepared, executed), measurement), figures)
        return FinishedRun(run.summary, measurement, executed, stopped_in)
    watcher.enter(Step.WRITE)
    records = _records(prepared, executed)
    if prepared.case is not None and options.out_dir is not None:
        digest = measurement.summary.workload.digest
        repeated_by = execution.repeated_by
        case = packed_case(prepared.case, plan.parts.run_id, digest, repeated_by, executed.lab_up)
        records = replace(records, texts={**records.texts, CASE_FILE: case})
    run = _keep(options, measured_run(records, measurement))
    if options.expects and stopped_in is None:
        watcher.enter(Step.EXPECT)
        try:
            found = execution.unless_stopped(lambda: _expectation(prepared, executed, watcher))
            run = _keep(options, compared_run(run, measurement, found.runs, found.absent), run)
        except (RunStopped, MemoryError, RunNotWritten) as error:
            stopped_in = Step.EXPECT if isinstance(error, RunStopped) else None
            why = str(error) or "out of memory"
            watcher.report(f"{why}: the run is kept, without ideal network and twin")
    if executed.counted is not None:
        watcher.enter(Step.COUNT)
        basis = device_basis(prepared.scenario, prepared.rig, outcome)
        run = _keep(options, counted_run(run, executed.counted, basis), run)
    watcher.enter(Step.VERDICT)
    run = _keep(options, run_with_verdict(run, figures, conditions, pages=options.pages), run)
    return FinishedRun(run.summary, measurement, executed, stopped_in)


def _records(prepared: Prepared, executed: Executed) -> RunRecords:
    plan, texts = prepared.plan, dict[str, str | bytes](prepared.texts)
    return RunRecords(
        executed.outcome, plan.tables, executed.connection_rows, plan.port_names, texts, executed.tables
    )


def _keep(options: RunOptions, now: RunArtifacts, before: RunArtifacts | None = None) -> RunArtifacts:
    if options.out_dir is not None:
        write_run(options.out_dir, now, before)
    return now


def _expectation(prepared: Prepared, executed: Executed, watcher: RunWatcher) -> Expectation:
    """Work out in virtual time what the run should have taken. A twin is held against the ideal network only."""
    device = prepared.device if executed.twin is None else None
    watcher.report(f"held against an ideal network{' and the twin' if device else ''}, in virtual time")
    found = expect(prepared.plan, device, iterations=iterations_reached(executed.outcome))
    return found if executed.twin is None else replace(found, absent=(IS_THE_TWIN,))
