"""Follows priority flow control from the queues and hosts that it pauses to the queue that causes it.

A priority group of a port that sends pauses holds the queue, or the host, at the other end of its cable. Its own packets wait
in egress queues of its switch. Such a queue is paused in turn by the group, or the host, behind its cable, and so on up to a
sink: an egress queue that drains, or that its host pauses. A cycle has no sink: its queues wait for each other.

Which egress queues hold the packets of a group is known from the ways of flows. Without them it is any queue that held packets
while the group paused, except that packets that came down to a tier do not go up again. Queue, group and priority of the same
number belong together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.base.late_dataclass import dataclass
from etloop.results.diagnosis.tiers import HOST_TIER, roles

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.results.diagnosis.evidence import Evidence

    Floats = NDArray[np.float64]
    Rows = NDArray[np.int64]
    Flags = NDArray[np.bool_]
    Lane = tuple[int, int]

_LONG_NS: Final = 1_000_000
"""Long enough for any hold: two round trips of a network, and more than a port needs for its queue (`_least_ns`)."""
_HELD: Final = 0.9
"""Share of the time between two readings for which a held queue is paused."""
_CHOSEN: Final = 0.3
"""Least bytes of a queue that a group waits for, as a share of those in the fullest queue behind it."""
_MOST_MOMENTS: Final = 1000


@dataclass(frozen=True, slots=True)
class Hold:
    """A time in which a queue held packets, was paused and sent nothing."""

    start_ns: int
    end_ns: int
    lasts: bool
    """Whether it lasted until the last reading."""


@dataclass(frozen=True, slots=True)
class Cycle:
    """Queues that wait for each other."""

    lanes: tuple[int, ...]
    """Rows in `Lanes`, each held by the group behind its cable, whose packets wait in the next; the last one's in the first."""
    start_ns: int
    end_ns: int
    is_resolved: bool
    """Whether packets moved again before the end of the run."""


@dataclass(slots=True)
class Sink:
    """An egress queue in which the packets wait that pauses hold back."""

    lane: int
    """Row in `Lanes`."""
    held_share: float
    """Share of the time of the pauses in which its own host paused it."""
    paused_ns: float = 0.0
    """Time for which the queue, or host, that waited longest for it was paused."""
    queues: set[int] = field(default_factory=set)
    """Rows in `Lanes` of paused queues that wait for it."""
    hosts: set[int] = field(default_factory=set)
    """Rows in `Hosts` of paused hosts that wait for it."""


@dataclass(frozen=True, slots=True)
class PauseGraph:
    """Causes of the pauses of a run."""

    cycles: tuple[Cycle, ...] = ()
    sinks: tuple[Sink, ...] = ()
    """By falling time of their pauses."""


def pause_graph(evidence: Evidence) -> PauseGraph:
    """Return the cycles and sinks of all pauses of a run."""
    lanes = evidence.lanes
    if not len(evidence.samples.lane) or not (np.nan_to_num(lanes.counter("pfc_tx")) > 0).any():
        return PauseGraph()
    way = _Ways(evidence)
    return PauseGraph(_cycles(evidence, way), _sinks(evidence, way))


def run_end_ns(evidence: Evidence) -> int:
    """Return the end of the run, or the last reading of a run that did not complete."""
    last_ns = int(evidence.samples.time_ns.max()) if len(evidence.samples.time_ns) else 0
    return evidence.duration_ns or last_ns


def ended_paused(evidence: Evidence) -> bool:
    """Return whether a run ended early while pauses held packets: what did not arrive then may not be lost."""
    paused_ns = np.nan_to_num(evidence.lanes.counter("queue_paused_ns"))
    end_ns = run_end_ns(evidence)
    return not evidence.duration_ns and end_ns > 0 and bool((paused_ns >= 0.5 * end_ns).any())


class _Ways:
    """Where the packets go on that a queue sends."""

    def __init__(self, evidence: Evidence) -> None:
        ports, lanes, flows = evidence.ports, evidence.lanes, evidence.flows
        self._ports = ports
        self._roles = roles(evidence)
        self._lanes_of_switch: dict[tuple[str, int], list[int]] = {}
        used = np.nan_to_num(lanes.counter("queue_watermark_bytes"), nan=1.0) > 0
        self._row_of: dict[Lane, int] = {}
        for row, (port, number) in enumerate(zip(lanes.port.tolist(), lanes.number.tolist(), strict=True)):
            self._row_of[port, number] = row
            if used[row]:
                self._lanes_of_switch.setdefault((ports.switch[port], number), []).append(row)
        self._follows = _followers(evidence) if flows.has_ways and not evidence.needs.sprays else None
        self._lane_port = lanes.port

    def row(self, port: int, number: int) -> int:
        """Return the row of a lane; -1: not counted."""
        return self._row_of.get((port, number), -1)

    def candidates(self, ingress_port: int, number: int) -> list[int]:
        """Return the egress queues of a switch in which packets of an ingress port may wait."""
        ports = self._ports
        peer = int(ports.peer_row[ingress_port])
        lanes = self._lanes_of_switch.get((ports.switch[ingress_port], number), [])
        if self._follows is not None and peer >= 0:
            after = self._follows.get(peer, set())
            return [lane for lane in lanes if int(self._lane_port[lane]) in after]
        tier, from_tier = self._roles[ingress_port]
        came_down = from_tier > tier
        allowed = []
        for lane in lanes:
            port = int(self._lane_port[lane])
            goes_up = self._roles[port][1] > tier
            if port != ingress_port and not (came_down and goes_up and from_tier != HOST_TIER):
                allowed.append(lane)
        return allowed


