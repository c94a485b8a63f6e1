"""`run`: prepares, runs a session to its end, leaves the run directory. A shell: event loop, progress bar, file system.

Decides nothing about the run; `etloop run` and `etloop demo` both come through `run_files`.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from etloop.cli.stderr import print_status
from etloop.contract.base.errors import ConfigError, ExitCode, Problem
from etloop.contract.base.units import approximate_bytes
from etloop.controller.run.device_check import contradictions_of
from etloop.controller.run.device_counters import counted_run, counting_of, device_basis
from etloop.controller.run.expectation import DescribedDevice, Expectation, expect
from etloop.controller.run.link_timeline import LinkTimeline
from etloop.controller.run.prepare import Prepared, prepare
from etloop.controller.run.verdict import add_verdict, basis_of, requested_checks
from etloop.controller.session.service import OnProgress, run
from etloop.controller.session.settings import CurveServer, SessionSettings
from etloop.results.schema.summary import CheckResult, RunState, Summary
from etloop.results.schema.typed_json import to_json
from etloop.results.schema.verdict import Result
from etloop.results.store.run_dir import RunNotWritten, add_comparison, add_device, write_run
from etloop.results.text.table import render
from etloop.runtime.clock import wall_time_text
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from pathlib import Path

    from etloop.contract.model.run import RunOutcome
    from etloop.controller.plan.plan import Plan
    from etloop.controller.session.actions import RunProgress

PrintStatus = Callable[[str], None]
"""Takes one line for people."""
_BAR_COLUMNS: Final = (
    TextColumn("{task.fields[state]:>8}"),
    BarColumn(bar_width=40),
    TextColumn("{task.completed:.0f}/{task.total:.0f} ops"),
    TextColumn("{task.fields[moved]}"),
    TimeElapsedColumn(),
)


_EXIT_CODES: Final = {
    Result.PASS: ExitCode.PASS,
    Result.FAIL: ExitCode.VERDICT_FAILED,
    Result.INCONCLUSIVE: ExitCode.INCONCLUSIVE,
}


@dataclass(frozen=True, slots=True, eq=False)
class FinishedRun:
    """A run that left its directory."""

    summary: Summary
    table: str
    """What a person reads."""

    @property
    def exit_code(self) -> ExitCode:
        """An error unless the run ended by itself and every byte it measured is accounted for; else as the verdict is."""
        if self.summary.state is not RunState.DONE or not self.summary.checks_hold:
            return ExitCode.RUN_ERROR
        verdict = self.summary.verdict
        return ExitCode.PASS if verdict is None else _EXIT_CODES[verdict.result]

    @property
    def reason(self) -> str:
        """Why it is not a pass, a line each, the gravest first; "" if it is one."""
        if self.exit_code is ExitCode.PASS:
            return ""
        summary = self.summary
        unsound = [check.name for check in summary.checks if check.result is CheckResult.FAIL]
        lines = [summary.reason] if summary.reason else []
        lines += [f"the run's own records do not add up: {', '.join(unsound)}"] if unsound else []
        return "\n".join((*lines, *(summary.verdict.reasons if summary.verdict is not None else ())))


def run_files(
    scenario_path: Path,
    rig_path: Path,
    out_dir: Path,
    *,
    as_json: bool = False,
    progress_bar: bool = True,
    compares: bool = True,
    strict: bool = False,
) -> int:
    """As `run_live`, and prints: events to standard error, the table (or summary.json) to standard output.

    Returns the exit code of the run; raises as `run_live`. The bar is shown only on a terminal.
    """
    bar = progress_bar and not as_json and sys.stderr.isatty()
    finished = run_live(
        scenario_path,
        rig_path,
        out_dir,
        print_status=print_status,
        progress_bar=bar,
        compares=compares,
        strict=strict,
    )
    sys.stdout.write(to_json(finished.summary) if as_json else finished.table)
    sys.stdout.flush()
    return int(finished.exit_code)


def run_live(
    scenario_path: Path,
    rig_path: Path,
    out_dir: Path,
    *,
    print_status: PrintStatus,
    progress_bar: bool,
    compares: bool = True,
    strict: bool = False,
) -> FinishedRun:
    """Runs a scenario on a rig whose agents may join before or after, and leaves the results in `out_dir`.

    Raises an `InputError` before any traffic if files, plan, rig or `out_dir` cannot be used. A run that breaks later
    is written like any other, with its reason. SIGINT and SIGTERM end the session, not the process. Afterwards the run is
    held against what was to be expected of it, unless `compares` is false. What the device's profile contradicts is said; where
    it is `strict`, it is an error.
    """
    refuse_used_directory(out_dir)
    prepared = prepare(scenario_path, rig_path, run_id=run_id())
    return run_prepared(
        prepared,
        out_dir,
        print_status=print_status,
        progress_bar=progress_bar,
        compares=compares,
        strict=strict,
    )


def run_prepared(
    prepared: Prepared,
    out_dir: Path,
    *,
    print_status: PrintStatus,
    progress_bar: bool,
    compares: bool = True,
    strict: bool = False,
    pages: bool = True,
    overload: Callable[[], tuple[str, ...]] = tuple,
    lab: str = "",
) -> FinishedRun:
    """As `run_live`, of a plan that has been laid out.

    Without `pages` the report and the trace for a viewer are left out, which `etloop report --verdict` makes later. `overload` is
    asked after the run in which respects a soft switch that stood for the device was itself the limit. `lab` is the one that the
    scenario's timeline is carried out on, if it is not the one that the rig names.
    """
    requested = requested_checks(prepared.scenario, prepared.rig, print_status)
    if strict and (problems := contradictions_of(prepared.scenario, prepared.rig)):
        raise ConfigError(*problems)
    settings = session_settings(prepared)
    plan = prepared.plan
    counting = counting_of(prepared.rig)
    timeline = LinkTimeline(prepared.scenario.timeline, lab or prepared.rig.lab)
    beside = timeline.accompany if prepared.scenario.timeline else None
    try:
        with shown_progress(progress_bar) as on_progress:
            outcome, counted = asyncio.run(
                counted_run(
                    counting,
                    lambda: run(settings, plan.assignments, plan.tables, on_progress, print_status, beside),
                    print_status,
                )
            )
    finally:
        timeline.restore()
    outcome = replace(outcome, events=timeline.events())
    overloaded = overload()
    write_run(
        out_dir,
        outcome,
        plan.tables,
        prepared.scenario_text,
        prepared.rig_text,
        plan.connection_rows,
        plan.port_names,
    )
    if compares:
        print_status(
            "held against an ideal network"
            + (" and the twin" if prepared.device else "")
            + ", in virtual time"
        )
        compared(plan, prepared.device, out_dir, outcome, print_status)
    if counted is not None:
        add_device(out_dir, counted, device_basis(prepared.scenario, prepared.rig, outcome))
    basis = basis_of(prepared.scenario, prepared.rig, plan)
    summary = add_verdict(out_dir, requested, basis, pages=pages, overload=overloaded)
    return FinishedRun(summary, render(summary, str(out_dir)))


def compared(
    plan: Plan, device: DescribedDevice | None, out_dir: Path, outcome: RunOutcome, print_status: PrintStatus
) -> Summary | None:
    """Works out in virtual time what the run should have taken, and adds it to the run directory.

    None if that was interrupted, or memory or disk do not allow it: the run stands as it is.
    """
    try:
        expectation = expect(plan, device, iterations=iterations_reached(outcome))
        return kept_beside(plan, out_dir, outcome, expectation)
    except KeyboardInterrupt:
        why = "interrupted"
    except MemoryError:
        why = "out of memory"
    except RunNotWritten as error:
        why = str(error)
    print_status(f"{why}: the run is kept, without ideal and twin beside it")
    return None


def iterations_reached(outcome: RunOutcome) -> int:
    """How many iterations a run began, one at least."""
    begun = (int(agent.ops["iteration"].max()) + 1 for agent in outcome.agents if len(agent.ops))
    return max(begun, default=1)


def kept_beside(plan: Plan, out_dir: Path, outcome: RunOutcome, expectation: Expectation) -> Summary:
    """Adds what was to be expected of a run to its directory. Raises `RunNotWritten`."""
    return add_comparison(
        out_dir, outcome, plan.tables, plan.connection_rows, expectation.runs, expectation.absent
    )


def refuse_used_directory(out_dir: Path) -> None:
    """Raises `ConfigError` unless `out_dir` is absent or an empty directory."""
    try:
        used = out_dir.exists() and (not out_dir.is_dir() or next(out_dir.iterdir(), None) is not None)
    except OSError as error:
        what = f"cannot be looked into: {error.strerror or error}"
        raise ConfigError(Problem(str(out_dir), what, "choose a directory that can be written")) from None
    if used:
        what = "is not an empty directory, and results are never mixed or overwritten"
        raise ConfigError(
            Problem(str(out_dir), what, "name a new directory with --out, or move the old one away")
        )


def session_settings(prepared: Prepared) -> SessionSettings:
    """The session's settings as scenario and rig state them."""
    scenario, rig = prepared.scenario, prepared.rig
    return SessionSettings(
        run_id=next(iter(prepared.plan.assignments.values())).run_id,
        bind=rig.bind,
        curve=CurveServer.of(rig.security),
        standing_by=tuple(one.name for one in rig.agents if one.name not in prepared.plan.assignments),
        insecure=rig.security.insecure,
        gather_timeout_ns=scenario.gather_timeout_ns,
        stall_timeout_ns=scenario.stall_timeout_ns,
        lost_after_ns=scenario.lost_after_ns,
    )


def run_id() -> str:
    """A name for a run: wall time to the millisecond, so that runs of one controller sort by their start."""
    return re.sub(r"[-:]|\+.*", "", wall_time_text()).replace("T", "-")


@contextmanager
def shown_progress(shown: bool) -> Iterator[OnProgress | None]:
    """A bar on standard error while a session runs, if it is `shown`."""
    if not shown:
        yield None
        return
    with Progress(*_BAR_COLUMNS, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("run", total=1, state="", moved="")

        def show(progress: RunProgress) -> None:
            bar.update(
                task,
                completed=progress.ops_done,
                total=max(progress.ops_total, 1),
                state=progress.state.name,
                moved=approximate_bytes(progress.wire_tx_bytes),
            )

        yield show
