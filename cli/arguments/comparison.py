"""Arguments of `etloop compare` and `etloop sweep`: how runs are compared."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Final

from etloop.cli.arguments.values import argument_type, parse_whole
from etloop.contract.base.units import QuantityError, parse_factor, parse_share_per_million
from etloop.results.schema.comparison import ComparisonSettings

_DEFAULT: Final = ComparisonSettings()
_MOST_FACTOR: Final = 1000


def add_comparison_settings(parser: argparse.ArgumentParser) -> None:
    """Add the statistical settings of a comparison."""
    parser.add_argument(
        "--confidence",
        type=argument_type(_confidence),
        default=_DEFAULT.confidence,
        metavar="SHARE",
        help="confidence level of each test: 1 - false positive rate (default 95%%)",
    )
    parser.add_argument(
        "--least-effect",
        type=argument_type(share_within(0, 999_999)),
        default=_DEFAULT.least_effect,
        metavar="SHARE",
        help="smallest relative change that counts as an effect (default 2%%)",
    )
    parser.add_argument(
        "--between-runs",
        type=argument_type(share_within(0, 999_999)),
        default=_DEFAULT.between_runs,
        metavar="SHARE",
        help="run-to-run coefficient of variation assumed for a side with a single run (default 1%%)",
    )
    parser.add_argument(
        "--warm-up",
        type=parse_whole,
        default=_DEFAULT.warm_up,
        metavar="N",
        help="iterations skipped at the start of every run (default 1)",
    )
    parser.add_argument(
        "--least-factor",
        type=argument_type(_factor),
        default=_DEFAULT.least_factor,
        metavar="X",
        help="smallest ratio that counts as a change of a counter (default 2)",
    )
    parser.add_argument(
        "--figures",
        type=lambda text: tuple(dict.fromkeys(text.split(","))),
        default=(),
        metavar="NAME,...",
        help="key figures tested in addition to the times, such as jct_p99_ns,lost_share (docs/metrics.md, section 9)",
    )


def add_counts_ignored(parser: argparse.ArgumentParser) -> None:
    """Add --counts-ignored."""
    help_text = "report counters, rates and findings that differ without deciding the verdict by them"
    parser.add_argument("--counts-ignored", action="store_true", help=help_text)


def comparison_settings(parsed: argparse.Namespace) -> ComparisonSettings:
    """Return the settings that `add_comparison_settings` parsed."""
    return ComparisonSettings(
        confidence=parsed.confidence,
        least_effect=parsed.least_effect,
        between_runs=parsed.between_runs,
        warm_up=parsed.warm_up,
        figures=parsed.figures,
        least_factor=parsed.least_factor,
    )


def share_within(least: int, most: int) -> Callable[[str], float]:
    def parse(text: str) -> float:
        share = parse_share_per_million(text)
        if not least <= share <= most:
            raise QuantityError(f'"{text}" is out of range', f"write {least / 1e4:g}% to {most / 1e4:g}%")
        return share / 1e6

    return parse


def _factor(text: str) -> float:
    factor = float(parse_factor(text))
    if not 1 < factor <= _MOST_FACTOR:
        raise QuantityError(
            f'"{text[:64]}" is out of range', f"write a number above 1, at most {_MOST_FACTOR}"
        )
    return factor


def _confidence(text: str) -> float:
    return share_within(500_000, 999_999)(text)
