"""Whether `etloop compare` calls a switch with a planted defect worse, and one without a defect not, in virtual time.

    python -m tests.measure.planted [--seeds 20] [--pairs 40] [--only WORDS] [--jobs N] [--check]

A side is five runs of `etloop twin`, each with hashes, marks and random faults of a seed of its own. The fabric is a fat tree
of 20 switches with 16 ports. Bars: a defect is found in at least 19 of 20 seeds, and no pair of
sides without a defect is called worse.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import math
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from etloop.cli.main import main as etloop
from etloop.contract.base.errors import EtloopError, ExitCode
from etloop.contract.base.late_dataclass import dataclass
from tests.measure.harness import Bar, Options, Row, UsageError, Values, measure, table

RUNS: Final = 5
"""Runs of a side."""
FOUND_SHARE: Final = 0.95
PODS: Final = 4
RANKS: Final = 16
_SWITCHES: Final = (
    *(f"edge{pod}{number}" for pod in range(PODS) for number in range(2)),
    *(f"agg{pod}{number}" for pod in range(PODS) for number in range(2)),
    *(f"core{number}" for number in range(PODS)),
)
_ALL_WITH_ALL: Final = "{trace: ../../trace}"
_INCAST: Final = "{incast: {senders: 4, size: 8MiB, bursts: 1}}"


@dataclass(frozen=True, slots=True)
class Load:
    """Load of a switch."""

    workload: str
    iterations: int
    buffer: str
    """Buffer of every switch without a defect."""


SPREAD: Final = Load(_ALL_WITH_ALL, 10, "8MiB")
INCAST: Final = Load(_INCAST, 5, "20MiB")
"""Its queues stay below the threshold of PFC."""
OVERLOAD: Final = Load(_INCAST, 5, "8MiB")
"""Its queues are paused."""
LOADS: Final = (SPREAD, INCAST, OVERLOAD)


@dataclass(frozen=True, slots=True)
class Fabric:
    """Settings of the switches."""

    buffer: str
    settings: str = ""
    """More keys of every switch."""
    fault: str = ""
    """A random fault of the first switch of the second pod."""
    slow_rate: str = ""
    """Rate of the link of the sixth port, if it is not 100 Gb/s."""
    one_hash: bool = False
    """All switches use the same hash, so that upper ones see only flows for which lower ones chose the same path."""


@dataclass(frozen=True, slots=True)
class Defect:
    """One planted defect."""

    name: str
    load: Load
    fabric: Fabric


DEFECTS: Final = (
    Defect(
        "drops 1 of 1000 frames of a port",
        SPREAD,
        Fabric(SPREAD.buffer, fault="{in: h5/p0, chance: 0.1%}"),
    ),
    Defect("a port at half its rate", SPREAD, Fabric(SPREAD.buffer, slow_rate="50Gbps")),
    Defect("all switches hash alike", SPREAD, Fabric(SPREAD.buffer, one_hash=True)),
    Defect(
        "marks too early (16 to 64 KiB)",
        INCAST,
        Fabric(INCAST.buffer, "queues: {3: {ecn: {kmin: 16KiB, kmax: 64KiB}}}"),
    ),
    Defect(
        "marks too late (4 to 16 MB)",
        INCAST,
        Fabric(INCAST.buffer, "queues: {3: {ecn: {kmin: 4000KB, kmax: 16000KB}}}"),
    ),
    Defect("half the buffer", INCAST, Fabric("10MiB")),
    Defect("a lossy class", OVERLOAD, Fabric(OVERLOAD.buffer, "preset: lossy")),
)
EQUAL: Final = (("all with all", SPREAD), ("incast", INCAST), ("incast that pauses", OVERLOAD))


def topology_text(fabric: Fabric, seed: int) -> str:
    """Return the topology file of a fabric: four pods of two edge and two aggregation switches, and four core switches."""
    rows = ["switches:"]
    for number, name in enumerate(_SWITCHES):
        keys = [f"name: {name}", f"buffer: {fabric.buffer}"]
        keys.append(f"seed: {seed * len(_SWITCHES) + (0 if fabric.one_hash else number)}")
        keys += [fabric.settings] if fabric.settings else []
        keys += [f"faults: [{fabric.fault}]"] if fabric.fault and name == "edge10" else []
        rows.append(f"  - {{{', '.join(keys)}}}")
    rows.append("links:")
    for pod in range(PODS):
        for above in range(2):
            ends = [(f"edge{pod}{below}", f"agg{pod}{above}") for below in range(2)]
            ends += [(f"agg{pod}{above}", f"core{2 * above + core}") for core in range(2)]
            rows += [
                f"  - {{from: {lower}, to: {upper}, rate: 100Gbps, delay: 500ns}}" for lower, upper in ends
            ]
    rows.append("attach:")
    for rank in range(RANKS):
        rate = fabric.slow_rate if fabric.slow_rate and rank == 5 else "100Gbps"
        edge = f"edge{rank // 4}{rank // 2 % 2}"
        rows.append(f"  - {{port: h{rank}/p0, to: {edge}, rate: {rate}, delay: 500ns}}")
    return "\n".join(rows) + "\n"


def rig_text() -> str:
    """Return a rig of sixteen agents with one port."""
    agents = "".join(
        f"  - {{name: h{rank}, ports: [{{name: p0, link: 100Gbps, addresses: 10.0.{rank}.1}}]}}\n"
        for rank in range(RANKS)
    )
    return "controller: {bind: 'tcp://127.0.0.1:7420'}\nagents:\n" + agents


def scenario_text(load: Load) -> str:
    """Return the scenario of a load, with DCQCN."""
    return (
        f"workload: {load.workload}\nmapping: {{ranks_per_host: 1, placement: round_robin}}\n"
        f"transport: {{cc: {{algorithm: dcqcn}}}}\niterations: {load.iterations}\n"
    )


@dataclass(frozen=True, slots=True)
class Side:
    """Five runs, with their directory and their seeds."""

    path: Path
    load: Load
    fabric: Fabric
    first_seed: int


def run_side(side: Side) -> Path:
    """Make the runs of a side. Raises `EtloopError` if the twin refuses them."""
    side.path.mkdir(parents=True)
    files = side.path.with_name(f"{side.path.name}-files")
    files.mkdir()
    (files / "scenario.yaml").write_text(scenario_text(side.load))
    (files / "rig.yaml").write_text(rig_text())
    for number in range(RUNS):
        (files / "topology.yaml").write_text(topology_text(side.fabric, side.first_seed + number))
        names = (str(files / "scenario.yaml"), "--rig", str(files / "rig.yaml"))
        out = ("--out", str(side.path / f"r{number:03}"))
        _etloop("twin", *names, "--topology", str(files / "topology.yaml"), *out)
    return side.path


@dataclass(frozen=True, slots=True)
class Series:
    """Pairs of a fabric without a defect and the one in `fabric`."""

    name: str
    load: Load
    fabric: Fabric
    pairs: int
    planted: bool
    """True if `fabric` has a defect."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Verdicts of `etloop compare` on a series."""

    series: Series
    worse: int
    unsure: int
    """Pairs with an inconclusive verdict."""

    def holds(self) -> bool:
        """Return whether the bar is met."""
        if self.series.planted:
            return self.worse >= math.ceil(FOUND_SHARE * self.series.pairs)
        return self.worse == 0


