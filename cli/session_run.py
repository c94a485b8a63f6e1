"""Run a prepared plan on agents with its progress on the terminal, for `etloop run` and `etloop demo`."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from etloop.cli.progress import live_page, run_watcher
from etloop.cli.text.live import LiveRun
from etloop.contract.base.errors import ExitCode
from etloop.controller.run.execute import SessionExecution
from etloop.controller.run.out_directory import refuse_used_directory
from etloop.controller.run.pipeline import RunInputs, RunOptions, prepare, run_plan
from etloop.controller.run.prepare import Prepared

if TYPE_CHECKING:
    from etloop.results.schema.summary import Summary


def run_files(
    scenario: Path, rig: Path, out_dir: Path, *, as_json: bool = False, is_verbose: bool = False
) -> ExitCode:
    """Run a scenario on a rig whose agents may join before or after, and write the results to `out_dir`.

    Print and raise as `run_prepared` does, also if `out_dir` cannot be used.
    """
    refuse_used_directory(out_dir)
    prepared = prepare(RunInputs.of(scenario, rig))
    return run_prepared(prepared, RunOptions(out_dir), as_json=as_json, is_verbose=is_verbose)


def run_prepared(
    prepared: Prepared,
    options: RunOptions,
    *,
    as_json: bool,
    is_verbose: bool = False,
    draws: bool = True,
    web: tuple[str, int] | None = None,
) -> ExitCode:
    """Run a plan on the agents of its rig and return the run's exit code.

    Print progress to standard error, drawn on a terminal if `draws`, and five lines (or summary.json) to standard output, below
    the whole table if `is_verbose`.
    `web`: address and port of a live page. Raise an `InputError` before any traffic if the rig cannot be used.
    """
    ports = {name: port.link_bps for name, port in prepared.rig.ports.items()}
    live = LiveRun(prepared.plan.tables.iterations, ports)
    with ExitStack() as stack:
        page = stack.enter_context(live_page(web, options.out_dir)) if web is not None else None
        with run_watcher(live, page, shows=draws and not as_json) as watcher:
            summary = run_plan(prepared, SessionExecution(), options, watcher).summary
        # Before the page waits for its readers to leave.
        _print_answer(summary, options.out_dir, as_json=as_json, is_verbose=is_verbose)
    return summary.result.exit_code


def _print_answer(summary: Summary, out_dir: Path | None, *, as_json: bool, is_verbose: bool) -> None:
    # Imported here, because a run needs them only after its traffic.
    from etloop.cli.result import on_terminal, page_paths
    from etloop.results.schema.typed_json import to_json
    from etloop.results.text.answer import render_answer
    from etloop.results.text.table import render

    pages = page_paths(out_dir) if out_dir is not None else {}
    if as_json:
        sys.stdout.write(to_json(summary))
    else:
        table = render(summary, str(out_dir), pages=pages) + "\n" if is_verbose else ""
        answer = render_answer(summary, pages.get("report", str(out_dir)))
        sys.stdout.write(on_terminal(table + answer))
    sys.stdout.flush()
