"""`etloop compare`: holds one run, or repeats of one, against another. Arguments in, answer out; statistics are in `results`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from etloop.cli.result import CommandResult
from etloop.cli.values import quantity, whole
from etloop.contract.base.errors import ConfigError, ExitCode, Problem
from etloop.contract.base.units import QuantityError, parse_share_per_million
from etloop.results.schema.comparison import ComparisonSettings

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from etloop.results.schema.comparison import Comparison

SUMMARY: Final = "hold runs against others: regression, improvement, no difference, or too few to say"
EXAMPLE: Final = (
    "  etloop compare runs/before runs/after\n"
    "  etloop compare study/points/p000 study/points/p001 --html compare.html"
)
EXIT_CODES: Final = "0 no regression, 20 too few to say, 30 a regression, 65 they cannot be compared"
_DEFAULT: Final = ComparisonSettings()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """All of `compare`."""
    what = "run directory, or directory of repeats"
    parser.add_argument("a", type=Path, metavar="A", help=f"{what}: what B is held against")
    parser.add_argument("b", type=Path, metavar="B", help=what)
    parser.add_argument("--html", type=Path, metavar="FILE", help="also write a page, for a browser")
    add_settings(parser)
    parser.epilog = f"{parser.epilog}\n\nexit codes: {EXIT_CODES}"


def add_settings(parser: argparse.ArgumentParser) -> None:
    """How runs are compared."""
    parser.add_argument(
        "--confidence",
        type=quantity(_confidence),
        default=_DEFAULT.confidence,
        metavar="SHARE",
        help="how often nothing is called a change where there is none (default 95%%)",
    )
    parser.add_argument(
        "--least-effect",
        type=quantity(_share(0, 999_999)),
        default=_DEFAULT.least_effect,
        metavar="SHARE",
        help="smallest change that matters (default 2%%)",
    )
    parser.add_argument(
        "--between-runs",
        type=quantity(_share(0, 999_999)),
        default=_DEFAULT.between_runs,
        metavar="SHARE",
        help="by how much runs of the same thing differ (CV), for a side of a single run (default 1%%)",
    )
    parser.add_argument(
        "--warm-up",
        type=whole,
        default=_DEFAULT.warm_up,
        metavar="N",
        help="iterations left out at the begin of every run (default 1)",
    )
    parser.add_argument(
        "--figures",
        type=lambda text: tuple(dict.fromkeys(text.split(","))),
        default=(),
        metavar="NAME,...",
        help="key figures tested beside the times, such as jct_p99_ns,lost_share (docs/metrics.md, section 9)",
    )


def settings_of(parsed: argparse.Namespace) -> ComparisonSettings:
    """What `add_settings` read."""
    return ComparisonSettings(
        parsed.confidence, parsed.least_effect, parsed.between_runs, parsed.warm_up, parsed.figures
    )


def compare_command(parsed: argparse.Namespace) -> CommandResult:
    """Compares two sides. Raises `RunDirError` or `ConfigError` where they cannot be compared."""
    # Here, because only a comparison needs the statistics.
    from etloop.results.compare.compare import compare_runs, refuse_figures
    from etloop.results.compare.runs import are_points_of_one_sweep, read_side
    from etloop.results.html.compare import comparison_html
    from etloop.results.schema.typed_json import to_json
    from etloop.results.text.compare import render_comparison

    settings = settings_of(parsed)
    refuse_figures(settings.figures)
    _refuse_the_same(parsed.a, parsed.b)
    a, b = read_side(parsed.a, settings.warm_up), read_side(parsed.b, settings.warm_up)
    if are_points_of_one_sweep(parsed.a, parsed.b):
        settings = replace(settings, paired=True)
    found = compare_runs(a, b, settings)
    if parsed.html is not None:
        write_page(parsed.html, comparison_html(found, a, b))
    return CommandResult(to_json(found) if parsed.json else render_comparison(found), exit_code(found))


def exit_code(found: Comparison) -> ExitCode:
    """Of a comparison."""
    from etloop.results.schema.comparison import Outcome

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


def _share(least: int, most: int) -> Callable[[str], float]:
    def parse(text: str) -> float:
        share = parse_share_per_million(text)
        if not least <= share <= most:
            raise QuantityError(f'"{text}" is out of range', f"write {least / 1e4:g}% to {most / 1e4:g}%")
        return share / 1e6

    return parse


def _confidence(text: str) -> float:
    return _share(500_000, 999_999)(text)
