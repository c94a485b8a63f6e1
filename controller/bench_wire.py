"""`etloop bench wire` and `pacing`: what ports carry beside bare sockets of the same kind, and how even a set rate leaves.

Decides which ports, how many queue pairs and rates are measured, their bars, and what an error of pacing is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from contract.assignment import PortBackend
from contract.clock import NS_PER_MS, NS_PER_S
from contract.errors import RunAborted
from contract.units import format_rate
from controller.bench_figures import Bar, Bound, Ratio, Section, Series, Unit, ratio_of
from controller.bench_load import BenchLoad, Shape
from controller.bench_turns import notes_of
from workload.trace import CollectiveKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from controller.bench_measure import EngineRun
    from controller.bench_turns import Bench

WIRE_BARS: Final = {
    PortBackend.UDP: Bar(Bound.AT_LEAST, 0.8),
    PortBackend.PACKET: Bar(Bound.AT_LEAST, 0.9),
    PortBackend.XDP: Bar(Bound.AT_LEAST, 0.9),
}
MANY_QUEUE_PAIRS: Final = 1000
MANY_BAR: Final = Bar(Bound.AT_LEAST, 0.6)
"""From so many queue pairs on, of every port."""
PACING_BAR: Final = Bar(Bound.AT_MOST, 1.0)
"""Percent, of the set rate, in the worst window of a turn."""

LINK_BPS: Final = 10_000_000_000
"""Of the paced port; half of it is the fastest rate."""
PACED: Final = ((100_000_000, 256), (1_000_000_000, 4096), (LINK_BPS // 2, 4096))
"""Rate and path MTU: where a packet is 0.5 % of a window or less, for a window's edges cut none."""
WINDOW_NS: Final = 10 * NS_PER_MS
LOOKS_PER_WINDOW: Final = 10
LINK_BYTES: Final = 12 + 4 + 66
"""Beside the payload of a WRITE MIDDLE: BTH, ICRC, and what it occupies on an IPv4 link (`kLinkBytesIpv4`)."""
WINDOWS_AT_LEAST: Final = 5


@dataclass(frozen=True, slots=True)
class WirePorts:
    """What `wire` measures: every backend with every number of queue pairs."""

    backends: tuple[PortBackend, ...]
    queue_pairs: tuple[int, ...]


ALL_PORTS: Final = WirePorts((PortBackend.UDP, PortBackend.PACKET, PortBackend.XDP), (1, 100, 1000))


def wire_sections(bench: Bench, ports: WirePorts) -> tuple[Section, ...]:
    """A section of every backend that can be measured here. Raises as the measurements do."""
    return tuple(
        _wire_section(bench, backend, ports.queue_pairs)
        for backend in ports.backends
        if backend is PortBackend.UDP or bench.place.has_frames
    )


def wire_bar(backend: PortBackend, queue_pairs: int) -> Bar:
    """What a port is held against."""
    return MANY_BAR if queue_pairs >= MANY_QUEUE_PAIRS else WIRE_BARS[backend]


def _wire_section(bench: Bench, backend: PortBackend, queue_pairs: tuple[int, ...]) -> Section:
    name = f"wire {backend.name.lower()}"
    bare: list[int] = []
    runs: dict[int, list[EngineRun]] = {count: [] for count in queue_pairs}
    size = bench.lengths.broadcast_bytes
    for _ in bench.turns(name):
        bare.append(bench.bare_bytes_per_s(backend))
        load = BenchLoad(CollectiveKind.BROADCAST, 2, size, bench.iterations(size, bare[-1]))
        for count in queue_pairs:
            runs[count].append(bench.run(load, Shape(queue_pairs=count), backend))
    ours = {count: [run.wire_bytes_per_s for run in runs[count]] for count in queue_pairs}
    beside = (
        "UDP with GSO and GRO"
        if backend is PortBackend.UDP
        else f"frames over the {backend.name.lower()} socket"
    )
    return Section(
        name=name,
        title=f"payload of RC WRITE messages one way, path MTU 4096, DCQCN, beside bare {beside}",
        series=(
            Series("bare payload", Unit.BYTES_PER_S, tuple(bare)),
            *(
                Series(f"ETLoop, {_pairs(count)}", Unit.BYTES_PER_S, tuple(ours[count]))
                for count in queue_pairs
            ),
        ),
        ratios=tuple(
            ratio_of(f"ETLoop / bare, {_pairs(count)}", ours[count], bare, wire_bar(backend, count))
            for count in queue_pairs
        ),
        notes=notes_of([run for count in queue_pairs for run in runs[count]]),
    )


def _pairs(count: int) -> str:
    return "1 queue pair" if count == 1 else f"{count:,} queue pairs"


def pacing_section(bench: Bench) -> Section:
    """How far what left in any 10 ms of a turn was from the set rate. Raises as the measurements do."""
    series: list[Series] = []
    ratios: list[Ratio] = []
    runs: list[EngineRun] = []
    for rate_bps, path_mtu in PACED:
        shape = Shape(
            path_mtu_bytes=path_mtu,
            link_bps=LINK_BPS,
            rate_bps=rate_bps,
            series_ns=WINDOW_NS // LOOKS_PER_WINDOW,
        )
        size = max(1, rate_bps // 8 * bench.lengths.duration_ns // NS_PER_S)
        found = []
        for _ in bench.turns(f"pacing {format_rate(rate_bps)}"):
            runs.append(bench.run(BenchLoad(CollectiveKind.BROADCAST, 2, size, 1), shape))
            found.append(window_rates_bps(_sender(runs[-1]), path_mtu + LINK_BYTES))
        errors = [np.abs(rates - rate_bps) * 100 / rate_bps for rates in found]
        label = format_rate(rate_bps)
        series.append(
            Series(f"{label}: sent", Unit.BYTES_PER_S, tuple(int(np.mean(rates)) // 8 for rates in found))
        )
        ratios.append(
            Ratio(f"{label}: worst 10 ms, % off", tuple(float(error.max()) for error in errors), PACING_BAR)
        )
    return Section(
        name="pacing",
        title="a queue pair at a set rate over a link of 10Gbps: bytes on the link in every 10 ms, udp port",
        series=tuple(series),
        ratios=tuple(ratios),
        notes=notes_of(runs),
    )


def _sender(run: EngineRun) -> NDArray[np.int64]:
    return max(run.sent, key=lambda looks: int(looks[-1, 1]) if len(looks) else 0)


def window_rates_bps(looks: NDArray[np.int64], packet_bytes: int) -> NDArray[np.float64]:
    """The rate on the link in every window of 10 ms that lies within the sending, from times and packets sent until then.

    Raises `RunAborted` where there are too few to tell.
    """
    last = looks[-1, 1] if len(looks) else 0
    under_way = looks[(looks[:, 1] > 0) & (looks[:, 1] < last)]
    ends = np.searchsorted(under_way[:, 0], under_way[:, 0] + WINDOW_NS)
    begins = np.flatnonzero(ends < len(under_way))
    if len(begins) < WINDOWS_AT_LEAST:
        raise RunAborted("too little was sent to tell how evenly; measure for longer")
    span = under_way[ends[begins]] - under_way[begins]
    return span[:, 1] * (packet_bytes * 8.0 * NS_PER_S) / span[:, 0]
