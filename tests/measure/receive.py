"""Measure what a received packet costs when nothing is read from the kernel, by every way to check the ICRC.

    python -m tests.measure.receive [--turns N] [--check]

One WRITE of the pattern is encoded into frames, and a receiver processes them as ports and their cores do: Ethernet, IP, ICRC,
BTH, queue pair, acknowledgements. The ways that this processor has alternate. Times are CPU times of the thread, so that
other work on the machine counts only as colder caches. Bars: at path MTU 4096 the way that
ports use takes at most 150 ns, at 256 it takes no longer than one multiplier does. Only processors with VPCLMULQDQ have them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.traffic import _native
from tests.measure.harness import Bar, Options, Row, Values, measure, table

PATH_MTUS: Final = (256, 1024, 4096)
BAR_NS: Final = 150.0
"""Bar at the largest path MTU."""
NOISE: Final = 1.05
"""Allowed noise of a comparison within one run."""
_PAYLOAD_BYTES: Final = 1 << 18
"""Payload of the frames of one turn: as much as a ring of a port hands over at once, and fits in the core's cache."""
_ONE_MULTIPLIER: Final = "clmul_128"
_WIDE: Final = ("clmul_256", "clmul_512")


@dataclass(frozen=True, slots=True)
class ReceiveTimes:
    """CPU times per packet of one way at one path MTU."""

    path_mtu: int
    way: str
    turns_ns: tuple[float, ...]

    @property
    def median_ns(self) -> float:
        """Return the median over the turns, in ns per packet."""
        return median(self.turns_ns)


def receive_times(turns: int) -> tuple[ReceiveTimes, ...]:
    """Return the times at every path MTU, for every way that this processor has, the fastest last."""
    results = []
    for path_mtu in PATH_MTUS:
        times: dict[str, list[float]] = {}
        for way, spent_ns in _native.receive_speed(path_mtu, _PAYLOAD_BYTES // path_mtu, turns):
            times.setdefault(way, []).append(spent_ns)
        results += [ReceiveTimes(path_mtu, way, tuple(turns_ns)) for way, turns_ns in times.items()]
    return tuple(results)


COLUMNS: Final = table("path MTU|<9; ICRC by|<11; min ns|>8.1f; median ns|>9.1f; max ns|>8.1f")
OPTIONS: Final[Options] = {
    "--turns": {"type": int, "default": 101, "help": "turns of each way (default 101)"}
}


def rows(chosen: argparse.Namespace) -> Iterator[Values]:
    """Yield CPU times per packet of every way at every path MTU."""
    for times in receive_times(chosen.turns):
        yield times.path_mtu, times.way, min(times.turns_ns), times.median_ns, max(times.turns_ns)


def bars(measured: Sequence[Row]) -> list[Bar]:
    """Return the bars; none on a processor without wide multiplication."""
    median_ns = {(row["path MTU"], row["ICRC by"]): row["median ns"] for row in measured}
    way = measured[-1]["ICRC by"]
    if way not in _WIDE:
        return []
    small, large = PATH_MTUS[0], PATH_MTUS[-1]
    limits = {large: BAR_NS, small: NOISE * median_ns[small, _ONE_MULTIPLIER]}
    return [
        (f"{mtu} B: {median_ns[mtu, way]:.0f} ns a packet, bar {limit:.0f}", median_ns[mtu, way] <= limit)
        for mtu, limit in limits.items()
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; return the exit code."""
    return measure(__doc__, rows, COLUMNS, bars, OPTIONS, arguments)


if __name__ == "__main__":
    sys.exit(main())
