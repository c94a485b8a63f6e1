"""Formats a run in progress as lines: phase, iteration, elapsed and remaining time, each port's rates, the emulator's own
lateness. Pure.

Decides the interval over which rates are taken, how many ports are shown, and when lateness deserves a warning.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from etloop.contract.base.clock import NS_PER_MS, NS_PER_S, NS_PER_US
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import approximate_bytes, approximate_duration
from etloop.contract.protocol.machine import RunState
from etloop.results.report.values import list_names
from etloop.results.schema.losses import DEVICE_FIGURES, dropped_by_device

if TYPE_CHECKING:
    from etloop.contract.model.counters import CounterBatch
    from etloop.controller.session.actions import PortProgress, RunProgress

MOST_PORTS: Final = 16
MOST_AGENTS: Final = 8
RATES_OVER_NS: Final = NS_PER_S
"""Over a shorter time rates fluctuate; over a longer time they lag."""
LATE_NS: Final = 100 * NS_PER_US
VERY_LATE_NS: Final = NS_PER_MS
_WORDS: Final = {
    RunState.GATHER: "waits for agents",
    RunState.ASSIGN: "opens sockets",
    RunState.PAIR: "pairs network cards",
    RunState.CONNECT: "probes connections",
    RunState.ARM: "compares clocks",
    RunState.RUN: "running",
    RunState.COLLECT: "collects records",
    RunState.ABORTING: "breaks off",
    RunState.DONE: "done",
    RunState.ABORTED: "broke off",
}
_MARKS: Final = ("queue_ecn_marked_packets", "port_ecn_marked_packets")
"""The first one that the device has: a port's counter includes those of its queues."""
_SHOWN_COUNTERS: Final = frozenset(
    (*_MARKS, *(key for figure in DEVICE_FIGURES for key in figure.device_counters))
)
_BAR: Final = 24
_SMALL_BAR: Final = 10


@dataclass(frozen=True, slots=True)
class LiveLine:
    """A line, and its mood: "" (neutral), "good", "doubtful" or "bad"."""

    text: str
    mood: str = ""


@dataclass(frozen=True, slots=True)
class LivePort:
    """A port's current rates."""

    name: str
    tx_bps: float
    rx_bps: float
    link_bps: int
    """0: unknown."""


@dataclass(frozen=True, slots=True)
class LiveView:
    """The same content for a page."""

    head: str
    share: float
    """Share of all ops that are done, 0 to 1."""
    time_ms: float
    ports: tuple[LivePort, ...]
    more_ports: int
    late: str
    late_mood: str
    dropped: int | None = None
    """Packets that the device dropped since the start; None: not counted."""
    marked: int | None = None
    """Packets that the device marked since the start; None: not counted."""


@dataclass(frozen=True, slots=True)
class _Moment:
    """The progress at one time."""

    now_ns: int
    progress: RunProgress


