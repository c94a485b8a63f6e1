"""`etloop bench pacing`: how evenly a set rate leaves, and whether its threads had their cores meanwhile.

Decides which rates are measured, what an error of pacing is, and which windows are those in which a core was withheld.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from contract.assignment import PortBackend
from contract.clock import NS_PER_MS, NS_PER_S
from contract.errors import RunAborted
from contract.units import format_rate
from controller.bench_figures import Bar, Bound, Ratio, Section, Series, Unit
from controller.bench_load import BenchLoad, Shape
from controller.bench_turns import notes_of
from controller.bench_wire import backends_here
from workload.trace import CollectiveKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from controller.bench_measure import EngineRun
    from controller.bench_turns import Bench
    from controller.bench_wire import WirePorts

PACING_BAR: Final = Bar(Bound.AT_MOST, 1.0)
"""Percent, of the set rate, in the worst window of a turn."""

LINK_BPS: Final = {
    PortBackend.UDP: 10_000_000_000,
    PortBackend.PACKET: 4_000_000_000,
    PortBackend.XDP: 4_000_000_000,
}
"""Of the paced port, as much as a small host's socket of the kind carries; half of it is the fastest rate."""
PACED: Final = ((100_000_000, 256), (1_000_000_000, 4096))
"""Rate and path MTU, beside half of the link at 4096: where a packet is 0.5 % of a window or less, for a window's edges
cut none."""
WINDOW_NS: Final = 10 * NS_PER_MS
LOOKS_PER_WINDOW: Final = 10
CATCH_UP_NS: Final = NS_PER_MS
"""For so long after a hole more than the rate may leave (`Pacer::kCatchUpNs`)."""
LINK_BYTES: Final = 12 + 4 + 66
"""Beside the payload of a WRITE MIDDLE: BTH, ICRC, and what it occupies on an IPv4 link (`kLinkBytesIpv4`)."""
WINDOWS_AT_LEAST: Final = 5


