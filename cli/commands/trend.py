"""Follow the figures of a device over many runs: one line per figure, and dated changes."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from etloop.cli.arguments.comparison import share_within
from etloop.cli.arguments.inputs import add_json
from etloop.cli.arguments.values import argument_type
from etloop.cli.result import CommandResult, write_answer
from etloop.runtime.module_loading import quick_loading

EXAMPLE: Final = (
    "  etloop trend runs/\n"
    "  etloop trend runs/ --html trend.html --junit trend.xml --since 4.5.1\n"
    "  etloop trend state/                           the runs of a rack: state_dir of controller.yaml\n"
    "\n"
    "exit codes: 0 no figure became worse, 20 too few runs, 30 the last change of a figure was to the worse"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the directory, the settings of the search and the forms of output."""
    add_json(parser)
    parser.add_argument(
        "directory",
        type=Path,
        metavar="DIR",
        help="directory that holds runs at any depth, or state_dir of a rack; gets history.sqlite",
    )
    help_text = "history.sqlite in another place"
    parser.add_argument("--history", type=Path, metavar="FILE", help=help_text)
    help_text = (
        "only changes from this time (ISO 8601, UTC), or first run of this version, on decide the exit code"
    )
    parser.add_argument("--since", default="", metavar="TIME|VERSION", help=help_text)
    help_text = "figures to follow (default: all that are about the network)"
    parser.add_argument("--figures", default="", metavar="NAME,...", help=help_text)
    help_text = "share of jobs without a change for which one is reported (default 0.5%%)"
    parser.add_argument(
        "--false-alarms",
        type=argument_type(share_within(500, 100_000)),
        default=0.005,
        metavar="SHARE",
        help=help_text,
    )
    help_text = "smallest change of a level that counts (default 2%%)"
    parser.add_argument(
        "--least-effect",
        type=argument_type(share_within(0, 999_999)),
        default=0.02,
        metavar="SHARE",
        help=help_text,
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="also write a page")
    parser.add_argument("--junit", type=Path, metavar="FILE", help="also write JUnit XML, a case per figure")


def run(parsed: argparse.Namespace) -> CommandResult:
    """Record new runs and return the changes; raise an `InputError` if directory or history cannot be used."""
    with quick_loading():
        from etloop.contract.base.errors import ExitCode
        from etloop.results.schema.typed_json import to_json
        from etloop.results.store.history import HISTORY_FILE, read_history, record_runs
        from etloop.results.text.trend import render_trend
        from etloop.results.trend.trend import TrendSettings, build_trend

    history = parsed.history or parsed.directory / HISTORY_FILE
    unreadable = record_runs(parsed.directory, history)
    figures = tuple(name.strip() for name in parsed.figures.split(",") if name.strip())
    settings = TrendSettings(parsed.false_alarms, parsed.least_effect, parsed.since, figures)
    trend = build_trend(str(parsed.directory), read_history(history), settings, unreadable)
    if parsed.html is not None:
        from etloop.results.html.trend import trend_html

        write_answer(parsed.html, trend_html(trend), "name another file with --html")
    if parsed.junit is not None:
        from etloop.results.verdict.junit import trend_junit

        write_answer(parsed.junit, trend_junit(trend), "name another file with --junit")
    code = (
        ExitCode.VERDICT_FAILED
        if trend.worse
        else ExitCode.PASS
        if trend.histories
        else ExitCode.INCONCLUSIVE
    )
    return CommandResult(to_json(trend) if parsed.json else render_trend(trend), code)