class LiveRun:
    """The known progress of a run. `now_ns` is any monotonic clock."""

    def __init__(self, iterations: int, link_bps: Mapping[str, int]) -> None:
        self._iterations = iterations
        self._link_bps = link_bps
        self._begin_ns: int | None = None
        self._moments: deque[_Moment] = deque()
        self._device: dict[str, dict[str, tuple[int, int]]] = {}
        """Source -> total of a counter (KIND_COUNTER) in its first and its last reading."""

    def take(self, progress: RunProgress, now_ns: int) -> None:
        """Record the progress of the session."""
        if self._begin_ns is None and progress.ops_done > 0:
            self._begin_ns = now_ns
        self._moments.append(_Moment(now_ns, progress))
        while len(self._moments) > 2 and now_ns - self._moments[1].now_ns >= RATES_OVER_NS:
            self._moments.popleft()

    def take_counters(self, source: str, batch: CounterBatch) -> None:
        """Record a reading of the device's counters."""
        totals: dict[str, int] = {}
        for reading in batch.readings:
            key = f"{reading.object.kind}_{reading.counter}"
            if key in _SHOWN_COUNTERS:
                totals[key] = totals.get(key, 0) + reading.value
        known = self._device.setdefault(source, {})
        for key, total in totals.items():
            known[key] = (known.get(key, (total, total))[0], total)

    def lines(self) -> tuple[LiveLine, ...]:
        """Return the lines for a terminal."""
        if not self._moments:
            return ()
        ports = sorted(self._busiest(), key=lambda port: port.name)
        hidden_ports = len(self._last.ports) - len(ports)
        width = max((len(port.name) for port in ports), default=0)
        live_lines = [LiveLine(self._head())]
        live_lines += [LiveLine(self._port_line(port, width)) for port in ports]
        if hidden_ports > 0:
            live_lines.append(LiveLine(f"  and {hidden_ports} ports more"))
        return (*live_lines, *self._lateness())

    def line(self) -> str:
        """Return the same as one line, for a log."""
        if not self._moments:
            return ""
        rates = [f"{port.name} {self._rate_words(port)}" for port in self._busiest()[:2]]
        return "; ".join([self._head(bar=False), *rates, *(line.text.strip() for line in self._lateness())])

    def view(self) -> LiveView:
        """Return the view for a page. Call it only after `take`."""
        ports = sorted(self._busiest(), key=lambda port: port.name)
        late = self._lateness()
        begin_ns = self._begin_ns if self._begin_ns is not None else self._moments[-1].now_ns
        increases = self._device_increases()
        return LiveView(
            head=self._head(bar=False),
            share=self._last.ops_done / max(self._last.ops_total, 1),
            time_ms=(self._moments[-1].now_ns - begin_ns) / NS_PER_MS,
            ports=tuple(
                LivePort(port.name, *self._rates_bps(port), self._link_bps.get(port.name, 0))
                for port in ports
            ),
            more_ports=len(self._last.ports) - len(ports),
            late=late[0].text.strip() if late else "",
            late_mood=late[0].mood if late else "",
            dropped=dropped_by_device(increases),
            marked=next((increases[key] for key in _MARKS if key in increases), None),
        )

    def _device_increases(self) -> dict[str, int]:
        """Return the increase of every counter since the first reading, over all sources; never negative."""
        increases: dict[str, int] = {}
        for counters in self._device.values():
            for key, (first, last) in counters.items():
                increases[key] = increases.get(key, 0) + max(last - first, 0)
        return increases

    @property
    def _last(self) -> RunProgress:
        return self._moments[-1].progress

    def _head(self, *, bar: bool = True) -> str:
        last = self._last
        state = _WORDS[last.state]
        if last.state is RunState.GATHER and last.missing_agents:
            state += f": {list_names(last.missing_agents, MOST_AGENTS)}"
        if last.ops_done == 0 or self._begin_ns is None:
            return state
        share = last.ops_done / max(last.ops_total, 1)
        spent_ns = self._moments[-1].now_ns - self._begin_ns
        number = min(int(share * self._iterations) + 1, self._iterations)
        bar_text = f"[{_bar(share, _BAR)}] " if bar else ""
        phrases = [f"{state}  {bar_text}{share:.0%}"]
        if self._iterations > 1:
            phrases.append(f"iteration {number} of {self._iterations}")
        if spent_ns > 0 and share > 0:
            if self._iterations > 1:
                phrases.append(f"{approximate_duration(round(spent_ns / share / self._iterations))} each")
            left_ns = round(spent_ns * (1 - share) / share)
            left = f", {approximate_duration(left_ns)} left" if left_ns > 0 else ""
            phrases.append(f"{approximate_duration(spent_ns)} so far{left}")
        return ", ".join([*phrases, f"{approximate_bytes(last.wire_tx_bytes)} sent"])

    def _busiest(self) -> list[PortProgress]:
        return sorted(
            self._last.ports, key=lambda port: (-port.wire_tx_bytes - port.wire_rx_bytes, port.name)
        )[:MOST_PORTS]

    def _rates_bps(self, port: PortProgress) -> tuple[float, float]:
        oldest = self._moments[0]
        previous = next(
            (candidate for candidate in oldest.progress.ports if candidate.name == port.name), None
        )
        spent_ns = self._moments[-1].now_ns - oldest.now_ns
        if previous is None or spent_ns <= 0:
            return 0.0, 0.0
        tx_bytes, rx_bytes = (
            port.wire_tx_bytes - previous.wire_tx_bytes,
            port.wire_rx_bytes - previous.wire_rx_bytes,
        )
        return tx_bytes * 8e9 / spent_ns, rx_bytes * 8e9 / spent_ns

    def _rate_words(self, port: PortProgress) -> str:
        tx_bps, rx_bps = self._rates_bps(port)
        return f"sends {_gbps(tx_bps)}, receives {_gbps(rx_bps)}"

    def _port_line(self, port: PortProgress, width: int) -> str:
        tx_bps, rx_bps = self._rates_bps(port)
        text = f"  {port.name:<{width}}  sends {_gbps(tx_bps):>10}  receives {_gbps(rx_bps):>10}"
        link_bps = self._link_bps.get(port.name, 0)
        if link_bps <= 0:
            return text
        share = max(tx_bps, rx_bps) / link_bps
        return f"{text}  [{_bar(share, _SMALL_BAR)}] {share:4.0%} of its link"

    def _lateness(self) -> tuple[LiveLine, ...]:
        late_ns = self._last.slip_ns
        if late_ns < 0:
            return ()
        mood = "good" if late_ns < LATE_NS else "doubtful" if late_ns < VERY_LATE_NS else "bad"
        hints = {
            "good": "",
            "doubtful": "; the agents' hosts are busy",
            "bad": "; the agents' hosts are too busy",
        }
        text = f"  our own lateness {approximate_duration(late_ns)} (99 of 100 ops begin sooner){hints[mood]}"
        return (LiveLine(text, mood),)


def _gbps(rate_bps: float) -> str:
    return f"{rate_bps / 1e9:.3g} Gb/s" if rate_bps >= 1e9 else f"{rate_bps / 1e6:.3g} Mb/s"


def _bar(share: float, width: int) -> str:
    filled = round(width * min(max(share, 0.0), 1.0))
    return "#" * filled + "." * (width - filled)
