"""Measure what a point of a sweep costs next to its simulation, and how much faster two processes are than one.

    python -m tests.measure.sweep_speed [--points N] [--size SIZE] [--check]

A job of 32 ranks crosses a leaf and spine of 8 switches in virtual time; every point has another link delay and writes
figures only.
Cost: processor time of the command in one process, without the start of the interpreter, over the processor time inside the
simulation of the packets (`etloop.traffic.twin.twin`). Speed: wall time with one process over that with two, on a machine whose
two cores are otherwise idle. Bars: cost at most 1.3, speed at least 1.9.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, Final

from etloop.cli.main import main as etloop
from etloop.controller.run import twin as twin_module
from tests.measure.harness import Bar, Options, Row, Values, in_fresh_process, measure, table

MOST_COST: Final = 1.3
LEAST_SPEED: Final = 1.9
_PORTS_OF_LEAF: Final = 8


def write_sweep(place: Path, points: int, size: str) -> Path:
    """Write the sweep and its job; return its file."""
    leaves = [
        f"{{ports: [{', '.join(f'h{leaf * _PORTS_OF_LEAF + port}/p0' for port in range(_PORTS_OF_LEAF))}]}}"
        for leaf in range(4)
    ]
    (place / "t.yaml").write_text(
        f"leaf_spine: {{leaves: [{', '.join(leaves)}], spines: 4, rate: 100Gbps}}\n"
    )
    (place / "s.yaml").write_text("workload: {trace: job}\niterations: 2\nmapping: {ranks_per_host: 1}\n")
    delays = ", ".join(f"{500 + number}ns" for number in range(points))
    (place / "sweep.yaml").write_text(
        f"scenario: s.yaml\ntopology: t.yaml\nrepeats: 1\naxes: {{topology.leaf_spine.delay: [{delays}]}}\n"
    )
    words = [
        "synth",
        str(place / "job"),
        "--sweep",
        "all_reduce",
        "--sizes",
        f"{size}-{size}",
        "--ranks",
        "32",
    ]
    assert _quietly(words) == 0
    return place / "sweep.yaml"


def sweep_s(sweep: Path, out: Path, jobs: int) -> tuple[float, float, float]:
    """Run the sweep; return its wall time, its processor time and that of the simulation, both of this process."""
    simulated_s = 0.0
    simulate = vars(twin_module)["twin"]

    def timed(*arguments: Any, **named: Any) -> Any:
        nonlocal simulated_s
        begun_s = time.process_time()
        outcome = simulate(*arguments, **named)
        simulated_s += time.process_time() - begun_s
        return outcome

    vars(twin_module)["twin"] = timed
    begun_s, begun_cpu_s = time.monotonic(), time.process_time()
    words = ["sweep", str(sweep), "--twin", "--out", str(out), "--jobs", str(jobs), "--output", "figures"]
    assert _quietly(words) == 0
    return time.monotonic() - begun_s, time.process_time() - begun_cpu_s, simulated_s


def _quietly(words: list[str]) -> int:
    with (
        Path(os.devnull).open("w", encoding="utf-8") as nothing,
        redirect_stdout(nothing),
        redirect_stderr(nothing),
    ):
        return etloop(words)


COLUMNS: Final = table(
    "points|>6d; size|>8s; one process s|>13.1f; two s|>7.1f; speed|>6.2f; point ms|>8.1f; simulation ms|>13.1f; cost|>6.2f"
)
OPTIONS: Final[Options] = {
    "--points": {"type": int, "default": 1000, "metavar": "N", "help": "points (default 1000)"},
    "--size": {"default": "4MiB", "metavar": "SIZE", "help": "bytes of the collective (default 4MiB)"},
}


def rows(chosen: argparse.Namespace) -> Iterator[Values]:
    """Yield the times of the sweep."""
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        sweep = write_sweep(place, chosen.points, chosen.size)
        one_s, processor_s, simulated_s = in_fresh_process(sweep_s, sweep, place / "one", 1)
        two_s, _, _ = in_fresh_process(sweep_s, sweep, place / "two", 2)
    point_ms = 1000 * processor_s / chosen.points
    simulation_ms = 1000 * simulated_s / chosen.points
    yield (
        *(chosen.points, chosen.size, one_s, two_s, one_s / two_s),
        *(point_ms, simulation_ms, point_ms / simulation_ms),
    )


def bars(measured: Sequence[Row]) -> list[Bar]:
    """Return both bars."""
    (row,) = measured
    return [
        (f"cost {row['cost']:.2f} times the simulation, bar {MOST_COST}", row["cost"] <= MOST_COST),
        (f"two processes {row['speed']:.2f} times as fast, bar {LEAST_SPEED}", row["speed"] >= LEAST_SPEED),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; return the exit code."""
    return measure(__doc__, rows, COLUMNS, bars, OPTIONS, arguments)


if __name__ == "__main__":
    raise SystemExit(main())
