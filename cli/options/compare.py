"""The command line of `etloop compare`, and how runs are compared, which `etloop sweep` is told as well."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Final

from etloop.cli.parser import Command
from etloop.cli.values import quantity, whole
from etloop.contract.base.units import QuantityError, parse_share_per_million
from etloop.results.schema.comparison import ComparisonSettings

EXIT_CODES: Final = "0 no regression, 20 inconclusive, 30 a regression, 65 they cannot be compared"
_DEFAULT: Final = ComparisonSettings()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the two sides, and how they are compared."""
    what = "run directory, or directory of repeats"
    parser.add_argument("a", type=Path, metavar="A", help=f"{what}: what B is held against")
    parser.add_argument("b", type=Path, metavar="B", help=what)
    parser.add_argument("--html", type=Path, metavar="FILE", help="also write a page, for a browser")
    add_settings(parser)
    add_counts_ignored(parser)
    parser.epilog = f"{parser.epilog}\n\nexit codes: {EXIT_CODES}"


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Add how runs are compared."""
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


def add_counts_ignored(parser: argparse.ArgumentParser) -> None:
    """Add what lets counters that arose in B pass."""
    what = (
        "drops, losses, NAKs and pauses that A had none of are reported, and are no regression by themselves"
    )
    parser.add_argument("--counts-ignored", action="store_true", help=what)


def settings_of(parsed: argparse.Namespace) -> ComparisonSettings:
    """Return what `add_settings` read."""
    return ComparisonSettings(
        parsed.confidence, parsed.least_effect, parsed.between_runs, parsed.warm_up, parsed.figures
    )


def _share(least: int, most: int) -> Callable[[str], float]:
    def parse(text: str) -> float:
        share = parse_share_per_million(text)
        if not least <= share <= most:
            raise QuantityError(f'"{text}" is out of range', f"write {least / 1e4:g}% to {most / 1e4:g}%")
        return share / 1e6

    return parse


def _confidence(text: str) -> float:
    return _share(500_000, 999_999)(text)


COMMAND: Final = Command(
    "  etloop compare runs/before runs/after\n"
    "  etloop compare study/points/p000 study/points/p001 --html compare.html",
    add_arguments,
    "compare:compare_command",
)
