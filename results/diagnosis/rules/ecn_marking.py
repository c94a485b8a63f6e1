"""Finds switches whose data queue marks nothing, too early or too late.

Decides the curve to compare with: what most equal switches have, else the one of the device's profile, else the default
of the switch presets, which grows with the rate of the ports. A switch is evaluated only where the load exercised it: where
its queue was long enough for 10 marks by that curve, or where it marked 10 packets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import approximate_bytes
from etloop.contract.model.switch_presets import marking
from etloop.contract.model.topology import SwitchPort
from etloop.results.diagnosis.marking import (
    PACKET_OVERHEAD_BYTES,
    EstimatedCurve,
    MarkedIntervals,
    MarkingCurve,
    estimate_curve,
    expected_marks,
    marked_intervals,
)
from etloop.results.diagnosis.rule import Found, no_evidence, not_exercised
from etloop.results.diagnosis.rules.traffic_class import misplaced_data
from etloop.results.schema.findings import (
    Examination,
    Examined,
    Fact,
    Finding,
    FindingKind,
    Place,
    PlaceKind,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.contract.model.topology import PortRules, SwitchSettings
    from etloop.results.diagnosis.evidence import Evidence

    Floats = NDArray[np.float64]
    Rows = NDArray[np.int64]

_KINDS: Final = (FindingKind.ECN_OFF, FindingKind.ECN_EARLY, FindingKind.ECN_LATE)
_LEAST_MARKS: Final = 10
"""Expected or counted, below which a switch is not evaluated."""
_OFF_SHARE: Final = 0.1
"""Share of the expected marks: fewer are too few whatever the error of the estimate."""
_LATE_SHARE_OF_PEERS: Final = 0.5
"""The same where the settings of the peers are known and differ by more than `_DIFFERENT`."""
_DIFFERENT: Final = 1.5
"""Factor between two thresholds from which on one of them is wrong."""
_BELOW_KMIN: Final = 0.8
"""Of Kmin: a queue shorter than this is surely below it."""
_LEAST_WINDOW_PACKETS: Final = 8
_ROUND_TRIP_FRAMES: Final = 4


@dataclass(frozen=True, slots=True)
class _Reference:
    """The curve that a switch should have."""

    curve: MarkingCurve
    source: str
    """Words for its origin."""
    is_default: bool
    """Neither peers nor a profile have it: only a gross difference counts."""


@dataclass(frozen=True, slots=True, eq=False)
class _DataQueue:
    """The data queue of a switch on all its ports."""

    switch: str
    number: int
    lanes: Rows
    packets: float
    marks: float
    watermark_bytes: Floats
    configured: MarkingCurve | None
    is_known: bool
    """Whether the configuration is known; if so, `configured` None means that ECN is off."""
    reference: _Reference
    window_packets: float
    """Packets in one bandwidth-delay product of its ports."""


@dataclass(frozen=True, slots=True, eq=False)
class _FaultyQueue:
    """A switch with a fault, and its counts."""

    queue: _DataQueue
    expected_marks: float
    early_marks: float


def look(evidence: Evidence) -> Found:
    """Return the switches that mark nothing, too early or too late."""
    needs = evidence.needs
    if not needs.reacts_to_marks:
        why = f"{needs.algorithm or 'no congestion control'} does not need marks"
        return _all_kinds(lambda kind: not_exercised(kind, why))
    if np.isnan(evidence.lanes.counter("queue_ecn_marked_packets")).all():
        return _all_kinds(lambda kind: no_evidence(kind, "marks are not counted"))
    frame_bytes = needs.path_mtu_bytes + PACKET_OVERHEAD_BYTES
    intervals = marked_intervals(evidence)
    queues, at_hosts = _data_queues(evidence, frame_bytes), _marked_at_hosts(evidence)
    faulty: dict[tuple[FindingKind, int, MarkingCurve | None, _Reference], list[_FaultyQueue]] = {}
    exercised = dict.fromkeys(_KINDS, False)
    for queue in queues:
        of_queue = intervals.of_lanes(queue.lanes)
        expected = _not_yet_marked(evidence, queue, _sum_expected(of_queue, queue, frame_bytes), at_hosts)
        early = _early_marks(evidence, queue, of_queue)
        exercised[FindingKind.ECN_OFF] |= expected >= _LEAST_MARKS
        exercised[FindingKind.ECN_LATE] |= expected >= _LEAST_MARKS
        exercised[FindingKind.ECN_EARLY] |= queue.marks >= _LEAST_MARKS
        kind = _judge(queue, expected, early)
        if kind is not None:
            alike = (kind, queue.number, queue.configured, queue.reference)
            faulty.setdefault(alike, []).append(_FaultyQueue(queue, expected, early[0]))
    findings = [
        _finding(evidence, kind, items, estimate_curve(_all_intervals(intervals, items), frame_bytes))
        for (kind, *_), items in faulty.items()
    ]
    findings.sort(key=lambda finding: -finding.evidence[0].count)
    return Found(tuple(findings), tuple(_examination(kind, findings, exercised[kind]) for kind in _KINDS))


def _all_kinds(outcome: object) -> Found:
    examinations = [outcome(kind).examinations for kind in _KINDS]  # type: ignore[operator]
    return Found((), tuple(examination for group in examinations for examination in group))


def _examination(kind: FindingKind, findings: list[Finding], exercised: bool) -> Examination:
    if any(finding.kind is kind for finding in findings):
        return Examination(kind, Examined.FOUND)
    if exercised:
        return Examination(kind, Examined.CLEAR)
    why = (
        "fewer than 10 packets were marked"
        if kind is FindingKind.ECN_EARLY
        else ("no queue was long enough for 10 marks")
    )
    return Examination(kind, Examined.NOT_EXERCISED, why)


# ---- the queues and their reference


def _data_queues(evidence: Evidence, frame_bytes: int) -> list[_DataQueue]:
    """Return the data queue of every switch that sent data by it, unless the data takes a wrong class there."""
    lanes, ports = evidence.lanes, evidence.ports
    packets, marks, sent = (
        np.nan_to_num(lanes.counter(f"queue_{name}")) for name in ("packets", "ecn_marked_packets", "bytes")
    )
    watermark = lanes.counter("queue_watermark_bytes")
    if np.isnan(watermark).any():
        watermark = np.fmax(watermark, _longest(evidence))
    misplaced, settings = misplaced_data(evidence), _settings(evidence)
    queues = []
    for name in dict.fromkeys(ports.switch):
        switch = settings.get(name)
        for rules, own_ports in _ports_by_rules(evidence, name, switch):
            of_switch = np.flatnonzero(np.isin(lanes.port, own_ports))
            number = _data_queue(evidence, switch, lanes.number[of_switch], sent[of_switch])
            rows = of_switch[lanes.number[of_switch] == number]
            rows = rows[packets[rows] > 0]
            if name in misplaced or not len(rows):
                continue
            rate_bps = _slowest_bps(evidence, own_ports)
            if not rate_bps:
                continue
            queues.append(
                _DataQueue(
                    switch=name,
                    number=number,
                    lanes=rows,
                    packets=float(packets[rows].sum()),
                    marks=float(marks[rows].sum()),
                    watermark_bytes=watermark[rows],
                    configured=None if rules is None else _curve_of(rules, number),
                    is_known=switch is not None,
                    reference=_reference(switch, number, settings, rate_bps),
                    window_packets=_window_packets(evidence, rate_bps, frame_bytes),
                )
            )
    return queues


def _ports_by_rules(
    evidence: Evidence, name: str, switch: SwitchSettings | None
) -> Iterator[tuple[PortRules | None, list[int]]]:
    """Yield the rules of a switch's ports (None: not known) with the rows of the ports that have them."""
    rows = [row for row, of_port in enumerate(evidence.ports.switch) if of_port == name]
    if switch is None:
        yield None, rows
        return
    rules = {row: switch.rules_of(evidence.ports.names[row].rpartition("/")[2]) for row in rows}
    for distinct in dict.fromkeys(rules.values()):
        yield distinct, [row for row in rows if rules[row] == distinct]


