"""Compare runs: regression, improvement, no difference or inconclusive."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from etloop.cli.arguments.comparison import add_comparison_settings, add_counts_ignored, comparison_settings
from etloop.cli.arguments.inputs import add_json
from etloop.cli.result import CommandResult, write_answer
from etloop.runtime.module_loading import quick_loading

if TYPE_CHECKING:
    from etloop.results.compare.samples import RunSamples, Side
    from etloop.results.schema.comparison import Comparison, ComparisonSettings

EXAMPLE: Final = (
    "  etloop compare runs/before runs/after\n"
    "  etloop compare study/points/p000 study/points/p001 --html compare.html\n"
    "  etloop compare twin1 incast.htsim                  next to the output of another simulator (etloop export)\n"
    "\n"
    "exit codes: 0 no regression, 20 inconclusive or different, 30 a regression, 65 the runs cannot be compared"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the two sides and the settings of the comparison."""
    add_json(parser)
    help_text = "run directory, or directory of repeated runs"
    parser.add_argument("a", type=Path, metavar="A", help=f"baseline: {help_text}")
    parser.add_argument(
        "b",
        type=Path,
        metavar="B",
        help=f"candidate: {help_text}, or of an export with its simulator's output",
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="also write the comparison as an HTML page")
    add_comparison_settings(parser)
    add_counts_ignored(parser)


def run(parsed: argparse.Namespace) -> CommandResult:
    """Compare two sides, and write a page if one is named.

    Raise `RunDirError` or `ConfigError` if they cannot be compared.
    """
    from dataclasses import replace

    if (parsed.b / "export.json").is_file():
        from etloop.cli.simulator_output import compare_with_output

        return compare_with_output(parsed.a, parsed.b, as_json=parsed.json)
    with quick_loading():
        from etloop.contract.base.errors import ExitCode
        from etloop.results.schema.comparison import Outcome
        from etloop.results.schema.typed_json import to_json
        from etloop.results.text.compare import render_comparison

    settings = replace(comparison_settings(parsed), counts_ignored=parsed.counts_ignored)
    comparison, a, b = compare_directories(parsed.a, parsed.b, settings)
    if parsed.html is not None:
        from etloop.results.html.compare import comparison_html

        write_answer(parsed.html, comparison_html(comparison, a, b), "name another file with --html")
    codes = {
        Outcome.REGRESSION: ExitCode.VERDICT_FAILED,
        Outcome.DIFFERENT: ExitCode.INCONCLUSIVE,
        Outcome.OPEN: ExitCode.INCONCLUSIVE,
    }
    text = to_json(comparison) if parsed.json else render_comparison(comparison)
    return CommandResult(text, codes.get(comparison.verdict, ExitCode.PASS))


def compare_directories(
    a_dir: Path, b_dir: Path, settings: ComparisonSettings
) -> tuple[Comparison, Side, Side]:
    """Return the comparison of two directories of runs, and both sides; raise as `run`."""
    from dataclasses import replace

    from etloop.results.compare.compare import compare_runs, refuse_figures
    from etloop.results.compare.samples import are_points_of_one_sweep, read_side

    refuse_figures(settings.figures)
    _refuse_same_directory(a_dir, b_dir)
    a, b = read_side(a_dir, settings.warm_up), read_side(b_dir, settings.warm_up)
    _refuse_different_jobs(a, b)
    if are_points_of_one_sweep(a_dir, b_dir):
        settings = replace(settings, paired=True)
    return compare_runs(a, b, settings), a, b


def _refuse_different_jobs(a: Side, b: Side) -> None:
    """Raise `ConfigError` if the sides ran different jobs, whose times cannot be compared."""
    from etloop.contract.base.errors import ConfigError, Problem

    a_run, b_run = a.runs[0], b.runs[0]
    if set(a_run.jobs) & set(b_run.jobs):
        return  # the same job, next to different other jobs
    for key, name in (("ranks", "ranks"), ("content", "traffic")):
        a_value, b_value = a_run.things["trace"][key], b_run.things["trace"][key]
        if a_value != b_value and (key == "ranks" or not _collectives(a_run) & _collectives(b_run)):
            problem = f"is a run of another job than {a.path}: {name} {b_value}, expected {a_value}"
            raise ConfigError(Problem(b.path, problem, "compare two runs of one job"))


def _collectives(run_samples: RunSamples) -> set[str]:
    """Return the kinds of collectives that carry data: any two jobs may have barriers in common."""
    kinds = run_samples.kinds
    return {kind for kind in kinds if not kind.startswith("barrier,")} or set(kinds)


def _refuse_same_directory(a: Path, b: Path) -> None:
    from etloop.contract.base.errors import ConfigError, Problem

    try:
        same = a.samefile(b)
    except OSError:
        return  # reported when they are read
    if same:
        raise ConfigError(Problem(str(b), "is the same directory as A", "name two different directories"))
