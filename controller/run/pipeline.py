"""One way through a run: prepare, execute, write, expect, count, decide the verdict.

Every command that makes a run comes through here and differs in its options only: `prepare` takes `PrepareOptions`, `run_plan`
takes `RunOptions` and where the plan is executed. Decides the order of the steps, and what a run keeps of itself when one of
them cannot be done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import field, replace
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from etloop.contract.base.errors import InputError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.device_counts import CountedDevice
from etloop.contract.model.run import RunEnd, RunOutcome
from etloop.controller.case.pack import packed_case
from etloop.controller.run.device_counters import device_basis
from etloop.controller.run.device_facts import device_facts
from etloop.controller.run.expectation import Expectation, expect, iterations_reached
from etloop.controller.run.kept_run import SPOOL, RunMaterial, forget_spool, has_spool, kept_run, spool_of
from etloop.controller.run.out_directory import claimed_directory
from etloop.controller.run.prepare import InputFile, Prepared, PrepareOptions, RunInputs, new_run_id, prepare
from etloop.controller.run.record_budget import MOST_OPS, most_ops
from etloop.controller.run.verdict import basis_of, conditions_of_run
from etloop.controller.session.actions import RunProgress
from etloop.controller.session.service import SessionWatcher
from etloop.results.artifacts import (
    RunRecords,
    add_comparison,
    add_device_counters,
    add_joint_figures,
    add_verdict,
    measure_run_records,
)
from etloop.results.kpis.base_latency import with_measured_base
from etloop.results.measure.joined import NO_OPS
from etloop.results.measure.summary import Measurement, measure, workload_digest
from etloop.results.schema.case import CASE_FILE, RepeatedBy
from etloop.results.schema.device_facts import NO_FACTS
from etloop.results.schema.summary import Summary
from etloop.results.store.run_dir import PLAN_FILE, RunArtifacts, RunNotWritten, write_run
from etloop.results.store.table_writer import BlockTables
from etloop.results.verdict.junit_names import place_of
from etloop.runtime.malloc_tuning import release_free_memory
from etloop.traffic.twin import TwinOutcome

__all__ = ["InputFile", "PrepareOptions", "RunInputs", "new_run_id", "prepare", "run_plan"]

_CLOSED: Final = "closed from what was kept on disk: the run's own process did not get to write its results"
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


class RunWatcher(SessionWatcher, Protocol):
    """Gets what is to be known of a run while it goes on, its session included."""

    def enter(self, step: Step) -> None:
        """Take notice of a step that begins."""

    def stored(self, ops: int) -> None:
        """Take how many ops of a long run are in its tables, as they are written."""


class SilentWatcher:
    """Nobody looks."""

    def report(self, line: str) -> None:
        """See `RunWatcher`."""

    def enter(self, step: Step) -> None:
        """See `RunWatcher`."""

    def progress(self, progress: RunProgress) -> None:
        """See `SessionWatcher`."""

    def measured(self, records: NDArray[np.void]) -> None:
        """See `SessionWatcher`."""

    def stored(self, ops: int) -> None:
        """See `RunWatcher`."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """In what those who run a plan differ; the defaults are those of `etloop run`."""

    out_dir: Path | None
    """Where the results are kept; None: nowhere."""
    expects: bool = True
    """Whether the run is held against an ideal network and the twin."""
    pages: bool = True
    """Whether the report and the trace for a viewer are made, which `etloop report --write` can do later."""
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

    def execute(self, prepared: Prepared, lab: str, watcher: RunWatcher, spool: Path | None) -> Executed:
        """Execute a plan through `lab`, "" if the device is none. Raises an `InputError` before any traffic.

        What agents measure goes into `spool` as it comes; None: it stays in memory.
        """

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
    plan = prepared.plan
    figures = basis_of(prepared.scenario, prepared.rig, plan, prepared.device, in_twin=execution.is_twin)
    texts = dict[str, str | bytes](prepared.texts)
    if prepared.case is not None and options.out_dir is not None:
        digest = workload_digest(plan.tables)
        texts[CASE_FILE] = packed_case(prepared.case, plan.parts.run_id, digest, execution.repeated_by)
    material = RunMaterial(plan.tables, plan.connection_rows, plan.port_names, texts, figures, conditions)
    with ExitStack() as keeping:
        with claimed_directory(options.out_dir, plan.tables):
            spool = None
            if options.out_dir is not None and not execution.is_twin:
                keeping.callback(_forget_if_useless, options.out_dir)
                spool = keeping.enter_context(spool_of(options.out_dir, material))
            watcher.enter(Step.EXECUTE)
            executed = _executed(prepared, execution, options, watcher, spool)
        try:
            return _finished(material, _Run(prepared, execution, executed), options, watcher)
        finally:
            release_free_memory()


def _executed(
    prepared: Prepared, execution: Execution, options: RunOptions, watcher: RunWatcher, spool: Path | None
) -> Executed:
    try:
        return execution.execute(prepared, options.lab or prepared.rig.lab, watcher, spool)
    except InputError:
        if options.out_dir is not None:
            forget_spool(options.out_dir)
        raise


def close_run(run_dir: Path, reason: str, watcher: RunWatcher) -> Summary | None:
    """Make the results of a run from what it measured until its process ended, or its disk was full; None: it had not begun.

    It is held against nothing, and what was read of the device's counters is not among it. `reason`: why it ended, if it could
    not say so.

    Raises:
        ConfigError: its process still lives.
        RunDirError: there is no spool, or it is damaged.
        SpoolFailed: what was measured cannot be read.
        RunNotWritten: the results cannot be kept; the spool stays as it is.
    """
    with kept_run(run_dir, reason) as (material, outcome):
        if outcome is None:
            return None
        executed = Executed(outcome, material.connection_rows, notes=(_CLOSED,))
        finished = _finished(material, _Run(None, None, executed), RunOptions(run_dir), watcher)
    forget_spool(run_dir)
    return finished.summary


@dataclass(frozen=True, slots=True, eq=False)
class _Run:
    """A run that was executed; of one that is closed later nothing is there but that."""

    prepared: Prepared | None
    execution: Execution | None
    executed: Executed


def _finished(material: RunMaterial, ran: _Run, options: RunOptions, watcher: RunWatcher) -> FinishedRun:
    """Measure what was executed, write and judge it."""
    executed, outcome = ran.executed, ran.executed.outcome
    connections = material.plan.connections
    figures = with_measured_base(material.basis, outcome, connections, executed.connection_rows)
    material = replace(material, basis=figures)
    stopped_in = Step.EXECUTE if outcome.state is RunEnd.STOPPED else None
    if options.out_dir is not None or material.conditions:
        watcher.enter(Step.WRITE)
    measurement, made = _measured(material, executed, options, watcher)
    if options.out_dir is not None and (plan_file := options.out_dir / SPOOL / PLAN_FILE).exists():
        made[PLAN_FILE] = plan_file
    records = _records(_with_lab(material, ran), executed)
    if options.out_dir is None and not material.conditions:
        run = add_joint_figures(measure_run_records(records, measurement), material.basis)
        return FinishedRun(run.summary, measurement, executed, stopped_in)
    run = _keep(options, measure_run_records(records, measurement, made))
    if options.expects and stopped_in is None and ran.prepared is not None and ran.execution is not None:
        watcher.enter(Step.EXPECT)
        work = partial(_expectation, ran.prepared, executed, measurement, watcher)
        try:
            found = ran.execution.unless_stopped(work)
            run = _keep(options, add_comparison(run, measurement, found.runs, found.absent), run)
        except (RunStopped, MemoryError, RunNotWritten) as error:
            stopped_in = Step.EXPECT if isinstance(error, RunStopped) else None
            why = str(error) or "out of memory"
            watcher.report(f"{why}: the run is kept, without ideal network and twin")
    if executed.counted is not None and ran.prepared is not None:
        watcher.enter(Step.COUNT)
        basis = device_basis(ran.prepared.scenario, ran.prepared.rig, outcome)
        run = _keep(options, add_device_counters(run, executed.counted, basis), run)
    if measurement.left_out:
        # The tables have them: of a long run a second copy is too much.
        measurement = replace(measurement, ops=NO_OPS, job_ops=NO_OPS)
    watcher.enter(Step.VERDICT)
    facts = device_facts(material.texts, options.out_dir or Path()) if options.pages else NO_FACTS
    place = "" if options.out_dir is None else place_of(options.out_dir)
    judged = add_verdict(run, material.basis, material.conditions, facts, pages=options.pages, place=place)
    run = _keep(options, judged, run)
    return FinishedRun(run.summary, measurement, executed, stopped_in)


def _with_lab(material: RunMaterial, ran: _Run) -> RunMaterial:
    """Return the material with a case that says how the lab of the run came up, which is known after it only."""
    prepared, lab_up = ran.prepared, ran.executed.lab_up
    if prepared is None or prepared.case is None or ran.execution is None or CASE_FILE not in material.texts:
        return material
    run_id, digest = prepared.plan.parts.run_id, workload_digest(material.plan)
    case = packed_case(prepared.case, run_id, digest, ran.execution.repeated_by, lab_up)
    return replace(material, texts={**material.texts, CASE_FILE: case})


def _measured(
    material: RunMaterial, executed: Executed, options: RunOptions, watcher: RunWatcher
) -> tuple[Measurement, dict[str, Path]]:
    """Work the figures out, and write the tables that are too long to be in memory as they are read."""
    most = most_ops(executed.outcome)
    try:
        measurement, made = _measured_at_most(material, executed, options, watcher, most)
    except MemoryError:
        watcher.report("out of memory: the tables are worked through in parts")
        measurement, made = _measured_at_most(material, executed, options, watcher, MOST_OPS)
    except OSError as error:
        problem = Problem(str(options.out_dir), f"cannot write the run: {error}", "make room on its disk")
        raise RunNotWritten(str(problem)) from error
    noted = replace(measurement.summary, notes=(*measurement.summary.notes, *executed.notes))
    return replace(measurement, summary=noted), made


def _measured_at_most(
    material: RunMaterial, executed: Executed, options: RunOptions, watcher: RunWatcher, most: int | None
) -> tuple[Measurement, dict[str, Path]]:
    outcome, tables, rows = executed.outcome, material.plan, executed.connection_rows
    if most is None or options.out_dir is None:
        return measure(outcome, tables, rows, most), {}
    writing = BlockTables(options.out_dir / SPOOL, outcome, tables, watcher.stored)
    try:
        measurement = measure(outcome, tables, rows, most, writing)
        return measurement, writing.finish()
    except BaseException:
        writing.abandon()
        raise


def _forget_if_useless(out_dir: Path) -> None:
    """A spool has done its service when results are written."""
    if not has_spool(out_dir):
        forget_spool(out_dir)


def _records(material: RunMaterial, executed: Executed) -> RunRecords:
    return RunRecords(
        executed.outcome,
        material.plan,
        executed.connection_rows,
        material.port_names,
        material.texts,
        executed.tables,
    )


def _keep(options: RunOptions, now: RunArtifacts, before: RunArtifacts | None = None) -> RunArtifacts:
    if options.out_dir is not None:
        write_run(options.out_dir, now, before)
    return now


def _expectation(
    prepared: Prepared, executed: Executed, measurement: Measurement, watcher: RunWatcher
) -> Expectation:
    """Work out in virtual time what the run should have taken. A twin is held against the ideal network only."""
    device = prepared.device if executed.twin is None else None
    watcher.report(f"held against an ideal network{' and the twin' if device else ''}, in virtual time")
    reached = iterations_reached(measurement.ops)
    found = expect(prepared.plan, device, iterations=reached)
    return found if executed.twin is None else replace(found, absent=(IS_THE_TWIN,))