def _longest(evidence: Evidence) -> Floats:
    """Return the longest queue that any sample of each lane shows (float64), 0 without samples."""
    longest = np.zeros(len(evidence.lanes.port))
    np.fmax.at(longest, evidence.samples.lane, np.nan_to_num(evidence.samples.value("queued_bytes")))
    return longest


def _settings(evidence: Evidence) -> dict[str, SwitchSettings]:
    topology = evidence.topology
    return {} if topology is None else {switch.name: switch for switch in topology.switches}


def _data_queue(evidence: Evidence, switch: SwitchSettings | None, numbers: Rows, sent: Floats) -> int:
    """Return the queue of the data by the maps of the switch, or the one that sent most bytes."""
    if switch is not None and evidence.needs.data_dscp >= 0:
        return switch.class_to_queue[switch.dscp_to_class[evidence.needs.data_dscp]]
    return int(np.bincount(numbers, sent).argmax()) if len(numbers) else -1


def _slowest_bps(evidence: Evidence, rows: list[int]) -> int:
    """Return the rate of the slowest of some ports; 0 if no rate is known."""
    ports = evidence.ports
    rates = ports.described_bps[rows]
    hosts = ports.host[rows]
    stated = (
        np.where(hosts >= 0, evidence.hosts.link_bps[np.maximum(hosts, 0)], np.nan)
        if len(evidence.hosts.names)
        else np.full(len(rows), np.nan)
    )
    known = np.where(np.isnan(rates), stated, rates)
    return 0 if np.isnan(known).all() else int(np.nanmin(known))


