"""Measure what a received packet costs when nothing is read from the kernel, by every way to check the ICRC.

    python -m tests.measure.receive [--turns N] [--check]

One WRITE of the pattern is encoded into frames, and a receiver processes them as ports and their cores do: Ethernet, IP, ICRC,
BTH, queue pair, acknowledgements. The ways that this processor has alternate. Times are CPU times of the thread, so that
other work on the machine counts only as colder caches. --check ends with 30 where a bar is not met: at path MTU 4096 the way
that ports use takes at most 150 ns, at 256 it takes no longer than one multiplier does. Only processors with VPCLMULQDQ have
these bars.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from statistics import median
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.traffic import _native
from tests.measure.processes import BAR_MISSED

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


def measure(turns: int) -> tuple[ReceiveTimes, ...]:
    """Return the times at every path MTU, for every way that this processor has, the fastest last."""
    results = []
    for path_mtu in PATH_MTUS:
        times: dict[str, list[float]] = {}
        for way, spent_ns in _native.receive_speed(path_mtu, _PAYLOAD_BYTES // path_mtu, turns):
            times.setdefault(way, []).append(spent_ns)
        results += [ReceiveTimes(path_mtu, way, tuple(turns_ns)) for way, turns_ns in times.items()]
    return tuple(results)


def missed(measured: Sequence[ReceiveTimes]) -> tuple[str, ...]:
    """Return the missed bars; () on a processor without wide multiplication."""
    by_place = {(times.path_mtu, times.way): times.median_ns for times in measured}
    way = measured[-1].way
    if way not in _WIDE:
        return ()
    small, large = PATH_MTUS[0], PATH_MTUS[-1]
    misses = []
    if by_place[large, way] > BAR_NS:
        misses.append(f"{large} B: {by_place[large, way]:.0f} ns a packet, expected at most {BAR_NS:.0f}")
    if by_place[small, way] > NOISE * by_place[small, _ONE_MULTIPLIER]:
        misses.append(
            f"{small} B: {by_place[small, way]:.0f} ns a packet, expected at most those of one multiplier, "
            f"{by_place[small, _ONE_MULTIPLIER]:.0f}"
        )
    return tuple(misses)


def table(measured: Sequence[ReceiveTimes]) -> str:
    """Return the figures as lines, one per path MTU and way; ends with a newline."""
    lines = [f"{'path MTU':<10}{'ICRC by':<12}{'min':>8}{'median':>8}{'max':>8}   ns a packet"]
    lines += [
        f"{times.path_mtu:<10}{times.way:<12}{min(times.turns_ns):>8.1f}{times.median_ns:>8.1f}{max(times.turns_ns):>8.1f}"
        for times in measured
    ]
    return "\n".join(lines) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; return 30 if --check finds a missed bar, else 0."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.measure.receive", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--turns", type=int, default=101, help="of each way (default 101)")
    parser.add_argument("--check", action="store_true", help="end with 30 when a bar is not met")
    parsed = parser.parse_args(argv)
    measured = measure(parsed.turns)
    sys.stdout.write(table(measured))
    objections = missed(measured)
    for objection in objections:
        print(f"not met: {objection}")
    return BAR_MISSED if parsed.check and objections else 0


if __name__ == "__main__":
    sys.exit(main())
