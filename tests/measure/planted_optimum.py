"""Measure how many trials a search needs to find a planted optimum in six dimensions.

    python -m tests.measure.planted_optimum [--levels N] [--seeds N] [--check]

The cost of a combination grows with its distance from a drawn optimum, at drawn weights, with products of pairs of dimensions;
a fifth of the settings of the first dimension breaks a condition. Bar: at most 5 % of the grid's points, in 19 of 20 seeds.
The landscape is a formula, so that only the search is measured; `etloop search` asks the same proposals.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator, Sequence
from typing import Final

from etloop.experiments.sweep.optimize import Objective
from etloop.experiments.sweep.proposals import Labels, Learned, Proposals
from tests.measure.harness import Bar, Options, Row, Values, measure, table

DIMENSIONS: Final = 6
PARALLEL: Final = 8
"""Trials of a batch, the default of `optimize: parallel`."""
SHARE: Final = 0.05


def trials_to_optimum(seed: int, levels: int, most: int) -> int | None:
    """Return the trials up to the optimum; None if `most` trials do not find it."""
    rng = random.Random(seed)
    axes = {f"axis{number}": tuple(str(level + 1) for level in range(levels)) for number in range(DIMENSIONS)}
    optimum = tuple(rng.choice(labels) for labels in axes.values())
    weights = [rng.uniform(0.3, 3) for _ in axes]
    pairs = [(rng.sample(range(DIMENSIONS), 2), rng.uniform(-0.1, 0.1)) for _ in range(4)]
    broken = rng.sample([label for label in axes["axis0"] if label != optimum[0]], max(1, levels // 5))

    def cost(labels: Labels) -> float:
        distance = [int(label) - int(best) for label, best in zip(labels, optimum, strict=True)]
        own: float = sum(
            weight * float(abs(steps)) ** 1.5 for weight, steps in zip(weights, distance, strict=True)
        )
        return own + sum(weight * distance[one] * distance[other] for (one, other), weight in pairs)

    proposals = Proposals(axes, [Objective("jct_avg_ns", is_maximized=False)], seed, None)
    tried = 0
    while tried < most:
        for labels in proposals.propose(min(PARALLEL, most - tried)):
            tried += 1
            if labels == optimum:
                return tried
            proposals.learn(labels, Learned((cost(labels),), {"drops": float(labels[0] in broken)}), {})
    return None


COLUMNS: Final = table("levels|>6d; seed|>4d; combinations|>12,d; trials|>6d; share|>7.2%")
OPTIONS: Final[Options] = {
    "--levels": {"type": int, "default": 4, "metavar": "N", "help": "settings of each dimension (default 4)"},
    "--seeds": {"type": int, "default": 20, "metavar": "N", "help": "searches (default 20)"},
}


def rows(chosen: argparse.Namespace) -> Iterator[Values]:
    """Yield the trials of every seed."""
    combinations = chosen.levels**DIMENSIONS
    for seed in range(chosen.seeds):
        trials = trials_to_optimum(seed, chosen.levels, int(combinations * SHARE))
        yield chosen.levels, seed, combinations, trials, None if trials is None else trials / combinations


def bars(measured: Sequence[Row]) -> list[Bar]:
    """Return the bar."""
    found = sum(row["trials"] is not None for row in measured)
    text = f"found within {SHARE:.0%} of the grid in {found} of {len(measured)} seeds, bar 19 of 20"
    return [(text, found * 20 >= len(measured) * 19)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; return the exit code."""
    return measure(__doc__, rows, COLUMNS, bars, OPTIONS, arguments)


if __name__ == "__main__":
    raise SystemExit(main())
