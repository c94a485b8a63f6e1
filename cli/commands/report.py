"""`etloop report` and `etloop bundle`: what a run directory holds, printed again, judged again, or packed for others."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from etloop.cli.result import CommandResult, on_terminal, pages_of
from etloop.cli.result import to_json as answer_json
from etloop.contract.base.errors import ConfigError, ExitCode, Problem
from etloop.results.artifacts import REPORT_FILE
from etloop.results.schema.typed_json import to_json
from etloop.results.store.run_dir import look_at_run
from etloop.results.text.table import render


def report_command(parsed: argparse.Namespace) -> CommandResult:
    """Return the table or the summary of a run, with a new verdict if it is asked for, by other conditions or another profile.

    Raises an `InputError` where directory, conditions or profile cannot be used.
    """
    code = ExitCode.PASS
    if (parsed.run_dir / "spool").is_dir():
        _close(parsed.run_dir)
    is_judged = bool(parsed.verdict or parsed.conditions or parsed.dut or parsed.write)
    if is_judged and not parsed.write and (parsed.open or parsed.pdf is not None):
        what = "shows the page that the run has, and the new verdict is not in it"
        remedy = "add --write to keep the new verdict, or leave --verdict, --conditions and --dut out"
        raise ConfigError(Problem("--open" if parsed.open else "--pdf", what, remedy))
    if is_judged:
        from etloop.controller.run.verdict import judge_again

        summary = judge_again(parsed.run_dir, parsed.conditions, parsed.dut, is_kept=parsed.write)
        code = summary.result.exit_code
    else:
        summary = look_at_run(parsed.run_dir)
    if parsed.json:
        return CommandResult(to_json(summary), code)
    if parsed.markdown:
        from etloop.results.text.markdown import markdown

        return CommandResult(markdown(summary), code)
    if parsed.open or parsed.pdf is not None:
        from etloop.cli.browser import open_page, print_page

        page = parsed.run_dir / REPORT_FILE
        said = open_page(page) if parsed.open else print_page(page, parsed.pdf)
        return CommandResult(said, code)
    table = render(summary, str(parsed.run_dir), pages=pages_of(parsed.run_dir))
    return CommandResult(on_terminal(table), code)


def _close(run_dir: Path) -> None:
    """Make the results of a run whose process did not get to it. Raises an `InputError` where there is nothing for that."""
    from etloop.cli.progress import StatusWatcher
    from etloop.controller.run.kept_run import has_spool
    from etloop.controller.run.pipeline import close_run

    if not has_spool(run_dir):
        return
    if close_run(run_dir, "its process ended before it wrote its results", StatusWatcher()) is None:
        what = "its traffic had not begun when its process ended: nothing was measured"
        raise ConfigError(Problem(str(run_dir), what, "run it again, into another directory"))


def bundle_command(parsed: argparse.Namespace) -> CommandResult:
    """Pack the run that the command line names, and say what is inside. Raises as `bundle`."""
    from etloop.cli.text.case import case_lines
    from etloop.controller.case.bundling import ENDING, bundle

    out = parsed.out
    if out is None:
        out = Path(f"{parsed.run_dir.resolve().name}{ENDING}")
    made = bundle(parsed.run_dir, out, parsed.traces, has_traces=not parsed.no_traces)
    if parsed.json:
        return CommandResult(
            answer_json({"path": made.path, "bytes": made.packed_bytes, "case": asdict(made.case)})
        )
    return CommandResult("".join(f"{line}\n" for line in case_lines(made)))
