"""`etloop run` and `etloop plan`: read a scenario and a rig file; leave a run directory and print a table, or print what would
be sent."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from etloop.cli.case_files import given_files
from etloop.cli.progress import live_page, reading_bar, run_watcher
from etloop.cli.result import CommandResult, on_terminal, pages_of, to_json
from etloop.cli.text.live import LiveRun
from etloop.cli.text.plan import render_plan
from etloop.cli.text.plan_summary import render_summary
from etloop.contract.base.errors import ExitCode
from etloop.controller.plan.jobs import build_jobs
from etloop.controller.plan.report import report_plan
from etloop.controller.plan.run_numbers import PLAN_ID
from etloop.controller.plan.summary import PlanSummary
from etloop.controller.run.execute import SessionExecution
from etloop.controller.run.out_directory import refuse_used_directory
from etloop.controller.run.pipeline import (
    PrepareOptions,
    RunInputs,
    RunOptions,
    prepare,
    run_plan,
)
from etloop.controller.run.prepare import Prepared, summarised
from etloop.results.schema.case import Repeat
from etloop.results.schema.typed_json import to_json as summary_json
from etloop.results.text.table import render


def run_files(
    scenario: Path,
    rig: Path,
    out_dir: Path,
    *,
    as_json: bool = False,
) -> ExitCode:
    """Run a scenario on a rig whose agents may join before or after, and leave the results in `out_dir`.

    Print progress to standard error and the table (or summary.json) to standard output, and return the run's exit code. Raise
    an `InputError` before any traffic if files, plan, rig or `out_dir` cannot be used.
    """
    refuse_used_directory(out_dir)
    prepared = prepare(RunInputs.of(scenario, rig))
    return _run(prepared, RunOptions(out_dir), as_json=as_json)


def _run(
    prepared: Prepared,
    options: RunOptions,
    *,
    as_json: bool,
    progress_bar: bool = True,
    web: tuple[str, int] | None = None,
) -> ExitCode:
    ports = {name: port.link_bps for name, port in prepared.rig.ports.items()}
    live = LiveRun(prepared.plan.tables.iterations, ports)
    with ExitStack() as stack:
        page = stack.enter_context(live_page(web, options.out_dir)) if web is not None else None
        watcher = stack.enter_context(run_watcher(live, page, shows=progress_bar and not as_json))
        finished = run_plan(prepared, SessionExecution(), options, watcher)
    summary = finished.summary
    if as_json:
        sys.stdout.write(summary_json(summary))
    else:
        pages = pages_of(options.out_dir) if options.out_dir is not None else {}
        sys.stdout.write(on_terminal(render(summary, str(options.out_dir), pages=pages)))
    sys.stdout.flush()
    return summary.result.exit_code


def run_command(parsed: argparse.Namespace) -> CommandResult:
    """Run the scenario or the case that the command line names. Raise as `run_files` does."""
    refuse_used_directory(parsed.out)
    with given_files(parsed, Repeat.RUN) as files:
        prepared = files.settled(prepare(files.inputs, PrepareOptions(strict=parsed.strict)))
        options = RunOptions(parsed.out, expects=not parsed.no_twin)
        return CommandResult(
            "",
            _run(prepared, options, as_json=parsed.json, progress_bar=not parsed.no_progress, web=parsed.web),
        )


def _named(summary: PlanSummary, shown: Callable[[str], str]) -> PlanSummary:
    """Return a summary with the name of the case in place of file paths."""
    return replace(
        summary,
        source=shown(summary.source),
        warnings=tuple(map(shown, summary.warnings)),
        notes=tuple(map(shown, summary.notes)),
    )


def plan_command(parsed: argparse.Namespace) -> CommandResult:
    """Return the plan in words or as JSON. Raise as `prepare` does."""
    with given_files(parsed, None, PLAN_ID) as files, reading_bar() as bar:
        options = PrepareOptions(jobs=partial(build_jobs, progress=bar), keeps_case=False)
        if parsed.summary:
            summary = summarised(files.inputs, options)
            if files.case is not None:
                summary = _named(summary, files.case.shown)
            return CommandResult(to_json(asdict(summary)) if parsed.json else render_summary(summary))
        prepared = files.settled(prepare(files.inputs, options))
    report = report_plan(prepared.plan)
    return CommandResult(to_json(asdict(report)) if parsed.json else render_plan(report))