def _curve_of(switch: SwitchSettings | PortRules, queue: int) -> MarkingCurve | None:
    settings = switch.queues[queue].marking
    return None if settings is None else MarkingCurve.of(settings)


def _reference(
    switch: SwitchSettings | None, queue: int, settings: dict[str, SwitchSettings], rate_bps: int
) -> _Reference:
    """Return the curve of the switch's profile, else of most equal switches if this one differs, else the default for the
    rate."""
    default = MarkingCurve.of(marking((SwitchPort("", rate_bps, 0),)))
    if switch is None:
        return _Reference(default, "the default for its rate", True)
    own, origin = _curve_of(switch, queue), switch.origin
    if own is not None and origin is not None and not any("ecn" in key for key in origin.overridden):
        return _Reference(own, f"the profile {origin.profile}", False)
    slowest_bps = min(port.rate_bps for port in switch.ports)
    equals = [
        _curve_of(peer, queue)
        for peer in settings.values()
        if min(port.rate_bps for port in peer.ports) == slowest_bps
    ]
    usual, count = Counter(equals).most_common(1)[0]
    if usual is not None and usual != own and len(equals) >= 3 and 2 * count > len(equals):
        return _Reference(usual, "its peers", False)
    return _Reference(default, "the default for its rate", True)


def _window_packets(evidence: Evidence, rate_bps: int, frame_bytes: int) -> float:
    """Return the packets of one bandwidth-delay product of an empty network, at least a small window."""
    delay_ns, hops = 0, 1
    if evidence.topology is not None:
        topology = evidence.topology
        delay_ns = max(port.delay_ns for switch in topology.switches for port in switch.ports)
        delay_ns += max(switch.latency_ns for switch in topology.switches)
        hops = 3 if topology.links else 1
    packets = 2 * (hops + 1) * delay_ns * rate_bps / (8e9 * frame_bytes) + _ROUND_TRIP_FRAMES
    return max(packets, _LEAST_WINDOW_PACKETS)


# ---- the counts


def _sum_expected(intervals: MarkedIntervals, queue: _DataQueue, frame_bytes: int) -> Floats:
    return expected_marks(intervals, queue.lanes, queue.watermark_bytes, queue.reference.curve, frame_bytes)


def _all_intervals(intervals: MarkedIntervals, items: list[_FaultyQueue]) -> MarkedIntervals:
    return intervals.of_lanes(np.concatenate([item.queue.lanes for item in items]))


