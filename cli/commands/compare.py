"""`etloop compare`: holds one run, or repeats of one, against another. Statistics are in `results`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from etloop.cli.result import CommandResult
from etloop.contract.base.errors import ConfigError, ExitCode, Problem
from etloop.results.compare.compare import compare_runs, refuse_figures
from etloop.results.compare.runs import are_points_of_one_sweep, read_side
from etloop.results.html.compare import comparison_html
from etloop.results.schema.comparison import Comparison, ComparisonSettings, Outcome
from etloop.results.schema.typed_json import to_json
from etloop.results.text.compare import render_comparison


def compare_command(
    a_dir: Path, b_dir: Path, settings: ComparisonSettings, page: Path | None, *, as_json: bool
) -> CommandResult:
    """Compare two sides, and leave a `page` if one is named. Raises `RunDirError` or `ConfigError` where they cannot be compared."""
    refuse_figures(settings.figures)
    _refuse_the_same(a_dir, b_dir)
    a, b = read_side(a_dir, settings.warm_up), read_side(b_dir, settings.warm_up)
    if are_points_of_one_sweep(a_dir, b_dir):
        settings = replace(settings, paired=True)
    found = compare_runs(a, b, settings)
    if page is not None:
        write_page(page, comparison_html(found, a, b))
    return CommandResult(to_json(found) if as_json else render_comparison(found), exit_code(found))


def exit_code(found: Comparison) -> ExitCode:
    """Return the exit code of a comparison."""
    return {Outcome.REGRESSION: ExitCode.VERDICT_FAILED, Outcome.OPEN: ExitCode.INCONCLUSIVE}.get(
        found.verdict, ExitCode.PASS
    )


def write_page(path: Path, text: str) -> None:
    """Leaves a page. Raises `ConfigError` where it cannot be written."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        what = f"cannot be written: {error.strerror or error}"
        raise ConfigError(Problem(str(path), what, "name another file with --html")) from None


def _refuse_the_same(a: Path, b: Path) -> None:
    try:
        same = a.samefile(b)
    except OSError:
        return  # whoever reads them says what is wrong
    if same:
        raise ConfigError(Problem(str(b), "is A itself", "name two different directories"))
