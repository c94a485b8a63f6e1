"""How often `etloop trend` reports a change where there is none, and dates a planted one to the run: from seeds.

    python -m tests.measure.change_points [--histories 400] [--check]

A history is 200 runs of ten figures: half normal, half log-normal with a long tail. Planted: one figure rises by six standard
deviations from a random run on. The bars: at most one alarm in 40 quiet histories, every planted change dated to the run.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from etloop.results.trend.change_points import find_cuts
from tests.measure.harness import Bar, Row, Values, measure

LEVEL: Final = 0.005
FIGURES: Final = 10
RUNS: Final = 200
_PLANTED: Final = 6.0


def quiet(seed: int, figures: int = FIGURES, runs: int = RUNS) -> NDArray[np.float64]:
    """Return positive figures (figures, runs) of 2 % variation without a change; every second one with a long tail."""
    values = np.random.default_rng(seed).normal(size=(figures, runs))
    values[::2] = np.exp(values[::2])
    return np.asarray(1000 * (1 + 0.02 * values))


def planted(seed: int, figures: int = FIGURES, runs: int = RUNS) -> tuple[int, NDArray[np.float64]]:
    """Return the first run after a change of the second figure, at least ten runs from both ends, and the history."""
    values = quiet(seed, figures, runs)
    at = int(np.random.default_rng(seed + 1_000_000).integers(10, runs - 9))
    values[1, at:] += 1000 * 0.02 * _PLANTED
    return at, values


def _rows(options: argparse.Namespace) -> Iterator[Values]:
    alarms = sum(bool(find_cuts(quiet(seed), LEVEL)) for seed in range(options.histories))
    yield "quiet", options.histories, alarms, alarms / options.histories
    dated = more = 0
    for seed in range(options.histories // 4):
        at, values = planted(seed)
        cuts = [cut.run for cut in find_cuts(values, LEVEL)]
        dated += at in cuts
        more += len(cuts) > 1
    yield "planted, dated to the run", options.histories // 4, dated, dated / (options.histories // 4)
    yield "planted, further changes", options.histories // 4, more, more / (options.histories // 4)


def _bars(rows: Sequence[Row]) -> Iterator[Bar]:
    quiet_row, dated, _ = rows
    yield f"alarms in quiet histories: {quiet_row['share']:.2%}, at most 2.5 %", quiet_row["share"] <= 0.025
    yield f"planted changes dated to the run: {dated['share']:.1%}, all but 1 %", dated["share"] >= 0.99


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    columns = {"histories of": ">26", "number": ">7", "reported": ">9", "share": ">9.2%"}
    options = {"--histories": {"type": int, "default": 400, "help": "quiet histories (default 400)"}}
    return measure(__doc__, _rows, columns, _bars, options, arguments)


if __name__ == "__main__":
    sys.exit(main())