def _not_yet_marked(evidence: Evidence, queue: _DataQueue, expected: Floats, at_hosts: Floats) -> float:
    """Return the expected marks of a switch, less those on packets that arrived marked: these are not counted again.

    `at_hosts`: marked packets that arrived at each host, NaN where not counted. At a host's port that count is exact.
    Elsewhere the marks of the neighbours bound them; a factor of 2 allows for bursts in which more packets than the
    average arrive marked.
    """
    lanes, ports = evidence.lanes, evidence.ports
    marks = np.nan_to_num(lanes.counter("queue_ecn_marked_packets"))
    packets = np.nan_to_num(lanes.counter("queue_packets"))
    peers = ports.peer_row[lanes.port]
    row_of_switch = np.array([name == queue.switch for name in ports.switch], bool)
    arriving = (lanes.number == queue.number) & (peers >= 0) & row_of_switch[np.maximum(peers, 0)]
    hosts = ports.host[lanes.port[queue.lanes]]
    marked_share = marks[arriving].sum() / max(packets[arriving].sum(), 1.0)
    left = expected * max(0.0, 1.0 - 2.0 * marked_share)
    if len(evidence.hosts.names):
        counted = at_hosts[np.maximum(hosts, 0)]
        is_counted = (hosts >= 0) & ~np.isnan(counted)
        exact = np.maximum(expected - np.maximum(counted - marks[queue.lanes], 0.0), 0.0)
        left = np.where(is_counted, exact, left)
    return float(left.sum())


def _marked_at_hosts(evidence: Evidence) -> Floats:
    """Return the marked packets that arrived at each host (float64), NaN where they were not counted."""
    flows = evidence.flows
    arrived = flows.received.get("np_ecn_marked_roce_packets")
    hosts = len(evidence.hosts.names)
    if arrived is None:
        return np.full(hosts, np.nan)
    known = (flows.dst_host >= 0) & ~np.isnan(arrived)
    sums = np.bincount(flows.dst_host[known], arrived[known], hosts)
    return np.where(np.bincount(flows.dst_host[known], minlength=hosts) > 0, sums, np.nan)


def _early_marks(evidence: Evidence, queue: _DataQueue, intervals: MarkedIntervals) -> tuple[float, float]:
    """Return the marks that were made while the queue was surely shorter than the Kmin to compare with, and the packets
    that left meanwhile."""
    limit = _BELOW_KMIN * queue.reference.curve.kmin_bytes
    marks, packets = (
        np.nan_to_num(evidence.lanes.counter(f"queue_{name}")[queue.lanes])
        for name in ("ecn_marked_packets", "packets")
    )
    short = queue.watermark_bytes < limit
    rest = intervals.of_lanes(queue.lanes[~short])
    inside = (rest.most_bytes < limit) & (np.maximum(rest.begin_bytes, rest.end_bytes) > 0)
    return (
        float(marks[short].sum() + rest.marks[inside].sum()),
        float(packets[short & (marks > 0)].sum() + rest.packets[inside].sum()),
    )


def _judge(queue: _DataQueue, expected: float, early: tuple[float, float]) -> FindingKind | None:
    """Return the fault of a switch's marking, None if it has none."""
    reference, own, marks = queue.reference, queue.configured, queue.marks
    early_marks, early_packets = early
    if own is None:
        # By the default alone, only what cuts a flow that fills the path: a mark in each window of an almost empty queue.
        is_early = early_marks >= max(_LEAST_MARKS, early_packets / queue.window_packets)
    else:
        share = float(own.share(np.array(_BELOW_KMIN * reference.curve.kmin_bytes)))
        is_early = own.kmin_bytes * _DIFFERENT < reference.curve.kmin_bytes and marks >= _LEAST_MARKS
        is_early &= not reference.is_default or share * queue.window_packets >= 1
    if is_early:
        return FindingKind.ECN_EARLY
    if expected < _LEAST_MARKS:
        return None
    is_off = queue.is_known and own is None
    if is_off and marks == 0:
        return FindingKind.ECN_OFF
    differs = own is not None and own != reference.curve
    # By the default alone, only a Kmin at which the reference marks every packet.
    latest_kmin = (
        reference.curve.kmax_bytes if reference.is_default else reference.curve.kmin_bytes * _DIFFERENT
    )
    if own is not None and own.kmin_bytes >= latest_kmin:
        return FindingKind.ECN_LATE
    most = _LATE_SHARE_OF_PEERS if differs and not reference.is_default else _OFF_SHARE
    if marks > most * expected:
        return None
    return FindingKind.ECN_LATE if differs or marks > 0 else FindingKind.ECN_OFF


# ---- findings


