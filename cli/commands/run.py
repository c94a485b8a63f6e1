"""`etloop run` and `etloop plan`: a scenario and a rig file in, a run directory and a table out, or what would be sent."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path

from etloop.cli.progress import reading_bar, run_watcher
from etloop.cli.result import CommandResult, to_json
from etloop.cli.text.plan import render_plan
from etloop.contract.base.errors import ExitCode
from etloop.controller.plan.jobs import build_jobs
from etloop.controller.plan.report import report_plan
from etloop.controller.plan.run_numbers import PLAN_ID
from etloop.controller.run.execute import SessionExecution
from etloop.controller.run.out_directory import refuse_used_directory
from etloop.controller.run.pipeline import (
    PrepareOptions,
    RunInputs,
    RunOptions,
    prepare,
    run_plan,
)
from etloop.results.schema.typed_json import to_json as summary_json
from etloop.results.text.table import render


def run_files(
    scenario: Path,
    rig: Path,
    out_dir: Path,
    *,
    as_json: bool = False,
    progress_bar: bool = True,
    expects: bool = True,
    strict: bool = False,
) -> ExitCode:
    """Run a scenario on a rig whose agents may join before or after, and leave the results in `out_dir`.

    Print what happens to standard error, the table (or summary.json) to standard output, and return the run's exit code.
    Raises an `InputError` before any traffic if files, plan, rig or `out_dir` cannot be used.
    """
    refuse_used_directory(out_dir)
    prepared = prepare(RunInputs.of(scenario, rig), PrepareOptions(strict=strict))
    with run_watcher(bar=progress_bar and not as_json) as watcher:
        finished = run_plan(prepared, SessionExecution(), RunOptions(out_dir, expects=expects), watcher)
    summary = finished.summary
    sys.stdout.write(summary_json(summary) if as_json else render(summary, str(out_dir)))
    sys.stdout.flush()
    return summary.result.exit_code


def run_command(parsed: argparse.Namespace) -> CommandResult:
    """Run the scenario that the command line names. Raises as `run_files`."""
    code = run_files(
        parsed.scenario,
        parsed.rig,
        parsed.out,
        as_json=parsed.json,
        progress_bar=not parsed.no_progress,
        expects=not parsed.no_twin,
        strict=parsed.strict,
    )
    return CommandResult("", code)


def plan_command(parsed: argparse.Namespace) -> CommandResult:
    """Return the plan in words or as JSON. Raises as `prepare`."""
    inputs = RunInputs.of(parsed.scenario, parsed.rig, run_id=PLAN_ID)
    with reading_bar() as bar:
        prepared = prepare(inputs, PrepareOptions(jobs=partial(build_jobs, progress=bar)))
    report = report_plan(prepared.plan)
    return CommandResult(to_json(asdict(report)) if parsed.json else render_plan(report))
