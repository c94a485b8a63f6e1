"""What step tables of a thousand ranks cost: making them, shipping them, loading them into an engine.

    python -m bench.schedules [--size N] [--hosted N] [--channels N] [--check]

For a ring all-reduce and a grouped all-to-all over `--size` ranks (1,024), each in a process of its own: the tables of the
whole group as the controller makes them, those of `--hosted` ranks (256) as one agent is sent them, how many bytes that
is on the way, how long the agent's engine takes to read them, and the most memory each side took. --check ends with 30
when a bar is not met.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Final

import numpy as np

from traffic._native import StepTables
from traffic.collectives.algorithms import ALGORITHMS
from traffic.collectives.columns import select_tables, to_columns
from traffic.collectives.cutting import Cutting, PeerParts, Request
from traffic.collectives.table import Protocol, Split

TIME_BAR_S: Final = 5.0
"""Making and loading, each."""
SHIPPED_BAR_BYTES: Final = 64_000_000
MEMORY_BAR_BYTES: Final = 100_000_000
"""What an agent's share adds to its memory."""
NOT_MET: Final = 30


@dataclass(frozen=True, slots=True)
class Figures:
    """One collective. Memory is what was added to the process by that step, at its peak."""

    collective: str
    make_s: float
    make_bytes: int
    shipped_bytes: int
    load_s: float
    load_bytes: int

    def misses(self) -> list[str]:
        """The bars that are not met."""
        rows = (
            ("making", self.make_s, TIME_BAR_S),
            ("loading", self.load_s, TIME_BAR_S),
            ("bytes shipped", self.shipped_bytes, SHIPPED_BAR_BYTES),
            ("memory of the loaded tables", self.load_bytes, MEMORY_BAR_BYTES),
        )
        return [f"{self.collective}: {what} {value} over {bar}" for what, value, bar in rows if value > bar]


def request_of(collective: str, size: int, channels: int) -> tuple[str, Request]:
    """The algorithm, and what NCCL would ask of it between hosts of eight."""
    if collective == "all-to-all":
        peers = PeerParts(channels, 1, 1, 64 << 10, 128 << 10)
        cutting = Cutting(Protocol.SIMPLE, channels, 128 << 10, 1, 16 << 10, 8, Split.PAGES, peers=peers)
        return "p2p", Request(collective, size, 8, cutting)
    cutting = Cutting(
        Protocol.SIMPLE, channels, 2 << 20, 2, 32 << 10, 4, split=Split.CELLS, traffic_per_byte=2
    )
    return "ring", Request(collective, size, 8, cutting)


def measure(collective: str, size: int, hosted: int, channels: int) -> Figures:
    """In this process, which should be a fresh one."""
    algorithm, request = request_of(collective, size, channels)
    idle = _peak_bytes()
    begin = time.perf_counter()
    schedule = ALGORITHMS[algorithm].build(request)
    tables = to_columns((schedule,), [range(hosted)])
    shipped = sum(getattr(tables, field.name).nbytes for field in fields(tables))
    before = _peak_bytes()
    loading = time.perf_counter()
    StepTables(tables)
    load_s, loaded = time.perf_counter() - loading, _peak_bytes()
    begin = time.perf_counter()
    everything = to_columns((schedule,))
    own = np.arange(hosted, dtype=np.int32)
    select_tables(everything, np.zeros(hosted, np.int32), own)
    return Figures(
        collective, time.perf_counter() - begin, _peak_bytes() - idle, shipped, load_s, loaded - before
    )


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m bench.schedules", description="Cost of step tables.")
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--hosted", type=int, default=256)
    parser.add_argument("--channels", type=int, default=16)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.only:
        print(json.dumps(asdict(measure(asked.only, asked.size, asked.hosted, asked.channels))))
        return 0
    misses = []
    for collective in ("all-reduce", "all-to-all"):
        sizes = ["--size", str(asked.size), "--hosted", str(asked.hosted), "--channels", str(asked.channels)]
        command = [sys.executable, "-m", "bench.schedules", "--only", collective, *sizes]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        figures = Figures(**json.loads(output))
        print(
            f"{collective} of {asked.size} ranks: made in {figures.make_s:.2f} s with {figures.make_bytes / 1e6:.0f} MB; "
            f"{asked.hosted} ranks are {figures.shipped_bytes / 1e6:.1f} MB on the way, "
            f"loaded in {figures.load_s:.2f} s into {figures.load_bytes / 1e6:.0f} MB"
        )
        misses += figures.misses()
    for miss in misses:
        print(f"bar not met: {miss}")
    return NOT_MET if misses and asked.check else 0


if __name__ == "__main__":
    sys.exit(main())
