"""Counts of raw flows while and after a run, from the frame counts that agents report. Pure.

Rates are taken from the senders' and receivers' own times of frames, over the last reports.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from etloop.contract.base.clock import NS_PER_S
from etloop.contract.model.frame_streams import FCS_BYTES, FrameCount
from etloop.controller.otg.model import RawFlow

_STALE_NS: Final = 2 * NS_PER_S
_SAMPLES: Final = 12
"""Reports that a rate is taken from; they are 100 ms apart."""


@dataclass(frozen=True, slots=True)
class RawTotals:
    """Frames and bytes with FCS, and their rates per second."""

    frames: int = 0
    frame_bytes: int = 0
    frames_per_s: float = 0.0
    bytes_per_s: float = 0.0

    def __add__(self, other: RawTotals) -> RawTotals:
        """Return the sums."""
        return RawTotals(
            self.frames + other.frames,
            self.frame_bytes + other.frame_bytes,
            self.frames_per_s + other.frames_per_s,
            self.bytes_per_s + other.bytes_per_s,
        )


@dataclass(slots=True)
class _RawEnd:
    """One end of a flow at one port."""

    latest: FrameCount
    agent: str
    port: str
    """OTG name."""
    seen_ns: int
    """When its last frame was reported, by the controller's clock."""
    samples: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=_SAMPLES))
    """Time of the last frame, and frames."""

    def take(self, count: FrameCount, now_ns: int) -> None:
        """Keep a report."""
        if count.frames and (not self.samples or count.frames != self.samples[-1][1]):
            if not self.samples:
                self.samples.append((count.first_ns, 1))
            self.samples.append((count.last_ns, count.frames))
            self.seen_ns = now_ns
        self.latest = count

    def totals(self, now_ns: int, *, is_running: bool) -> RawTotals:
        """Return counts and rates; rates are 0 if no frame was reported for 2 s."""
        count = self.latest
        frame_bytes = count.frame_bytes + count.frames * FCS_BYTES
        is_fresh = is_running and not count.is_over and now_ns - self.seen_ns <= _STALE_NS
        if not is_fresh or len(self.samples) < 2 or self.samples[-1][0] <= self.samples[0][0]:
            return RawTotals(count.frames, frame_bytes)
        (begin_ns, before), (end_ns, after) = self.samples[0], self.samples[-1]
        frames_per_s = (after - before) * NS_PER_S / (end_ns - begin_ns)
        return RawTotals(count.frames, frame_bytes, frames_per_s, frames_per_s * frame_bytes / count.frames)


class RawCounts:
    """Counts of the raw flows of one run, until the next one begins."""

    def __init__(
        self,
        flows: Sequence[RawFlow] = (),
        port_names: Mapping[str, Sequence[str]] | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        """Take the flows, each agent's ports, and the label "agent/port" of each OTG port."""
        self.flows = tuple(flows)
        self.is_running = False
        self._ports = {
            (agent, index): port
            for agent, names in (port_names or {}).items()
            for index, name in enumerate(names)
            for port, label in (labels or {}).items()
            if label == f"{agent}/{name}"
        }
        self._ends: dict[tuple[str, int, int, bool], _RawEnd] = {}

    def take(self, frames: Mapping[str, Collection[FrameCount]], now_ns: int) -> None:
        """Keep what the agents report."""
        for agent, counts in frames.items():
            for count in counts:
                port = self._ports.get((agent, count.port))
                if port is None:
                    continue
                key = (agent, count.number, count.port, count.sends)
                end = self._ends.setdefault(key, _RawEnd(count, agent, port, now_ns))
                end.take(count, now_ns)

    def is_sending(self, flow: RawFlow) -> bool:
        """Return whether a flow still has frames to send."""
        senders = [end for end in self._of(flow) if end.latest.sends]
        return self.is_running and not (senders and all(end.latest.is_over for end in senders))

    def are_all_sent(self) -> bool:
        """Return whether no flow has frames to send."""
        return not any(self.is_sending(flow) for flow in self.flows)

    def _of(self, flow: RawFlow) -> list[_RawEnd]:
        return [end for end in self._ends.values() if end.latest.number == flow.number]

    def totals_of_flow(self, flow: RawFlow, now_ns: int) -> tuple[RawTotals, RawTotals]:
        """Return what a flow sent and received."""
        return self._sum(self._of(flow), now_ns, sends=True), self._sum(self._of(flow), now_ns, sends=False)

    def totals_of_port(self, port: str, now_ns: int) -> tuple[RawTotals, RawTotals]:
        """Return what an OTG port sent and received of all flows."""
        ends = [end for end in self._ends.values() if end.port == port]
        return self._sum(ends, now_ns, sends=True), self._sum(ends, now_ns, sends=False)

    def _sum(self, ends: Collection[_RawEnd], now_ns: int, *, sends: bool) -> RawTotals:
        parts = (end.totals(now_ns, is_running=self.is_running) for end in ends if end.latest.sends is sends)
        return sum(parts, RawTotals())

    def latency_ns(self, flow: RawFlow) -> tuple[int, int, int] | None:
        """Return least, greatest and mean latency; None without frames."""
        counts = [end.latest for end in self._of(flow) if not end.latest.sends and end.latest.frames]
        if not counts:
            return None
        frames = sum(count.frames for count in counts)
        return (
            min(count.latency_min_ns for count in counts),
            max(count.latency_max_ns for count in counts),
            sum(count.latency_sum_ns for count in counts) // frames,
        )

    def times_ns(self, flow: RawFlow) -> tuple[int, int] | None:
        """Return when the first and the last frame arrived; None without frames."""
        counts = [end.latest for end in self._of(flow) if not end.latest.sends and end.latest.frames]
        if not counts:
            return None
        return min(count.first_ns for count in counts), max(count.last_ns for count in counts)

    def used_ports(self) -> set[str]:
        """Return the OTG ports that a run has used."""
        return {end.port for end in self._ends.values()}

    def notes(self) -> tuple[str, ...]:
        """Return what kept frames from being sent at their rate, or from being received."""
        late_ns: dict[int, int] = {}
        interruptions: dict[str, int] = {}
        for end in self._ends.values():
            late_ns[end.latest.number] = max(late_ns.get(end.latest.number, 0), end.latest.behind_ns)
            interruptions[end.port] = max(interruptions.get(end.port, 0), end.latest.interruptions)
        late = (
            f"raw flow {flow.name} fell behind its rate by {late_ns[flow.number] / NS_PER_S:.3f} s"
            for flow in self.flows
            if late_ns.get(flow.number)
        )
        interrupted = (
            f"frames sent while the interface of port {port} was down were not received (interruptions: {times})"
            for port, times in interruptions.items()
            if times
        )
        return (*late, *interrupted)