@dataclass(frozen=True, slots=True)
class Windows:
    """All windows of 10 ms that lie within the sending of one turn."""

    begin_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    bps: NDArray[np.float64]
    """The rate on the link."""

    def touched_by(self, withheld: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Those that a time in which a core was withheld reaches into: rows of a begin and an end, in any order."""
        touched = np.zeros(len(self.bps), np.bool_)
        for begin_ns, end_ns in withheld:
            touched |= (self.begin_ns <= end_ns + CATCH_UP_NS) & (self.end_ns >= begin_ns)
        return touched


def pacing_sections(bench: Bench, ports: WirePorts) -> tuple[Section, ...]:
    """A section of every backend that can be measured here. Raises as the measurements do."""
    return tuple(_pacing_section(bench, backend) for backend in backends_here(bench, ports))


def _pacing_section(bench: Bench, backend: PortBackend) -> Section:
    """How far what left in any 10 ms of a turn was from the set rate."""
    name = f"pacing {backend.name.lower()}"
    series: list[Series] = []
    ratios: list[Ratio] = []
    runs: list[EngineRun] = []
    link_bps = LINK_BPS[backend]
    for rate_bps, path_mtu in (*PACED, (link_bps // 2, 4096)):
        shape = Shape(
            path_mtu_bytes=path_mtu,
            link_bps=link_bps,
            rate_bps=rate_bps,
            series_ns=WINDOW_NS // LOOKS_PER_WINDOW,
        )
        size = max(1, rate_bps // 8 * bench.lengths.duration_ns // NS_PER_S)
        label = format_rate(rate_bps)
        turns: list[tuple[Windows, EngineRun]] = []
        for _ in bench.turns(f"{name} {label}"):
            run = bench.run(BenchLoad(CollectiveKind.BROADCAST, 2, size, 1), shape, backend)
            turns.append((windows_of(_sender(run), path_mtu + LINK_BYTES), run))
        runs += [run for _, run in turns]
        sent = tuple(int(np.mean(windows.bps)) // 8 for windows, _ in turns)
        series.append(Series(f"{label}: sent", Unit.BYTES_PER_S, sent))
        ratios += _ratios(label, rate_bps, turns)
    notes = list(notes_of(runs))
    if all(run.withheld is not None for run in runs):
        ratios.append(_alone(bench))
    else:
        notes.append(
            "whether the threads had their cores was not watched: that needs --realtime, the right to it, and a core for each"
        )
    return Section(
        name=name,
        title=f"a queue pair at a set rate over a link of {format_rate(link_bps)}: bytes on the link in every 10 ms",
        series=tuple(series),
        ratios=tuple(ratios),
        notes=tuple(notes),
    )


def _ratios(label: str, rate_bps: int, turns: list[tuple[Windows, EngineRun]]) -> list[Ratio]:
    errors = [np.abs(windows.bps - rate_bps) * 100 / rate_bps for windows, _ in turns]
    rows = [
        Ratio(f"{label}: worst 10 ms, % off", tuple(float(error.max()) for error in errors), PACING_BAR),
        Ratio(f"{label}: middle 10 ms, % off", tuple(float(np.median(error)) for error in errors)),
        Ratio(
            f"{label}: within 1 %, % of all", tuple(_percent(error <= PACING_BAR.value) for error in errors)
        ),
    ]
    if any(run.withheld is None for _, run in turns):
        return rows
    touched = [windows.touched_by(withheld_rows(run)) for windows, run in turns]
    whole = [error[~kept] for error, kept in zip(errors, touched, strict=True)]
    rows.append(Ratio(f"{label}: a core was withheld, % of all", tuple(map(_percent, touched))))
    if all(len(error) for error in whole):
        rows += [
            Ratio(f"{label}: worst of the others, % off", tuple(float(error.max()) for error in whole)),
            Ratio(
                f"{label}: within 1 %, % of the others",
                tuple(_percent(error <= PACING_BAR.value) for error in whole),
            ),
        ]
    return rows


def _alone(bench: Bench) -> Ratio:
    """The same of the cores when nothing of ours runs there."""
    found = []
    for _ in range(bench.lengths.repetitions):
        begin_ns, end_ns, withheld = bench.watch_cores()
        starts = np.arange(begin_ns, end_ns - WINDOW_NS, WINDOW_NS // LOOKS_PER_WINDOW)
        windows = Windows(starts, starts + WINDOW_NS, np.zeros(len(starts)))
        found.append(_percent(windows.touched_by(withheld)))
    return Ratio("no engine there: a core was withheld, % of all", tuple(found))


def _percent(which: NDArray[np.bool_]) -> float:
    return float(which.mean() * 100)


def withheld_rows(run: EngineRun) -> NDArray[np.int64]:
    """When a core of either end was withheld: an end that cannot acknowledge stops the other."""
    assert run.withheld is not None
    return np.concatenate(run.withheld)


def _sender(run: EngineRun) -> NDArray[np.int64]:
    return max(run.sent, key=lambda looks: int(looks[-1, 1]) if len(looks) else 0)


def windows_of(looks: NDArray[np.int64], packet_bytes: int) -> Windows:
    """Every window that begins at a look and lies within the sending, from times and packets sent until then.

    Raises `RunAborted` where there are too few to tell.
    """
    last = looks[-1, 1] if len(looks) else 0
    under_way = looks[(looks[:, 1] > 0) & (looks[:, 1] < last)]
    ends = np.searchsorted(under_way[:, 0], under_way[:, 0] + WINDOW_NS)
    begins = np.flatnonzero(ends < len(under_way))
    if len(begins) < WINDOWS_AT_LEAST:
        raise RunAborted("too little was sent to tell how evenly; measure for longer")
    span = under_way[ends[begins]] - under_way[begins]
    return Windows(
        under_way[begins, 0],
        under_way[ends[begins], 0],
        span[:, 1] * (packet_bytes * 8.0 * NS_PER_S) / span[:, 0],
    )