def series_of(seeds: int, pairs: int, only: str = "") -> list[Series]:
    """Return all series whose names contain `only`: `seeds` pairs of each defect, and `pairs` pairs without one over
    all loads.
    """
    series = [Series(defect.name, defect.load, defect.fabric, seeds, planted=True) for defect in DEFECTS]
    for number, (name, load) in enumerate(EQUAL):
        share = len(range(number, pairs, len(EQUAL)))
        series.append(Series(f"no defect, {name}", load, Fabric(load.buffer), share, planted=False))
    return [row for row in series if only in row.name]


def answers(series: Sequence[Series], processes: int, place: Path) -> list[Answer]:
    """Make all sides below `place` in this number of processes, and compare them.

    No two sides have a seed in common.
    """
    trace = ("--sweep", "all_to_all", "--sizes", "4MiB-4MiB", "--ranks", str(RANKS))
    _etloop("synth", str(place / "trace"), *trace)
    seed = itertools.count(1, RUNS)
    sides = itertools.count()

    def side(load: Load, fabric: Fabric) -> Side:
        return Side(place / "sides" / f"{next(sides)}", load, fabric, next(seed))

    # Defects of one load are compared with the same sides without one.
    most = {
        load: max((row.pairs for row in series if row.planted and row.load == load), default=0)
        for load in LOADS
    }
    good = {load: [side(load, Fabric(load.buffer)) for _ in range(most[load])] for load in LOADS}
    planned: list[list[tuple[Side, Side]]] = []
    for one_series in series:
        firsts = (
            good[one_series.load]
            if one_series.planted
            else [side(one_series.load, one_series.fabric) for _ in range(one_series.pairs)]
        )
        planned.append([(first, side(one_series.load, one_series.fabric)) for first in firsts])
    all_sides = {side.path: side for row in planned for pair in row for side in pair}
    # A forked child of a process that used gRPC spins when it collects what that left behind.
    with ProcessPoolExecutor(processes, get_context("spawn")) as workers:
        for _ in workers.map(run_side, all_sides.values()):
            pass
    return [_answer(one_series, row) for one_series, row in zip(series, planned, strict=True)]


