"""`etloop compare`: holds one run, or repeats of one, against another. Statistics are in `results`."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from etloop.cli.options.compare import settings_of
from etloop.cli.result import CommandResult, write_answer
from etloop.contract.base.errors import ConfigError, ExitCode, Problem
from etloop.results.compare.compare import compare_runs, refuse_figures
from etloop.results.compare.samples import RunSamples, Side, are_points_of_one_sweep, read_side
from etloop.results.html.compare import comparison_html
from etloop.results.schema.comparison import Comparison, Outcome
from etloop.results.schema.typed_json import to_json
from etloop.results.text.compare import render_comparison


def compare_command(parsed: argparse.Namespace) -> CommandResult:
    """Compare two sides, and leave a page if one is named. Raises `RunDirError` or `ConfigError` where they cannot be."""
    a_dir, b_dir, settings = (
        parsed.a,
        parsed.b,
        replace(settings_of(parsed), counts_ignored=parsed.counts_ignored),
    )
    refuse_figures(settings.figures)
    _refuse_the_same(a_dir, b_dir)
    a, b = read_side(a_dir, settings.warm_up), read_side(b_dir, settings.warm_up)
    _refuse_unlike_jobs(a, b)
    if are_points_of_one_sweep(a_dir, b_dir):
        settings = replace(settings, paired=True)
    found = compare_runs(a, b, settings)
    if parsed.html is not None:
        write_answer(parsed.html, comparison_html(found, a, b), "name another file with --html")
    return CommandResult(to_json(found) if parsed.json else render_comparison(found), exit_code(found))


def _refuse_unlike_jobs(a: Side, b: Side) -> None:
    """Raise `ConfigError` where the sides are of jobs that have nothing in common, so that their times say nothing."""
    ours, theirs = a.runs[0], b.runs[0]
    if set(ours.jobs) & set(theirs.jobs):
        return  # the same job beside others
    for key, what in (("ranks", "ranks"), ("content", "traffic")):
        x, y = ours.things["trace"][key], theirs.things["trace"][key]
        if x != y and (key == "ranks" or not _collectives(ours) & _collectives(theirs)):
            reason = f"is a run of another job than {a.path}: {what} {y}, and there {x}"
            raise ConfigError(Problem(b.path, reason, "compare two runs of one job"))


def _collectives(run: RunSamples) -> set[str]:
    """Return the kinds of collectives that carry something: any two jobs may have barriers."""
    return {kind for kind in run.kinds if not kind.startswith("barrier,")} or set(run.kinds)


def exit_code(found: Comparison) -> ExitCode:
    """Return the exit code of a comparison."""
    return {Outcome.REGRESSION: ExitCode.VERDICT_FAILED, Outcome.OPEN: ExitCode.INCONCLUSIVE}.get(
        found.verdict, ExitCode.PASS
    )


def _refuse_the_same(a: Path, b: Path) -> None:
    try:
        same = a.samefile(b)
    except OSError:
        return  # whoever reads them says what is wrong
    if same:
        raise ConfigError(Problem(str(b), "is A itself", "name two different directories"))
