"""How often `etloop compare` calls a change where there is none, and finds one of 5 %: over simulated runs, from a seed.

    python -m tests.measure.compare [--comparisons 2000] [--seed 1] [--check]

A comparison is the whole one: the job's time and four kinds of collectives, whose times go with the job's. Wrong is one in
which anything at all is called a regression or an improvement though A and B are drawn alike. The bar: not
more often than the comparison promises (by more than chance allows), where its assumptions hold.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from etloop.contract.base.late_dataclass import dataclass
from etloop.results.compare.compare import compare_runs
from etloop.results.compare.samples import RunSamples, Side
from etloop.results.schema.comparison import ComparisonSettings, Outcome
from tests.measure.harness import Bar, Options, Row, Values, measure, table

KINDS: Final = 4
PLANTED: Final = 0.05
STANDARD_ERRORS: Final = 3.0
MISSED: Final = "MISSED"


@dataclass(frozen=True, slots=True)
class Case:
    """Random model of runs. Variations are relative standard deviations."""

    name: str
    runs: int
    between: float
    """Variation between runs."""
    iterations: int = 20
    within: float = 0.02
    """Variation between iterations."""
    correlation: float = 0.0
    """Correlation of neighbouring iterations."""
    tails: int = 0
    """Degrees of freedom of a Student's t distribution between runs; 0: normal distribution."""
    shared: float = 0.0
    """Variation that runs of one round share; they are then compared by rounds."""
    promised: bool = True
    """True if it meets the assumptions of the comparison."""


CASES: Final = (
    Case("3 runs a side", 3, 0.01),
    Case("5 runs a side", 5, 0.01),
    Case("10 runs a side", 10, 0.03),
    Case("5 runs, heavy tails (t of 3)", 5, 0.01, tails=3),
    Case("5 rounds that share 5 %", 5, 0.01, shared=0.05),
    Case("1 run, 10 iterations", 1, 0.0, 10),
    Case("1 run, 50 iterations, correlation 0.3", 1, 0.0, 50, correlation=0.3),
    Case("1 run, 50 iterations, correlation 0.6", 1, 0.0, 50, correlation=0.6),
    Case("1 run, 50 iterations, runs differ by 1 %", 1, 0.01, 50),
    Case("1 run, 10 iterations, correlation 0.6", 1, 0.0, 10, correlation=0.6, promised=False),
    Case("1 run, 50 iterations, runs differ by 3 %", 1, 0.03, 50, promised=False),
)


@dataclass(frozen=True, slots=True)
class Rates:
    """Shares of comparisons."""

    wrong: float
    """A change was reported although there was none."""
    found: float
    """A planted regression was reported."""


def rates(case: Case, comparisons: int, rng: np.random.Generator) -> Rates:
    """Return the shares over this number of comparisons without a change, and as many with `PLANTED`."""
    settings = ComparisonSettings(warm_up=0, paired=case.shared > 0)
    wrong = detected = 0
    for _ in range(comparisons):
        a, b = sides(case, 0.0, rng)
        lines = compare_runs(a, b, settings).metrics
        wrong += any(line.outcome in {Outcome.REGRESSION, Outcome.IMPROVEMENT} for line in lines)
        a, b = sides(case, PLANTED, rng)
        detected += compare_runs(a, b, settings).verdict is Outcome.REGRESSION
    return Rates(wrong / comparisons, detected / comparisons)


def sides(case: Case, change: float, rng: np.random.Generator) -> tuple[Side, Side]:
    """Return A, and B that takes longer by `change`."""
    rounds = rng.standard_normal(case.runs) * case.shared
    a = _side("A", case, rounds, 1.0, rng)
    return a, _side("B", case, rounds, 1.0 + change, rng)


def _side(
    name: str, case: Case, rounds: NDArray[np.float64], factor: float, rng: np.random.Generator
) -> Side:
    runs = []
    for shared in rounds:
        chance = rng.standard_t(case.tails) if case.tails else rng.standard_normal()
        level = factor * float(np.exp(shared + case.between * chance))
        jct = 1e6 * level * (1 + case.within * _chain(case, rng))
        kinds = {
            f"kind {kind}": 0.2 * jct * (1 + case.within * rng.standard_normal(case.iterations))
            for kind in range(KINDS)
        }
        runs.append(replace(_NOTHING, path=name, jct_ns=jct, kinds=kinds))
    return Side(name, name, tuple(runs), (), tuple(f"r{number}" for number in range(case.runs)))


def _chain(case: Case, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return iterations of one run, shape (iterations,): a first-order autoregressive chain with variance 1."""
    values = rng.standard_normal(case.iterations)
    for index in range(1, case.iterations):
        correlated = case.correlation * values[index - 1]
        values[index] = correlated + np.sqrt(1 - case.correlation**2) * values[index]
    return values


_NOTHING: Final = RunSamples(
    path="",
    virtual=False,
    broken="",
    doubts=(),
    jct_ns=np.empty(0),
    kinds={},
    kind_bytes_per_s={},
    parts={},
    transfers={},
    troubles={},
    figures={},
    jobs={},
    things={},
)


def too_often(wrong: float, comparisons: int, promised: float) -> bool:
    """Return whether the share exceeds the promised one by more than chance allows."""
    return wrong > promised + STANDARD_ERRORS * math.sqrt(promised * (1 - promised) / comparisons)


COLUMNS: Final = table("|44s; wrong|>8.2%; 5 % found|>11.1%; note|s")
OPTIONS: Final[Options] = {
    "--comparisons": {"type": int, "default": 2000},
    "--seed": {"type": int, "default": 1},
}
PROMISED: Final = 1 - ComparisonSettings().confidence


def rows(chosen: argparse.Namespace) -> Iterator[Values]:
    """Yield the shares of every case."""
    for number, case in enumerate(CASES):
        shares = rates(case, chosen.comparisons, np.random.default_rng([chosen.seed, number]))
        is_missed = case.promised and too_often(shares.wrong, chosen.comparisons, PROMISED)
        note = MISSED if is_missed else "" if case.promised else "beyond what is promised"
        yield case.name, shares.wrong, shares.found, note


def bars(measured: Sequence[Row]) -> list[Bar]:
    """Return the bar of all cases together."""
    met = all(row["note"] != MISSED for row in measured)
    return [(f"wrong in at most {PROMISED:.1%}, by more than chance allows", met)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; return the exit code."""
    return measure(__doc__, rows, COLUMNS, bars, OPTIONS, arguments)


if __name__ == "__main__":
    sys.exit(main())