def _answer(series: Series, planned: Sequence[tuple[Side, Side]]) -> Answer:
    codes = [_code("compare", str(a.path), str(b.path)) for a, b in planned]
    unknown = set(codes) - {ExitCode.PASS, ExitCode.VERDICT_FAILED, ExitCode.INCONCLUSIVE}
    if unknown:
        raise EtloopError(f"etloop compare of {series.name} ended with {sorted(unknown)}")
    return Answer(series, codes.count(ExitCode.VERDICT_FAILED), codes.count(ExitCode.INCONCLUSIVE))


def _code(*words: str) -> int:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return etloop(words)


def _etloop(*words: str) -> None:
    err = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(err):
        code = etloop(words)
    if code != ExitCode.PASS:
        raise EtloopError(f"etloop {' '.join(words)}: {err.getvalue().strip()[-500:]}")


COLUMNS: Final = table("|35s; pairs|>7; worse|>7; inconclusive|>15; bar|s")
OPTIONS: Final[Options] = {
    "--seeds": {"type": int, "default": 20, "help": "pairs of every defect"},
    "--pairs": {"type": int, "default": 40, "help": "pairs without a defect, over all loads"},
    "--only": {"default": "", "help": "rows whose names contain these words"},
    "--jobs": {"type": int, "default": os.cpu_count() or 1, "help": "processes at once"},
}


def rows(chosen: argparse.Namespace) -> Iterator[Values]:
    """Yield the verdicts on every series."""
    series = series_of(chosen.seeds, chosen.pairs, chosen.only)
    if not series:
        names = "; ".join(row.name for row in series_of(chosen.seeds, chosen.pairs))
        raise UsageError(f'--only: no row is named "{chosen.only}"; rows: {names}')
    with tempfile.TemporaryDirectory() as place:
        for answer in answers(series, chosen.jobs, Path(place)):
            bar = "met" if answer.holds() else "NOT MET"
            yield answer.series.name, answer.series.pairs, answer.worse, answer.unsure, bar


def bars(measured: Sequence[Row]) -> list[Bar]:
    """Return the bar of all series."""
    return [(f"{RUNS} runs a side, in virtual time", all(row["bar"] == "met" for row in measured))]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; return the exit code."""
    return measure(__doc__, rows, COLUMNS, bars, OPTIONS, arguments)


if __name__ == "__main__":
    sys.exit(main())