def _finding(
    evidence: Evidence, kind: FindingKind, items: list[_FaultyQueue], estimate: EstimatedCurve | None
) -> Finding:
    """Return one finding for switches with the same settings and the same fault."""
    queue = items[0].queue
    names = [item.queue.switch for item in items]
    place_text = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
    where = f"queue {queue.number} of {place_text}"
    lanes = np.concatenate([item.queue.lanes for item in items])
    watermarks = np.nan_to_num(np.concatenate([item.queue.watermark_bytes for item in items]))
    longest = int(watermarks.argmax())
    port = evidence.ports.names[int(evidence.lanes.port[lanes[longest]])]
    most_bytes = float(watermarks[longest])
    expected, early, marks = (
        sum(values)
        for values in zip(
            *((item.expected_marks, item.early_marks, item.queue.marks) for item in items), strict=True
        )
    )
    curve, source = queue.reference.curve, queue.reference.source
    facts = [
        Fact(
            "queue_ecn_marked_packets",
            marks,
            "packets",
            None if kind is FindingKind.ECN_EARLY else expected,
            int(sum(item.queue.packets for item in items)),
        ),
        Fact("queue_watermark_bytes", most_bytes, "bytes"),
        *_curve_facts(queue.configured, "configured", curve),
    ]
    if estimate is not None:
        facts += _curve_facts(estimate.curve, "estimated", curve, estimate.marks)
        facts.append(Fact("estimated_kmin_least_bytes", estimate.least_kmin_bytes, "bytes"))
        facts.append(Fact("estimated_kmin_most_bytes", estimate.most_kmin_bytes, "bytes"))
    wanted = f"Kmin {_size(curve.kmin_bytes)}, Kmax {_size(curve.kmax_bytes)}"
    reach = f"up to {_size(most_bytes)} at {port}, where {source} ({wanted}) would give about {expected:.0f}"
    is_off = queue.is_known and queue.configured is None
    match kind:
        case FindingKind.ECN_OFF if is_off:
            sentence = f"{where} has ECN off: 0 marks with {reach}"
            remedy = f"enable ECN on {where}: {wanted}"
        case FindingKind.ECN_OFF:
            sentence = f"{where} marks too little: {marks:.0f} marks with {reach}"
            remedy = f"check that ECN is on at {where} ({wanted}), and that the packets are ECN-capable"
        case FindingKind.ECN_EARLY:
            facts.append(Fact("marks_below_kmin", early, "packets", 0.0))
            below = (
                f", {early:.0f} with less than {_size(_BELOW_KMIN * curve.kmin_bytes)} in the queue"
                if early
                else ""
            )
            sentence = (
                f"{where} marks too early{_thresholds(queue.configured, estimate)}: {marks:.0f} packets were marked"
                f"{below}; {source}: {wanted}"
            )
            remedy = f"raise the thresholds of {where} to {wanted}"
        case _:
            sentence = f"{where} marks too late{_thresholds(queue.configured, estimate)}: {marks:.0f} marks with {reach}"
            remedy = f"lower the thresholds of {where} to {wanted}"
            if queue.configured is not None and queue.configured.kmin_bytes <= curve.kmin_bytes:
                remedy = f"set {wanted}, Pmax {curve.pmax:.0%} at {where}"
    places = tuple(Place(PlaceKind.SWITCH, name) for name in names)
    return Finding(kind, places, sentence, tuple(facts), 0.9999, remedy)


def _curve_facts(
    curve: MarkingCurve | None, prefix: str, reference: MarkingCurve, count: int = 0
) -> list[Fact]:
    if curve is None:
        return []
    return [
        Fact(f"{prefix}_kmin_bytes", curve.kmin_bytes, "bytes", reference.kmin_bytes, count),
        Fact(f"{prefix}_kmax_bytes", curve.kmax_bytes, "bytes", reference.kmax_bytes, count),
        Fact(f"{prefix}_pmax", curve.pmax, "ratio", reference.pmax, count),
    ]


def _thresholds(configured: MarkingCurve | None, estimate: EstimatedCurve | None) -> str:
    """Return the thresholds of a queue in parentheses; the configured ones if they are known, else the estimated."""
    curve = configured if configured is not None else estimate.curve if estimate is not None else None
    if curve is None:
        return ""
    words = "Kmin" if configured is not None else "estimated Kmin"
    return f" ({words} {_size(curve.kmin_bytes)}, Kmax {_size(curve.kmax_bytes)}, Pmax {curve.pmax:.0%})"


def _size(count_bytes: float) -> str:
    return approximate_bytes(int(count_bytes))
