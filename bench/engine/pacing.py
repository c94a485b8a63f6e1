"""`etloop bench pacing`: how evenly packets of a set rate leave, and whether its threads were delayed meanwhile.

Decides the measured rates, the definition of the pacing error, and which windows a delayed thread affects. The bar applies to the
worst window of all; the other figures show the cause of the error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from etloop.bench.engine.figures import Bar, Bound, Ratio, Section, Series, Unit
from etloop.bench.engine.load import BenchLoad, Shape
from etloop.bench.engine.measure import EndCores, EngineRun
from etloop.bench.engine.rounds import Bench, notes_of
from etloop.bench.engine.wire import WirePorts, backends_here
from etloop.contract.base.clock import NS_PER_MS, NS_PER_S
from etloop.contract.base.errors import RunAborted
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import format_rate
from etloop.contract.model.assignment import PortBackend
from etloop.contract.model.congestion import PacingSettings
from etloop.traffic.threads.cleared_cores import cleared_cores
from etloop.workload.trace.trace import CollectiveKind

PACING_BAR: Final = Bar(Bound.AT_MOST, 1.0)
"""Error in percent of the set rate, in the worst window of a turn."""

LINK_BPS: Final = {
    PortBackend.UDP: 10_000_000_000,
    PortBackend.PACKET: 4_000_000_000,
    PortBackend.XDP: 4_000_000_000,
}
"""Link rate of the paced port, as much as a small host's socket of the kind carries; half of it is the fastest rate."""
PACED: Final = ((100_000_000, 256), (1_000_000_000, 4096))
"""Rate and path MTU, in addition to half of the link at 4096. A packet is 0.5 % of a window or less, because windows count whole
packets."""
WINDOW_NS: Final = 10 * NS_PER_MS
LOOKS_PER_WINDOW: Final = 10
CATCH_UP_NS: Final = PacingSettings().catch_up_ns
"""Time after a gap in which more than the set rate may leave, at twice the rate and faster."""
LINK_BYTES: Final = 12 + 4 + 66
"""Overhead of a WRITE MIDDLE: BTH, ICRC, and the framing on an IPv4 link (`kLinkBytesIpv4`)."""
WINDOWS_AT_LEAST: Final = 5


