"""Measures the cost of step tables of a thousand ranks: making them, sending them, loading them into an engine.

    python -m tests.measure.schedules [--size N] [--hosted N] [--channels N] [--only ALGORITHM:COLLECTIVE]

For every algorithm and collective, over `--size` ranks (1,024), each in a process of its own: the tables of the
whole group as the controller makes them, those of `--hosted` ranks (256) as one agent is sent them, how many bytes that
is on the way, how long the agent's engine takes to read them, and the most memory each side took.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from etloop.contract.model.assignment import ScheduleColumns
from etloop.traffic._native import StepTables
from etloop.traffic.collectives.algorithms.registry import ALGORITHMS
from etloop.traffic.collectives.core.columns import select_tables, to_columns
from etloop.traffic.collectives.core.cutting import Cutting, PeerParts, Request
from etloop.traffic.collectives.core.table import Protocol, Split
from tests.measure.harness import Bar, Options, Row, Values, in_fresh_process, measure, peak_bytes, table

BARS: Final = {"made s": 5, "loaded s": 5, "shipped MB": 64, "loaded MB": 100}
"""Largest figure of a column; the memory of loading is what an agent's share adds."""
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


def _bytes_of(columns: ScheduleColumns | NDArray[Any]) -> int:
    if isinstance(columns, ScheduleColumns):
        return sum(getattr(columns, field.name).nbytes for field in fields(columns))
    return columns.nbytes


def row_of(name: str, size: int, hosted: int, channels: int) -> Values:
    """Measure in this process, which should be a new one. Times are CPU times; memory is the growth of the process's peak."""
    algorithm, request = request_of(name, size, channels)
    idle = peak_bytes()
    begin = time.process_time()
    schedule = ALGORITHMS[algorithm].build(request)
    tables = to_columns((schedule,), [range(hosted)])
    shipped = sum(_bytes_of(getattr(tables, field.name)) for field in fields(tables))
    before = peak_bytes()
    loading = time.process_time()
    StepTables(tables)
    load_s, loaded = time.process_time() - loading, peak_bytes()
    begin = time.process_time()
    all_tables = to_columns((schedule,))
    hosted_ranks = np.arange(hosted, dtype=np.int32)
    select_tables(all_tables, np.zeros(hosted, np.int32), hosted_ranks)
    make_s, make_bytes = time.process_time() - begin, peak_bytes() - idle
    return (name, make_s, make_bytes / 1e6, shipped / 1e6, load_s, (loaded - before) / 1e6)


COLUMNS: Final = table(
    "|33s; made s|>7.2f; made MB|>8.0f; shipped MB|>11.1f; loaded s|>9.2f; loaded MB|>10.0f"
)
OPTIONS: Final[Options] = {
    "--size": {"type": int, "default": 1024, "help": "ranks of the group (1024)"},
    "--hosted": {"type": int, "default": 256, "help": "ranks of one agent (256)"},
    "--channels": {"type": int, "default": 16},
    "--only": {"choices": (*NCCL, *OTHERS), "metavar": "ALGORITHM:COLLECTIVE", "action": "append"},
}


def rows(chosen: argparse.Namespace) -> Iterator[Values]:
    """Yield the cost of every algorithm, each measured in a process of its own."""
    for name in chosen.only or (*NCCL, *OTHERS):
        yield in_fresh_process(row_of, name, chosen.size, chosen.hosted, chosen.channels)


def bars(measured: Sequence[Row]) -> list[Bar]:
    """Return the largest figure of each column that has a bar."""
    return [
        (f"{title}: {worst:.1f} ({name}), bar {bar}", worst <= bar)
        for title, bar in BARS.items()
        for worst, name in [max((row[title], row[""]) for row in measured)]
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure all algorithms; return the exit code."""
    return measure(__doc__, rows, COLUMNS, bars, OPTIONS, arguments)


if __name__ == "__main__":
    sys.exit(main())
