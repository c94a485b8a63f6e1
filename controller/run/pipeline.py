"""One way through a run: prepare, execute, then write, compare, count and evaluate (`run_results`).

Every command that makes a run comes through here and differs in its options only: `prepare` takes `PrepareOptions`, `run_plan`
takes `RunOptions` and where the plan is executed.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

from etloop.contract.base.errors import InputError
from etloop.controller.case.pack import packed_case
from etloop.controller.plan.serving_jobs import refuse_serving
from etloop.controller.run.execution import (
    Executed,
    Execution,
    FinishedRun,
    RunOptions,
    RunStopped,
    RunWatcher,
    SilentWatcher,
    Step,
)
from etloop.controller.run.flow_ways import Hashes
from etloop.controller.run.kept_run import RunMaterial, forget_spool, has_spool, kept_run, spool_of
from etloop.controller.run.out_directory import claimed_directory
from etloop.controller.run.prepare import InputFile, Prepared, PrepareOptions, RunInputs, new_run_id, prepare
from etloop.controller.run.verdict import basis_of, conditions_of_run
from etloop.results.measure.workload_digest import workload_digest
from etloop.results.schema.case import CASE_FILE
from etloop.runtime.malloc_tuning import release_free_memory
from etloop.runtime.module_loading import quick_loading

if TYPE_CHECKING:
    from etloop.results.schema.summary import Summary

__all__ = [
    "Executed",
    "Execution",
    "FinishedRun",
    "InputFile",
    "PrepareOptions",
    "RunInputs",
    "RunOptions",
    "RunStopped",
    "RunWatcher",
    "SilentWatcher",
    "Step",
    "close_run",
    "new_run_id",
    "prepare",
    "run_plan",
]

_CLOSED: Final = "written from the spool: the run's process ended before it wrote its results"


def run_plan(
    prepared: Prepared, execution: Execution, options: RunOptions, watcher: RunWatcher
) -> FinishedRun:
    """Execute a plan and write its results as the options say.

    A run that breaks off is written like any other, with its reason. A stopped run is not compared with ideal network and twin.

    Raises:
        InputError: rig, device, lab or directory cannot be used, or the workload is one of serving; no traffic was sent.
        RunNotWritten: the results cannot be written.
    """
    refuse_serving(prepared.scenario)
    conditions = conditions_of_run(
        prepared.scenario, prepared.rig, prepared.device, watcher.report, in_twin=execution.is_twin
    )
    plan = prepared.plan
    is_lab = bool(options.lab or prepared.rig.lab)
    hashes = Hashes(execution.repeated_by.seed) if execution.is_twin or is_lab else None
    figures = basis_of(
        prepared.scenario, prepared.rig, plan, prepared.device, hashes, in_twin=execution.is_twin
    )
    texts = dict[str, str | bytes](prepared.texts)
    if prepared.case is not None and options.out_dir is not None:
        digest = workload_digest(plan.tables)
        texts[CASE_FILE] = packed_case(prepared.case, plan.parts.run_id, digest, execution.repeated_by)
    material = RunMaterial(plan.tables, plan.connection_rows, plan.port_names, texts, figures, conditions)
    with ExitStack() as keeping:
        with claimed_directory(options.out_dir, plan.tables):
            spool = None
            if options.out_dir is not None and not execution.is_twin:
                keeping.callback(_forget_if_written, options.out_dir)
                spool = keeping.enter_context(spool_of(options.out_dir, material))
            watcher.enter(Step.EXECUTE)
            executed = _execute(prepared, execution, options, watcher, spool)
        try:
            # Imported here, because traffic does not have to wait for the modules of tables, reports and twin.
            with quick_loading():
                from etloop.controller.run.run_results import ExecutedRun, finish_run

            return finish_run(material, ExecutedRun(prepared, execution, executed), options, watcher)
        finally:
            release_free_memory()


def _execute(
    prepared: Prepared, execution: Execution, options: RunOptions, watcher: RunWatcher, spool: Path | None
) -> Executed:
    try:
        return execution.execute(prepared, options.lab or prepared.rig.lab, watcher, spool)
    except InputError:
        if options.out_dir is not None:
            forget_spool(options.out_dir)
        raise


def close_run(run_dir: Path, reason: str, watcher: RunWatcher) -> Summary | None:
    """Write the results of a run whose process ended, or whose disk was full, from its spool; None: it sent no traffic.

    They contain no comparison with ideal network and twin, and no device counters. `reason`: why the run ended, if the spool
    does not have the reason.

    Raises:
        ConfigError: its process is still running.
        RunDirError: there is no spool, or it is damaged.
        SpoolFailed: the records cannot be read.
        RunNotWritten: the results cannot be written; the spool is unchanged.
    """
    from etloop.controller.run.run_results import ExecutedRun, finish_run

    with kept_run(run_dir, reason) as (material, outcome):
        if outcome is None:
            return None
        executed = Executed(outcome, material.connection_rows, notes=(_CLOSED,))
        finished = finish_run(material, ExecutedRun(None, None, executed), RunOptions(run_dir), watcher)
    forget_spool(run_dir)
    return finished.summary


def _forget_if_written(out_dir: Path) -> None:
    """Delete the spool once the results are written."""
    if not has_spool(out_dir):
        forget_spool(out_dir)
