"""Print the results table of a run, or evaluate its conditions again."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from etloop.cli.arguments.inputs import add_json
from etloop.cli.result import CommandResult, on_terminal, page_paths
from etloop.runtime.module_loading import quick_loading

EXAMPLE: Final = (
    "  etloop report run1/\n"
    "  etloop report run1/ --markdown >> $GITHUB_STEP_SUMMARY\n"
    "  etloop report run1/ --conditions stricter.yaml --dut sonic-tomahawk5\n"
    "  etloop report run1/ --conditions stricter.yaml --write"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the run, the conditions of a new verdict and the output format."""
    add_json(parser)
    parser.add_argument("run_dir", type=Path, metavar="RUN_DIR", help="run directory (--out of the run)")
    help_text = (
        "evaluate the conditions again and exit with the new verdict; RUN_DIR is unchanged without --write"
    )
    parser.add_argument("--verdict", action="store_true", help=help_text)
    help_text = "evaluate the verdict: section of this file instead of the run's own conditions"
    parser.add_argument("--conditions", type=Path, metavar="FILE", help=help_text)
    help_text = "also evaluate the checks of this device profile (a name of etloop dut list, or a file)"
    parser.add_argument("--dut", metavar="PROFILE", help=help_text)
    help_text = "store the new verdict: rewrite summary.json, kpis.json, junit.xml and report.html"
    parser.add_argument("--write", action="store_true", help=help_text)
    output = parser.add_mutually_exclusive_group()
    help_text = "print Markdown, for the summary of a CI job ($GITHUB_STEP_SUMMARY)"
    output.add_argument("--markdown", action="store_true", help=help_text)
    output.add_argument("--open", action="store_true", help="open report.html in a browser")
    help_text = "print report.html to a PDF with headless Chromium or Chrome"
    output.add_argument("--pdf", type=Path, metavar="FILE", help=help_text)


def run(parsed: argparse.Namespace) -> CommandResult:
    """Return the table or the summary of a run, with a new verdict if requested, by other conditions or another profile.

    Raise an `InputError` if directory, conditions or profile cannot be used.
    """
    with quick_loading():
        from etloop.contract.base.errors import ConfigError, ExitCode, Problem
        from etloop.results.schema.typed_json import to_json
        from etloop.results.store.run_dir import look_at_run

    code = ExitCode.PASS
    if (parsed.run_dir / "spool").is_dir():
        _close_run(parsed.run_dir)
    has_new_verdict = bool(parsed.verdict or parsed.conditions or parsed.dut or parsed.write)
    if has_new_verdict and not parsed.write and (parsed.open or parsed.pdf is not None):
        problem = "shows the existing page, which does not contain the new verdict"
        remedy = "add --write to store the new verdict, or leave out --verdict, --conditions and --dut"
        raise ConfigError(Problem("--open" if parsed.open else "--pdf", problem, remedy))
    if has_new_verdict:
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
        from etloop.results.artifacts import REPORT_FILE

        page = parsed.run_dir / REPORT_FILE
        return CommandResult(open_page(page) if parsed.open else print_page(page, parsed.pdf), code)
    from etloop.results.text.table import render

    table = render(summary, str(parsed.run_dir), pages=page_paths(parsed.run_dir))
    return CommandResult(on_terminal(table), code)


def _close_run(run_dir: Path) -> None:
    """Write the results of a run whose process ended before it did. Raise an `InputError` without any measurement."""
    from etloop.cli.progress import StatusWatcher
    from etloop.contract.base.errors import ConfigError, Problem
    from etloop.controller.run.kept_run import has_spool
    from etloop.controller.run.pipeline import close_run

    if not has_spool(run_dir):
        return
    if close_run(run_dir, "its process ended before it wrote its results", StatusWatcher()) is None:
        problem = "its process ended before any traffic, so there are no measurements"
        raise ConfigError(Problem(str(run_dir), problem, "run it again, into another directory"))