@dataclass(frozen=True, slots=True)
class Windows:
    """All windows of 10 ms within the transmission of one turn."""

    begin_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    bps: NDArray[np.float64]
    """Rate on the link in each window, shape (windows,)."""
    mean_bps: float
    """Average rate over the time that they cover."""

    def touched_by(self, late: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return a mask of the windows that a delay affects, shape (windows,); `late` has rows of begin and end, in any
        order.
        """
        is_touched = np.zeros(len(self.bps), np.bool_)
        for begin_ns, end_ns in late:
            is_touched |= (self.begin_ns <= end_ns + CATCH_UP_NS) & (self.end_ns >= begin_ns)
        return is_touched


def pacing_sections(bench: Bench, ports: WirePorts) -> tuple[Section, ...]:
    """Return a section for every backend that can be measured here. Raises as the measurements do, and as
    `cleared_cores`.
    """
    if not bench.clear_cores:
        return tuple(_pacing_section(bench, backend) for backend in backends_here(bench, ports))
    ends, cleared_numbers = paced_cores(bench.usable)
    with cleared_cores(cleared_numbers, bench.usable) as cleared:
        bench_on_cores = replace(bench, cores=ends)
        notes = (cleared.done, *cleared.degraded)
        return tuple(
            _pacing_section(bench_on_cores, backend, notes) for backend in backends_here(bench, ports)
        )


def paced_cores(usable: Sequence[int]) -> tuple[EndCores, tuple[int, ...]]:
    """Return the cores of sender and receiver, and those of them that other threads must leave.

    All other threads need a core: with two cores they share the receiver's, which may be delayed by as much as the
    sender's window covers.
    """
    sender, receiver = usable[-1], usable[-2:][0]
    reserved = (receiver, sender) if len(usable) > 2 else (sender,)
    return ((sender,), (receiver,)), reserved


def _pacing_section(bench: Bench, backend: PortBackend, first_notes: tuple[str, ...] = ()) -> Section:
    """Return the deviation from the set rate of the bytes that left in any 10 ms of a turn."""
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
        rates_sent = tuple(int(windows.mean_bps) // 8 for windows, _ in turns)
        series.append(Series(f"{label}: sent", Unit.BYTES_PER_S, rates_sent))
        ratios += _ratios(label, rate_bps, turns)
    notes = [*first_notes, *notes_of(runs)]
    if all(run.realtime for run in runs):
        ratios.append(_alone(bench))
        if not bench.clear_cores:
            notes.append("other threads may run on its core: --clear-cores moves them off")
    else:
        notes.append(
            "its threads were ordinary ones, which wait for their turn among all others: --realtime, and the right to it, "
            "lets them go first"
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
    means = [abs(windows.mean_bps - rate_bps) * 100 / rate_bps for windows, _ in turns]
    touched = [windows.touched_by(late_of(run)) for windows, run in turns]
    rows = [
        Ratio(f"{label}: all of the run, % off", tuple(means)),
        *_spread(label, errors, ("middle 10 ms", "95 of 100", "worst 10 ms"), "all", PACING_BAR),
        Ratio(f"{label}: a thread was late, % of all", tuple(map(_percent, touched))),
    ]
    undisturbed_errors = [error[~is_touched] for error, is_touched in zip(errors, touched, strict=True)]
    if all(len(error) for error in undisturbed_errors):
        names = ("middle of the others", "95 of 100 others", "worst of the others")
        rows += _spread(label, undisturbed_errors, names, "the others", None)
    return rows


def _spread(
    label: str, errors: list[NDArray[np.float64]], names: tuple[str, str, str], whose: str, bar: Bar | None
) -> list[Ratio]:
    middle, most, worst = names
    return [
        Ratio(f"{label}: {middle}, % off", tuple(float(np.median(error)) for error in errors)),
        Ratio(f"{label}: {most}, % off at most", tuple(float(np.percentile(error, 95)) for error in errors)),
        Ratio(f"{label}: {worst}, % off", tuple(float(error.max()) for error in errors), bar),
        Ratio(
            f"{label}: within 1 %, % of {whose}",
            tuple(_percent(error <= PACING_BAR.value) for error in errors),
        ),
    ]


def _alone(bench: Bench) -> Ratio:
    """Return the delayed windows of threads that only read the clock, while no engine runs."""
    percentages = []
    for _ in range(bench.lengths.repetitions):
        begin_ns, end_ns, late = bench.watch_cores()
        starts = np.arange(begin_ns, end_ns - WINDOW_NS, WINDOW_NS // LOOKS_PER_WINDOW)
        windows = Windows(starts, starts + WINDOW_NS, np.zeros(len(starts)), 0.0)
        percentages.append(_percent(windows.touched_by(late)))
    return Ratio("no engine there: a thread was late, % of all", tuple(percentages))


def _percent(which: NDArray[np.bool_]) -> float:
    return float(which.mean() * 100)


def late_of(run: EngineRun) -> NDArray[np.int64]:
    """Return the delays of threads of both ends: an end that cannot acknowledge stops the other one."""
    return np.concatenate(run.late)


def _sender(run: EngineRun) -> NDArray[np.int64]:
    return max(run.sent, key=lambda looks: int(looks[-1, 1]) if len(looks) else 0)


def windows_of(looks: NDArray[np.int64], packet_bytes: int) -> Windows:
    """Return every window that begins at a sample and lies within the transmission; `looks` has rows of time and
    packets sent.

    Raises `RunAborted` if there are too few.
    """
    last = looks[-1, 1] if len(looks) else 0
    sending = looks[(looks[:, 1] > 0) & (looks[:, 1] < last)]
    ends = np.searchsorted(sending[:, 0], sending[:, 0] + WINDOW_NS)
    begins = np.flatnonzero(ends < len(sending))
    if len(begins) < WINDOWS_AT_LEAST:
        raise RunAborted("too few packets were sent to measure evenness; measure for longer")
    span = sending[ends[begins]] - sending[begins]
    all_ns, all_packets = sending[-1] - sending[0]
    packet_bits_ns = packet_bytes * 8.0 * NS_PER_S
    return Windows(
        sending[begins, 0],
        sending[ends[begins], 0],
        span[:, 1] * packet_bits_ns / span[:, 0],
        float(all_packets * packet_bits_ns / all_ns),
    )