def _followers(evidence: Evidence) -> dict[int, set[int]]:
    """Return the egress ports by which flows leave the next switch, by egress port."""
    flows, ports = evidence.flows, evidence.ports
    first, second = flows.way_port[:-1], flows.way_port[1:]
    same_flow = np.ones(len(first), bool)
    ends = flows.way_first[1:-1] - 1
    same_flow[ends[(ends >= 0) & (ends < len(first))]] = False
    known = same_flow & (first >= 0) & (second >= 0)
    pairs = np.unique(first[known] * len(ports.names) + second[known])
    after: dict[int, set[int]] = {}
    for port, following in zip(*(part.tolist() for part in np.divmod(pairs, len(ports.names))), strict=True):
        peer = int(ports.peer_row[port])
        if peer >= 0 and ports.switch[peer] == ports.switch[following]:
            after.setdefault(port, set()).add(following)
    return after


# ---- cycles


def holds(evidence: Evidence) -> Mapping[int, Hold]:
    """Return the longest time in which each lane was held, of lanes that could have sent their queue twice meanwhile, or were
    held for 1 ms, by two steps or more between readings."""
    samples = evidence.samples
    lane, time_ns = samples.lane, samples.time_ns
    queued, sent, paused_ns, pauses = (
        samples.value(name) for name in ("queued_bytes", "tx_bytes", "paused_ns", "pfc_rx")
    )
    gap_ns = np.diff(time_ns)
    is_paused = np.where(
        np.isnan(np.diff(paused_ns)), np.diff(pauses) > 0, np.diff(paused_ns) >= _HELD * gap_ns
    )
    held = (lane[1:] == lane[:-1]) & is_paused & (np.diff(sent) == 0)
    held &= (queued[1:] > 0) & (queued[:-1] > 0)
    edges = np.flatnonzero(np.diff(np.r_[False, held, False].astype(np.int8)))
    starts, ends = edges[::2], edges[1::2]
    # Runs of different lanes that touch in the table are apart, because the step between them is of two lanes.
    longest: dict[int, Hold] = {}
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        begin_ns, end_ns, row = int(time_ns[start]), int(time_ns[end]), int(lane[start])
        if end - start < 2 or end_ns - begin_ns < _least_ns(evidence, row, float(queued[start])):
            continue
        lasts = end + 1 == len(lane) or int(lane[end + 1]) != row
        if row not in longest or end_ns - begin_ns > longest[row].end_ns - longest[row].start_ns:
            longest[row] = Hold(begin_ns, end_ns, lasts)
    return longest


def _least_ns(evidence: Evidence, lane: int, queued_bytes: float) -> float:
    """Return twice the time that a port needs for its queue, at most 1 ms."""
    bps = float(evidence.ports.described_bps[evidence.lanes.port[lane]])
    return min(_LONG_NS, 2 * queued_bytes * 8e9 / bps) if bps > 0 else _LONG_NS


def _cycles(evidence: Evidence, ways: _Ways) -> tuple[Cycle, ...]:
    held = holds(evidence)
    lanes, ports = evidence.lanes, evidence.ports
    after: dict[int, list[int]] = {}
    for lane, own in held.items():
        peer = int(ports.peer_row[lanes.port[lane]])
        if peer >= 0:
            after[lane] = [
                following
                for following in ways.candidates(peer, int(lanes.number[lane]))
                if following in held and _overlap_ns(own, held[following]) > 0
            ]
    cycles = []
    while ring := _ring(after):
        start_ns = max(held[lane].start_ns for lane in ring)
        end_ns = min(held[lane].end_ns for lane in ring)
        if end_ns > start_ns:
            lasts = all(held[lane].lasts for lane in ring)
            cycles.append(Cycle(_in_order(ring, evidence), start_ns, end_ns, not lasts))
        for lane in ring:
            after.pop(lane)
    return tuple(cycles)


def _overlap_ns(first: Hold, second: Hold) -> int:
    return min(first.end_ns, second.end_ns) - max(first.start_ns, second.start_ns)


