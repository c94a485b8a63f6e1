"""Measures the cost of step tables of a thousand ranks: making them, sending them, loading them into an engine.

    python -m tests.measure.schedules [--size N] [--hosted N] [--channels N] [--check] [--only ALGORITHM:COLLECTIVE]

For every algorithm and collective, over `--size` ranks (1,024), each in a process of its own: the tables of the
whole group as the controller makes them, those of `--hosted` ranks (256) as one agent is sent them, how many bytes that
is on the way, how long the agent's engine takes to read them, and the most memory each side took. --check ends with 30
when a bar is not met.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import fields, replace
from itertools import chain
from typing import Final

import numpy as np

from etloop.contract.base.late_dataclass import dataclass
from etloop.traffic._native import StepTables
from etloop.traffic.collectives.algorithms.registry import ALGORITHMS
from etloop.traffic.collectives.core.columns import select_tables, to_columns
from etloop.traffic.collectives.core.cutting import Cutting, PeerParts, Request
from etloop.traffic.collectives.core.table import Protocol, Split
from tests.measure.processes import BAR_MISSED, measured_apart, peak_bytes, print_figures

TIME_BAR_S: Final = 5.0
"""Bar for the time of making, and of loading."""
SHIPPED_BAR_BYTES: Final = 64_000_000
MEMORY_BAR_BYTES: Final = 100_000_000
"""Bar for the memory that an agent's share adds."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of one algorithm. Times are CPU times (one thread, no waiting), so that other work on the machine does not
    count; memory is the growth of the process's peak by that step."""

    name: str
    make_s: float
    make_bytes: int
    shipped_bytes: int
    load_s: float
    load_bytes: int

    def misses(self) -> list[str]:
        """Return the missed bars, in words."""
        rows = (
            ("making", self.make_s, TIME_BAR_S),
            ("loading", self.load_s, TIME_BAR_S),
            ("bytes shipped", self.shipped_bytes, SHIPPED_BAR_BYTES),
            ("memory of the loaded tables", self.load_bytes, MEMORY_BAR_BYTES),
        )
        return [f"{self.name}: {figure} {value} over {bar}" for figure, value, bar in rows if value > bar]


NCCL: Final = ("ring:all-reduce", "p2p:all-to-all")
"""Algorithms with NCCL's cutting, on the requested number of channels."""
OTHERS: Final = (
    *("direct:all-reduce", "direct:all-gather", "direct:reduce-scatter", "direct:all-to-all"),
    *("bruck:all-to-all", "bruck:all-gather", "pairwise:all-to-all", "pairwise:reduce-scatter"),
    *("scattered:all-to-all", "deepep:all-to-all", "pxn:all-to-all"),
    *("hierarchical:all-reduce", "hierarchical:all-to-all"),
    *("halving_doubling:all-reduce", "halving_doubling:reduce-scatter"),
    *(
        "recursive_doubling:all-reduce",
        "recursive_doubling:all-gather",
        "pat:all-gather",
        "pat:reduce-scatter",
    ),
    *("ring:all-gather", "ring:reduce-scatter", "bidirectional_ring:all-reduce", "gloo_ring:all-reduce"),
    *("tree:all-reduce", "chain:broadcast", "chain:reduce", "linear:gather", "linear:scatter"),
    *("binomial:broadcast", "binomial:reduce", "binomial:gather", "binomial:scatter"),
)
"""Algorithms with one message per step on one channel, as libraries without channels send; a bidirectional ring has two."""


def request_of(name: str, size: int, channels: int) -> tuple[str, Request]:
    """Return the algorithm, and its request for hosts of eight ranks, or of one rank if it supports only that."""
    algorithm, collective = name.split(":")
    if name in OTHERS:
        directions = 2 if algorithm == "bidirectional_ring" else 1
        request = Request(collective, size, 8, Cutting(Protocol.SIMPLE, directions, 1 << 30, 1, 0, 8))
        flat = replace(request, ranks_per_host=1)
        return algorithm, flat if ALGORITHMS[algorithm].limit(request) else request
    if collective == "all-to-all":
        peers = PeerParts(channels, 1, 1, 64 << 10, 128 << 10)
        cutting = Cutting(Protocol.SIMPLE, channels, 128 << 10, 1, 16 << 10, 8, Split.PAGES, peers=peers)
        return algorithm, Request(collective, size, 8, cutting)
    cutting = Cutting(
        Protocol.SIMPLE, channels, 2 << 20, 2, 32 << 10, 4, split=Split.CELLS, traffic_per_byte=2
    )
    return algorithm, Request(collective, size, 8, cutting)


def measure(name: str, size: int, hosted: int, channels: int) -> Figures:
    """Measure in this process, which should be a new one."""
    algorithm, request = request_of(name, size, channels)
    idle = peak_bytes()
    begin = time.process_time()
    schedule = ALGORITHMS[algorithm].build(request)
    tables = to_columns((schedule,), [range(hosted)])
    shipped = sum(getattr(tables, field.name).nbytes for field in fields(tables))
    before = peak_bytes()
    loading = time.process_time()
    StepTables(tables)
    load_s, loaded = time.process_time() - loading, peak_bytes()
    begin = time.process_time()
    all_tables = to_columns((schedule,))
    hosted_ranks = np.arange(hosted, dtype=np.int32)
    select_tables(all_tables, np.zeros(hosted, np.int32), hosted_ranks)
    return Figures(name, time.process_time() - begin, peak_bytes() - idle, shipped, load_s, loaded - before)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.measure.schedules", description="Cost of step tables."
    )
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--hosted", type=int, default=256)
    parser.add_argument("--channels", type=int, default=16)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--only", choices=(*NCCL, *OTHERS), metavar="ALGORITHM:COLLECTIVE", action="append")
    parser.add_argument("--here", choices=(*NCCL, *OTHERS), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.here:
        print_figures(measure(options.here, options.size, options.hosted, options.channels))
        return 0
    misses = []
    for name in options.only or chain(NCCL, OTHERS):
        sizes = [
            "--size",
            str(options.size),
            "--hosted",
            str(options.hosted),
            "--channels",
            str(options.channels),
        ]
        figures = measured_apart(Figures, "tests.measure.schedules", "--here", name, *sizes)
        print(
            f"{name} of {options.size} ranks: made in {figures.make_s:.2f} s with {figures.make_bytes / 1e6:.0f} MB; "
            f"{options.hosted} ranks are {figures.shipped_bytes / 1e6:.1f} MB on the way, "
            f"loaded in {figures.load_s:.2f} s into {figures.load_bytes / 1e6:.0f} MB"
        )
        misses += figures.misses()
    for miss in misses:
        print(f"bar not met: {miss}")
    return BAR_MISSED if misses and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
