"""Finds what pauses a network: a deadlock, a host, the job's own incast; the flows that wait without need; and watchdogs.

`pause_graph` follows pauses to their sink, and this rule names it. A cycle is a deadlock. A queue that its host pauses is a
storm if the host holds it almost without a break, else a slow receiver. A queue of a host's port that drains at its rate is the
job's own incast; one that drains below it is found by `slow_link`. Flows that wait in paused queues on their way to another
host than the sink's are victims.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.base.late_dataclass import dataclass
from etloop.results.diagnosis.evidence import distinct
from etloop.results.diagnosis.pause_graph import Cycle, PauseGraph, Sink, pause_graph, run_end_ns
from etloop.results.diagnosis.rule import Found, no_evidence, report
from etloop.results.diagnosis.rules.slow_link import slow_ports
from etloop.results.schema.findings import Fact, Finding, FindingKind, Place, PlaceKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.results.diagnosis.evidence import Evidence

    Rows = NDArray[np.int64]

_KINDS: Final = (
    FindingKind.PFC_DEADLOCK,
    FindingKind.PFC_STORM,
    FindingKind.PFC_WATCHDOG,
    FindingKind.VICTIM,
    FindingKind.JOB_INCAST,
)
_STORM: Final = 0.9
"""Share of the time from its first to its last pause for which a storm holds its queue."""
_LEAST_SHARE: Final = 0.05
"""Share of the run from which on a pause matters."""
_EXPLAINS: Final = 0.8
"""Share of the run that the planned bytes of a port explain: enough for an incast without pauses, or between switches."""
_CONCENTRATED: Final = 2.0
"""Times the median load of hosts."""
_MOST_FLOWS: Final = 8
_REMEDIES: Final = {
    FindingKind.PFC_DEADLOCK: "route so that packets that came down never go up again (up-down routing), or cut the cycle at "
    "one of these queues; a PFC watchdog ends a deadlock, and drops packets",
    FindingKind.PFC_STORM: "isolate the host and check its NIC and driver; switch on the PFC watchdog of the switch",
    FindingKind.PFC_WATCHDOG: "find out what pauses this queue; the watchdog only limits the damage",
    FindingKind.VICTIM: "remove the cause of the pauses; meanwhile put these flows into another priority, or let ECN mark "
    "before the queue pauses",
    FindingKind.JOB_INCAST: "no fault of the network: spread the job's senders in time, or let ECN mark before the queue pauses",
}
_SLOW_RECEIVER: Final = (
    "check the load of the host, its receive buffers and PCIe: it takes packets more slowly than they arrive"
)


def look(evidence: Evidence) -> Found:
    """Return the causes of pauses, and the flows that they hold up."""
    lanes = evidence.lanes
    if not any(np.isfinite(lanes.counter(name)).any() for name in ("pfc_rx", "pfc_tx", "queue_paused_ns")):
        return _join([no_evidence(kind, "pauses were not counted at the device") for kind in _KINDS])
    graph = pause_graph(evidence)
    hosts = _host_pauses(evidence)
    storms = {pause.lane: _storm(evidence, pause) for pause in hosts}
    sinks = [sink for sink in graph.sinks if sink.paused_ns >= _LEAST_SHARE * run_end_ns(evidence)]
    loaded = _loaded_ports(evidence)
    slow = slow_ports(evidence) if sinks or loaded else frozenset[int]()
    incasts = _incasts(evidence, sinks, loaded, slow | frozenset(lanes.port[list(storms)].tolist()))
    causes = {place.name for finding in (*incasts, *storms.values()) for place in finding.places}
    causes |= {evidence.ports.names[port] for port in slow}
    named = [sink for sink in sinks if evidence.ports.names[lanes.port[sink.lane]] in causes]
    results = (
        tuple(_deadlock(evidence, cycle) for cycle in graph.cycles),
        tuple(storms.values()),
        _watchdogs(evidence, graph),
        _victims(evidence, named),
        incasts,
    )
    return _join([report(kind, findings) for kind, findings in zip(_KINDS, results, strict=True)])


def _join(parts: list[Found]) -> Found:
    return Found(
        tuple(finding for part in parts for finding in part.findings),
        tuple(examination for part in parts for examination in part.examinations),
    )


def _queue(evidence: Evidence, lane: int) -> Place:
    ports, row = evidence.ports, int(evidence.lanes.port[lane])
    return Place(PlaceKind.QUEUE, ports.names[row], ports.peers[row], int(evidence.lanes.number[lane]))


# ---- deadlocks


def _cycle_names(evidence: Evidence, cycle: Cycle) -> str:
    lanes = (*cycle.lanes, cycle.lanes[0])
    return " > ".join(evidence.ports.names[evidence.lanes.port[lane]] for lane in lanes)


def _deadlock(evidence: Evidence, cycle: Cycle) -> Finding:
    places = tuple(_queue(evidence, lane) for lane in cycle.lanes)
    lasted_ns = cycle.end_ns - cycle.start_ns
    run_ns = max(run_end_ns(evidence), cycle.end_ns)
    ending = "and resolved" if cycle.is_resolved else "to the end of the run"
    sentence = (
        f"{_cycle_names(evidence, cycle)} wait for each other in priority {places[0].number}: a PFC deadlock of "
        f"{_time(lasted_ns)} ({_percent(lasted_ns / run_ns)} of the run), {ending}"
    )
    kind = FindingKind.PFC_DEADLOCK
    return Finding(
        kind,
        places,
        sentence,
        (Fact("deadlock_ns", float(lasted_ns), "ns"), Fact("cycle_queues", float(len(places)), "queues")),
        0.99 if cycle.is_resolved else 1.0,
        _REMEDIES[kind],
        share=lasted_ns / run_ns,
    )


# ---- hosts that pause


@dataclass(frozen=True, slots=True)
class _HostPause:
    """Pauses that a host sends to its port."""

    lane: int
    paused_ns: float
    span_ns: float
    """From the first to the last of them; 0: there are no readings over time."""
    frames: float
    run_ns: int

    @property
    def is_storm(self) -> bool:
        """Return whether it holds the queue almost without a break."""
        return self.paused_ns >= _STORM * (self.span_ns or self.run_ns)


def _host_pauses(evidence: Evidence) -> list[_HostPause]:
    lanes, samples = evidence.lanes, evidence.samples
    at_host = evidence.ports.host[lanes.port] >= 0 if len(lanes.port) else np.zeros(0, bool)
    paused = np.nan_to_num(lanes.counter("queue_paused_ns"))
    frames = np.nan_to_num(lanes.counter("pfc_rx"))
    run_ns = run_end_ns(evidence)
    pauses = []
    for lane in np.flatnonzero(at_host & (paused > 0)).tolist():
        rows = evidence.samples_of_lane(lane)
        times, values = samples.time_ns[rows], samples.value("paused_ns")[rows]
        grew = np.flatnonzero(np.diff(values) > 0)
        span_ns = float(times[grew[-1] + 1] - times[grew[0]]) if len(grew) >= 2 else 0.0
        paused_ns = float(values[grew[-1] + 1] - values[grew[0]]) if len(grew) >= 2 else float(paused[lane])
        if run_ns and paused_ns >= _LEAST_SHARE * run_ns:
            pauses.append(_HostPause(lane, paused_ns, span_ns, float(frames[lane]), run_ns))
    return sorted(pauses, key=lambda pause: -pause.paused_ns)


def _storm(evidence: Evidence, pause: _HostPause) -> Finding:
    queue = _queue(evidence, pause.lane)
    place = Place(PlaceKind.PORT, queue.name, queue.peer)
    share = min(1.0, pause.paused_ns / pause.run_ns)
    unbroken = ", without a break" if pause.is_storm and share < _STORM else ""
    held = f"is held by its host for {_percent(share)} of the run{unbroken}"
    if pause.is_storm:
        sentence = f"{place} {held}: a PFC storm of {queue.peer} in priority {queue.number}, {pause.frames:.0f} pauses"
    else:
        sentence = f"{place} {held}, with breaks: {queue.peer} is a slow receiver in priority {queue.number}"
    kind = FindingKind.PFC_STORM
    return Finding(
        kind,
        (place,),
        sentence,
        (Fact("queue_paused_ns", pause.paused_ns, "ns"), Fact("pfc_rx", pause.frames, "frames")),
        1.0 if pause.is_storm else 0.95,
        _REMEDIES[kind] if pause.is_storm else _SLOW_RECEIVER,
        share=share,
    )


# ---- watchdogs


def _watchdogs(evidence: Evidence, graph: PauseGraph) -> tuple[Finding, ...]:
    """Return a finding per cause of the pauses that made watchdogs drop."""
    lanes = evidence.lanes
    storms = np.nan_to_num(lanes.counter("queue_watchdog_storms"))
    dropped = np.nan_to_num(lanes.counter("queue_watchdog_dropped_packets"))
    by_cause: dict[str, list[int]] = {}
    for lane in sorted(
        np.flatnonzero((storms > 0) | (dropped > 0)).tolist(), key=lambda lane: -dropped[lane]
    ):
        by_cause.setdefault(_cause(evidence, graph, lane), []).append(lane)
    kind = FindingKind.PFC_WATCHDOG
    findings = []
    for cause, rows in by_cause.items():
        queues = tuple(_queue(evidence, lane) for lane in rows)
        total_storms, total_dropped = float(storms[rows].sum()), float(dropped[rows].sum())
        others = f" and {len(queues) - 1} others" if len(queues) > 1 else ""
        sentence = (
            f"the PFC watchdog of {queues[0]}{others} detected {total_storms:.0f} storms and dropped {total_dropped:.0f} "
            f"packets: {cause}"
        )
        facts = (
            Fact("queue_watchdog_storms", total_storms, "count"),
            Fact("queue_watchdog_dropped_packets", total_dropped, "packets"),
        )
        findings.append(Finding(kind, queues, sentence, facts, 1.0, _REMEDIES[kind]))
    return tuple(findings)


def _cause(evidence: Evidence, graph: PauseGraph, lane: int) -> str:
    """Return in words what pauses a queue."""
    ports, port = evidence.ports, int(evidence.lanes.port[lane])
    if ports.host[port] >= 0:
        return f"its host {ports.peers[port]} pauses it"
    for cycle in graph.cycles:
        if lane in cycle.lanes:
            return f"{_cycle_names(evidence, cycle)} wait for each other"
    for sink in graph.sinks:
        if lane in sink.queues:
            return f"its packets wait for {_queue(evidence, sink.lane)}"
    return f"{ports.peers[port] or 'the other end of its cable'} pauses it"


# ---- the job's own incast, and victims


def _loaded_ports(evidence: Evidence) -> list[int]:
    """Return the ports of hosts whose planned bytes explain the run, and are more than those of most hosts."""
    hosts, flows, run_ns = evidence.hosts, evidence.flows, evidence.duration_ns
    known = flows.dst_host >= 0
    if not run_ns or not known.any():
        return []
    planned_bits = np.bincount(flows.dst_host[known], flows.payload_bytes[known] * 8, len(hosts.names))
    planned_ns = planned_bits * 1e9 / np.where(hosts.link_bps > 0, hosts.link_bps, np.inf)
    loaded = (planned_ns >= _EXPLAINS * run_ns) & (planned_ns >= _CONCENTRATED * np.median(planned_ns))
    return [int(port) for port in hosts.port[loaded & (hosts.port >= 0)]]


def _incasts(
    evidence: Evidence, sinks: list[Sink], loaded: list[int], hindered: frozenset[int]
) -> tuple[Finding, ...]:
    """Return the ports that hold the job up because several hosts send to them; not those that are slow or paused."""
    run_ns = run_end_ns(evidence)
    pauses = {int(evidence.lanes.port[sink.lane]): sink.paused_ns for sink in sinks}
    candidates = dict.fromkeys([*pauses, *loaded])
    findings = [
        finding
        for port in candidates
        if port not in hindered
        for finding in _incast(evidence, port, pauses.get(port, 0.0), run_ns)
    ]
    return tuple(sorted(findings, key=lambda finding: -(finding.share or 0.0)))


def _incast(evidence: Evidence, port: int, paused_ns: float, run_ns: int) -> list[Finding]:
    ports, flows, hosts = evidence.ports, evidence.flows, evidence.hosts
    host = int(ports.host[port])
    through = (
        flows.of_dst_host.rows_of(np.array([host])) if host >= 0 else flows.of_port.rows_of(np.array([port]))
    )
    senders = len(distinct(flows.src_host[through]))
    if senders < 2:
        return []
    bps = float(hosts.link_bps[host] if host >= 0 else ports.described_bps[port])
    planned_ns = float(flows.payload_bytes[through].sum()) * 8e9 / bps
    if host < 0 and planned_ns < _EXPLAINS * run_ns:
        return []
    if not evidence.duration_ns:  # the run ended before its planned bytes
        planned_ns = np.nan
    share = min(1.0, np.nanmax([paused_ns, planned_ns]) / run_ns)
    place = Place(PlaceKind.PORT, ports.names[port], ports.peers[port])
    facts = [Fact("senders", float(senders), "hosts"), Fact("flows", float(len(through)), "flows")]
    words = f"{senders} hosts send through {place}, which drains at its full rate"
    if np.isfinite(planned_ns):
        words += f": their bytes alone take {_percent(planned_ns / run_ns)} of the run"
        facts.append(Fact("planned_ns", planned_ns, "ns"))
    if paused_ns:
        words += f", and pauses hold senders for {_percent(paused_ns / run_ns)} of it"
        facts.append(Fact("paused_ns", paused_ns, "ns"))
    kind = FindingKind.JOB_INCAST
    return [Finding(kind, (place,), words, tuple(facts), 0.99, _REMEDIES[kind], share=share)]


def _victims(evidence: Evidence, sinks: list[Sink]) -> tuple[Finding, ...]:
    """Return for each sink, whose cause is named, the flows that its pauses hold up although they go elsewhere."""
    ports, lanes, flows = evidence.ports, evidence.lanes, evidence.flows
    kind, run_ns = FindingKind.VICTIM, run_end_ns(evidence)
    sink_ports = lanes.port[[sink.lane for sink in sinks]]
    congested = ports.host[sink_ports]
    elsewhere = np.ones(len(flows.src_rank), bool)
    elsewhere[flows.of_dst_host.rows_of(congested[congested >= 0])] = False
    elsewhere[flows.of_port.rows_of(sink_ports)] = False
    findings = []
    for sink in sinks:
        waiting_ports = lanes.port[np.array(sorted(sink.queues), np.int64)]
        from_hosts = flows.of_src_host.rows_of(np.array(sorted(sink.hosts), np.int64))
        waiting = distinct(np.r_[from_hosts, flows.of_port.rows_of(waiting_ports)])
        rows = waiting[elsewhere[waiting]]
        if not flows.has_ways and ports.host[lanes.port[sink.lane]] < 0:
            rows = rows[_stay_at_switch(evidence)[rows]]
        if not len(rows):
            continue
        pairs = sorted(set(zip(flows.src_rank[rows].tolist(), flows.dst_rank[rows].tolist(), strict=True)))
        places = tuple(Place(PlaceKind.FLOW, str(src), str(dst)) for src, dst in pairs[:_MOST_FLOWS])
        share = min(1.0, sink.paused_ns / run_ns)
        count = f"{len(pairs)} flows such as {places[0]} wait" if len(pairs) > 1 else f"{places[0]} waits"
        sentence = (
            f"{count} behind pauses that {_queue(evidence, sink.lane)} causes, for up to {_percent(share)} of the run, "
            "on the way to another host"
        )
        facts = (Fact("victim_flows", float(len(pairs)), "flows"), Fact("paused_ns", sink.paused_ns, "ns"))
        findings.append(Finding(kind, places, sentence, facts, 0.99, _REMEDIES[kind], share=share))
    return tuple(findings)


def _stay_at_switch(evidence: Evidence) -> NDArray[np.bool_]:
    """Return which flows are between hosts of one switch, so that they cross no port between switches (bool per flow)."""
    ports, hosts, flows = evidence.ports, evidence.hosts, evidence.flows
    switch = np.array([ports.switch[port] if port >= 0 else "" for port in hosts.port.tolist()], object)
    return np.asarray(switch[flows.src_host] == switch[flows.dst_host], bool)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.2g} %"


def _time(time_ns: float) -> str:
    for unit, size in (("s", 1e9), ("ms", 1e6)):
        if time_ns >= size:
            return f"{time_ns / size:.4g} {unit}"
    return f"{time_ns / 1e3:.4g} us"