def _ring(after: Mapping[int, list[int]]) -> list[int]:
    """Return the vertices of one cycle of a graph in their order; empty if it has none."""
    left = {vertex: [next_ for next_ in following if next_ in after] for vertex, following in after.items()}
    while ends := [vertex for vertex, following in left.items() if not any(v in left for v in following)]:
        for vertex in ends:
            del left[vertex]
    if not left:
        return []
    trail = [min(left)]
    while True:
        following = min(vertex for vertex in left[trail[-1]] if vertex in left)
        if following in trail:
            return trail[trail.index(following) :]
        trail.append(following)


def _in_order(ring: list[int], evidence: Evidence) -> tuple[int, ...]:
    """Return a cycle from the queue whose port comes first by name."""
    names = [evidence.ports.names[evidence.lanes.port[lane]] for lane in ring]
    first = names.index(min(names))
    return (*ring[first:], *ring[:first])


# ---- sinks


class _Series:
    """Bytes queued, and shares of time paused, of lanes at common moments."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        samples = evidence.samples
        times = np.unique(samples.time_ns)
        if len(times) > _MOST_MOMENTS:
            times = np.linspace(times[0], times[-1], _MOST_MOMENTS)
        self.moments = times.astype(np.float64)
        self.gap_ns = np.diff(self.moments)
        self._columns: dict[tuple[int, str], Floats] = {}

    def at(self, lane: int, name: str) -> Floats:
        """Return a value of a lane at all moments; 0 before its first reading and if it is not counted."""
        key = lane, name
        if key not in self._columns:
            rows = self._evidence.samples_of_lane(lane)
            values = self._evidence.samples.value(name)[rows]
            times = self._evidence.samples.time_ns[rows]
            known = np.isfinite(values)
            column = np.zeros(len(self.moments))
            if known.any():
                column = np.interp(self.moments, times[known], values[known], left=0.0)
            self._columns[key] = column
        return self._columns[key]

    def paused_share(self, lane: int) -> Floats:
        """Return the share of the time between two moments for which a lane was paused."""
        return np.clip(np.diff(self.at(lane, "paused_ns")) / self.gap_ns, 0, 1)

    def pausing(self, ingress_lane: int, paused_lane: int) -> Floats:
        """Return how far a group paused the other end between two moments: by that queue's own time, or by pauses sent."""
        if paused_lane >= 0:
            return self.paused_share(paused_lane)
        return (np.diff(self.at(ingress_lane, "pfc_tx")) > 0).astype(np.float64)

    def waiting(self, lane: int, weight: Floats) -> float:
        """Return the bytes in a queue, averaged over the time with a weight."""
        queued = self.at(lane, "queued_bytes")
        middle = np.minimum(queued[1:], queued[:-1])
        return float((middle * weight * self.gap_ns).sum())


def _sinks(evidence: Evidence, ways: _Ways) -> tuple[Sink, ...]:
    lanes, ports, hosts = evidence.lanes, evidence.ports, evidence.hosts
    series = _Series(evidence)
    host_paused_ns = np.nan_to_num(hosts.counter("paused_ns"))
    sinks: dict[int, Sink] = {}
    for group in np.flatnonzero(np.nan_to_num(lanes.counter("pfc_tx")) > 0).tolist():
        port, number = int(lanes.port[group]), int(lanes.number[group])
        peer, host = int(ports.peer_row[port]), int(ports.host[port])
        paused_lane = ways.row(peer, number) if peer >= 0 else -1
        weight = series.pausing(group, paused_lane)
        if not weight.any():
            continue
        for sink in _end_of(evidence, ways, series, group, weight):
            own = sinks.setdefault(sink.lane, sink)
            if paused_lane >= 0:
                own.queues.add(paused_lane)
                paused_ns = float((weight * series.gap_ns).sum())
            else:
                own.hosts |= {host} if host >= 0 else set()
                paused_ns = float(host_paused_ns[host]) if host >= 0 else 0.0
            own.paused_ns = max(own.paused_ns, paused_ns)
            own.held_share = max(own.held_share, sink.held_share)
    return tuple(sorted(sinks.values(), key=lambda sink: -sink.paused_ns))


def _end_of(evidence: Evidence, ways: _Ways, series: _Series, group: int, weight: Floats) -> list[Sink]:
    """Return the sinks that a pausing group waits for."""
    lanes, ports = evidence.lanes, evidence.ports
    ends: list[Sink] = []
    seen = {group}
    left = [group]
    total_ns = float((weight * series.gap_ns).sum())
    while left:
        current = left.pop()
        number = int(lanes.number[current])
        candidates = ways.candidates(int(lanes.port[current]), number)
        waiting = {lane: series.waiting(lane, weight) for lane in candidates}
        least = _CHOSEN * max(waiting.values(), default=0.0)
        for lane in (lane for lane, size in waiting.items() if size > 0 and size >= least):
            held = float((series.paused_share(lane) * weight * series.gap_ns).sum()) / total_ns
            peer = int(ports.peer_row[lanes.port[lane]])
            if peer < 0 or held < 0.5:
                ends.append(Sink(lane, held))
                continue
            following = ways.row(peer, number)
            if following >= 0 and following not in seen:
                seen.add(following)
                left.append(following)
    return ends
