"""Whether `etloop compare` finds a planted setting of the switches from five pairs of runs, and stays quiet without one.

    python -m tests.measure.compare_power [--draws 20] [--pairs 40] [--only WORDS] [--place DIR] [--check]

A side is five runs in virtual time of an all-to-all over two leaves and four spines, 2 to 1 oversubscribed, eight
collectives a run. Both sides of a pair share their seeds, and the planted values are drawn for each pair. Equal sides have
other seeds. Bars: a planted setting is found in 19 of 20 draws, by the network's counters or by time; links that are 5 %
slower are found by time in 18 of 20; equal sides are never called different.
"""

from __future__ import annotations

import argparse
import math
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import etloop
from etloop.contract.base.late_dataclass import dataclass
from etloop.results.compare.compare import compare_runs
from etloop.results.compare.samples import Side, read_side
from etloop.results.schema.comparison import Comparison, ComparisonSettings, Outcome
from tests.measure.harness import Bar, Options, Row, UsageError, Values, measure, table

RUNS: Final = 5
SWITCHES: Final = 6
ITERATIONS: Final = 9
"""The first one is left out as warm-up."""
Keys = dict[Any, Any]
Plant = Callable[[random.Random], Keys]


@dataclass(frozen=True, slots=True)
class Planted:
    """A planted setting: keys of every switch, or the rate of the links between them."""

    name: str
    keys: Plant
    uplink_mbps: int = 50_000
    needed_share: float = 0.95
    by_time: bool = False
    """Whether only the completion time counts."""


def _ecn(kmin: str, kmax: str, pmax: str = "20%") -> Keys:
    return {"queues": {3: {"ecn": {"kmin": kmin, "kmax": kmax, "pmax": pmax}}}}


PLANTED: Final = (
    Planted("ECN off", lambda rng: _ecn("60MB", "61MB", f"{rng.randint(1, 20)}%")),
    Planted("Kmin low", lambda rng: _ecn(f"{rng.randint(4, 16)}KiB", f"{rng.randint(32, 128)}KiB")),
    Planted("Kmax high", lambda rng: _ecn("200KB", f"{rng.randint(6, 16)}MB")),
    Planted("PFC off", lambda _: {"pfc": {"enabled": False}}),
    Planted("alpha small", lambda rng: {"groups": {3: {"alpha": f"1/{rng.choice((16, 32, 64))}"}}}),
    Planted("wrong DSCP map", lambda rng: {"maps": {"dscp_to_class": {26: rng.choice((0, 1, 2, 4))}}}),
    Planted("headroom 0", lambda rng: {"groups": {3: {"headroom": f"{rng.randint(1, 4000)}B"}}}),
    Planted("buffer small", lambda rng: {"buffer": f"{rng.randint(1050, 1250)}KB"}),
    Planted("few hash fields", lambda rng: {"hash": [rng.choice(("src_ip", "dst_ip", "protocol"))]}),
    Planted("links 5 % slower", lambda _: {}, 47_500, 0.9, by_time=True),
)
HEALTHY: Final = Planted("equal sides", lambda _: {})


def topology(planted: Planted, rng: random.Random) -> Keys:
    """Return two leaves and four spines with a planted setting."""
    keys = {"buffer": "1800KB"} | planted.keys(rng)
    leaves = [{"ports": [f"h{4 * leaf + host}/p0" for host in range(4)]} for leaf in range(2)]
    links = {"rate": "100Gbps", "uplink_rate": f"{planted.uplink_mbps}Mbps", "delay": "500ns"}
    return {"leaf_spine": {**links, "spines": 4, "leaves": leaves, "leaf": keys, "spine": keys}}


SCENARIO: Final = {
    "workload": {"collective": {"kind": "all_to_all", "size": "4MiB", "ranks": 8}},
    "iterations": ITERATIONS,
    "mapping": {"placement": "round_robin"},
    "transport": {"cc": {"algorithm": "dcqcn"}},
}


def run_side(place: Path, planted: Planted, first_seed: int, draw: int) -> Side:
    """Make five runs, and return them."""
    network = topology(planted, random.Random(draw))
    for repeat in range(RUNS):
        out = place / f"r{repeat:03}"
        if not (out / "summary.json").exists():
            shutil.rmtree(out, ignore_errors=True)
            etloop.run_twin(SCENARIO, out_dir=out, topology=network, seed=first_seed + repeat * SWITCHES)
    return read_side(place, ComparisonSettings().warm_up)


def is_found(comparison: Comparison, planted: Planted) -> bool:
    """Return whether a comparison finds the planted setting."""
    first = comparison.metrics[0]
    if planted.by_time:
        return first.outcome is Outcome.REGRESSION
    return comparison.verdict in {Outcome.REGRESSION, Outcome.DIFFERENT, Outcome.IMPROVEMENT}


COLUMNS: Final = table("|18s; draws|>6; found|>6; by time|>8; named first|s")
OPTIONS: Final[Options] = {
    "--draws": {"type": int, "default": 20, "help": "draws of every planted setting"},
    "--pairs": {"type": int, "default": 40, "help": "pairs of equal sides"},
    "--only": {"default": "", "help": "rows whose names contain these words"},
    "--place": {"type": Path, "help": "directory in which runs are kept, and complete ones are used again"},
}


def rows(chosen: argparse.Namespace) -> Iterator[Values]:
    """Yield how often each planted setting is found, and how often equal sides are called different."""
    planted_rows = [row for row in (*PLANTED, HEALTHY) if chosen.only in row.name]
    if not planted_rows:
        raise UsageError(f"--only: no row contains {chosen.only!r}")
    with tempfile.TemporaryDirectory() as name:
        place = chosen.place or Path(name)

        @cache
        def healthy(number: int) -> Side:
            return run_side(place / f"a{number}", HEALTHY, _seed(number), 0)

        for row in planted_rows:
            yield _row(row, chosen, place, healthy)


def _row(row: Planted, chosen: argparse.Namespace, place: Path, healthy: Callable[[int], Side]) -> Values:
    draws = chosen.pairs if row is HEALTHY else chosen.draws
    found = by_time = 0
    named = ""
    for draw in range(draws):
        a_number = draw % max(chosen.draws, 1)
        seed = _seed(1000 + draw) if row is HEALTHY else _seed(a_number)
        b = run_side(place / f"{row.name}{draw}", row, seed, draw)
        comparison = compare_runs(healthy(a_number), b, ComparisonSettings())
        is_hit = is_found(comparison, row)
        found += is_hit
        by_time += comparison.metrics[0].outcome is Outcome.REGRESSION
        if is_hit == (row is HEALTHY) or not named:
            named = " | ".join(comparison.reasons)
    return row.name, draws, found, by_time, named


def _seed(number: int) -> int:
    return 1 + number * RUNS * SWITCHES


def bars(measured: Sequence[Row]) -> list[Bar]:
    """Return the bar of each planted setting, and that of equal sides."""
    needed = {row.name: row.needed_share for row in PLANTED}
    return [
        (f"{row['']}: {row['found']} of {row['draws']}", _is_met(row, needed.get(str(row[""]))))
        for row in measured
    ]


def _is_met(row: Row, needed_share: float | None) -> bool:
    found, draws = int(str(row["found"])), int(str(row["draws"]))
    return found == 0 if needed_share is None else found >= math.ceil(needed_share * draws)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; return the exit code."""
    return measure(__doc__, rows, COLUMNS, bars, OPTIONS, arguments)


if __name__ == "__main__":
    sys.exit(main())
