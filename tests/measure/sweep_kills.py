"""Kill a sweep at random and resume it, and run it in shards: every byte is to be that of an undisturbed sweep.

    python -m tests.measure.sweep_kills [--points N] [--kills N] [--shards N] [--seed N] [--check]

The sweep is that of `sweep_speed`. SIGKILL ends all its processes at once, as soon as a drawn number of runs exists and a drawn
part of a point's time has passed. Shards run one after the other in one directory; one of them is killed and started again.
Bar: no file differs.
"""

from __future__ import annotations

import argparse
import filecmp
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.measure.harness import Bar, Options, Row, UsageError, Values, measure, table
from tests.measure.sweep_speed import write_sweep

LONGEST_S: Final = 600
"""Longest time of one start of the sweep."""
_POLL_S: Final = 0.005


def complete_runs(out: Path) -> int:
    """Return how many runs of a sweep are complete."""
    return sum(1 for _ in out.glob("points/*/r[0-9]*"))


def start(
    sweep: Path, out: Path, words: Sequence[str], kill_at: int | None = None, delay_s: float = 0
) -> bool:
    """Run `etloop sweep` to its end, or kill all its processes `delay_s` after `kill_at` runs exist; return True if killed."""
    command = [sys.executable, "-m", "etloop", "sweep", str(sweep), "--twin", "--out", str(out), *words]
    command += ["--jobs", "2", "--output", "tables"]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
    )
    deadline_s = time.monotonic() + LONGEST_S
    try:
        while process.poll() is None and kill_at is not None and complete_runs(out) < kill_at:
            if time.monotonic() > deadline_s:
                raise SystemExit(f"{' '.join(command)}: did not reach {kill_at} runs in {LONGEST_S} s")
            time.sleep(_POLL_S)
        if kill_at is not None and process.poll() is None:
            time.sleep(delay_s)
            killed = process.poll() is None
        else:
            killed = False
        if not killed:
            _, errors = process.communicate(timeout=LONGEST_S)
            if process.returncode:
                raise SystemExit(f"{' '.join(command)}: exit code {process.returncode}\n{errors.decode()}")
        return killed
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def differing_files(first: Path, second: Path) -> list[str]:
    """Return the files that differ in bytes or exist in one of two directories only."""
    names = [
        {str(path.relative_to(place)) for path in place.rglob("*") if path.is_file()}
        for place in (first, second)
    ]
    _, different, unreadable = filecmp.cmpfiles(first, second, names[0] & names[1], shallow=False)
    return sorted((names[0] ^ names[1]) | {*different, *unreadable})


def killed_sweep(sweep: Path, out: Path, points: int, kills: int, rng: random.Random, point_s: float) -> int:
    """Kill and resume a sweep, then let it end; return how often it was killed before its end."""
    killed = 0
    for kill_at in sorted(rng.sample(range(1, points), kills)):
        killed += start(sweep, out, ["--resume"] if out.exists() else [], kill_at, rng.uniform(0, point_s))
    start(sweep, out, ["--resume"])
    return killed


def sharded_sweep(sweep: Path, out: Path, shards: int, rng: random.Random, point_s: float) -> int:
    """Run a sweep in shards, one of which is killed once, and collect them; return how often one was killed."""
    killed, victim = 0, rng.randrange(shards)
    for number in range(shards):
        words = ["--shard", f"{number}/{shards}"]
        if number == victim:
            killed += start(sweep, out, words, complete_runs(out) + 2, rng.uniform(0, point_s))
        start(sweep, out, words)
    start(sweep, out, ["--collect"])
    return killed


COLUMNS: Final = table("way|>14s; points|>6d; killed|>6d; files|>6d; different|>9d; first|>24s")
OPTIONS: Final[Options] = {
    "--points": {"type": int, "default": 60, "metavar": "N", "help": "points (default 60)"},
    "--kills": {"type": int, "default": 20, "metavar": "N", "help": "kills (default 20)"},
    "--shards": {"type": int, "default": 3, "metavar": "N", "help": "shards (default 3)"},
    "--seed": {"type": int, "default": 1, "metavar": "N", "help": "seed of the kills (default 1)"},
}


def rows(chosen: argparse.Namespace) -> Iterator[Values]:
    """Yield the files of each way that differ from those of the undisturbed sweep."""
    if min(chosen.kills, chosen.shards) < 1 or chosen.points <= max(chosen.kills, 4 * chosen.shards):
        raise UsageError("--points is to exceed --kills and four times --shards, which are at least 1")
    with tempfile.TemporaryDirectory() as directory:
        place, rng = Path(directory), random.Random(chosen.seed)
        sweep = write_sweep(place, chosen.points, "64KiB")
        begun_s = time.monotonic()
        start(sweep, place / "whole", [])
        point_s = (time.monotonic() - begun_s) / chosen.points
        for way, killed in (
            ("killed", killed_sweep(sweep, place / "killed", chosen.points, chosen.kills, rng, point_s)),
            ("shards", sharded_sweep(sweep, place / "shards", chosen.shards, rng, point_s)),
        ):
            different = differing_files(place / "whole", place / way)
            files = sum(path.is_file() for path in (place / "whole").rglob("*"))
            yield way, chosen.points, killed, files, len(different), different[0] if different else "-"


def bars(measured: Sequence[Row]) -> list[Bar]:
    """Return the bar: no file differs, and the sweep was killed as often as asked or nearly so."""
    different = sum(row["different"] for row in measured)
    killed = ", ".join(f"{row['way']} {row['killed']} times" for row in measured)
    return [
        (
            f"{different} files differ; killed: {killed}",
            different == 0 and all(row["killed"] for row in measured),
        )
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; return the exit code."""
    return measure(__doc__, rows, COLUMNS, bars, OPTIONS, arguments)


if __name__ == "__main__":
    raise SystemExit(main())
