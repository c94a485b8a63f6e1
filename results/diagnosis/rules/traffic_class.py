"""Finds switches at which data or congestion notifications take another class than the job needs or the peers have.

Decides by maps where a topology states them, and by counted packets (`classes` of the run) where only a profile does. A
class is a fact: one packet in the wrong queue is sufficient, so no probability is computed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.base.late_dataclass import dataclass
from etloop.results.diagnosis.rule import Found, no_evidence, not_exercised, report
from etloop.results.schema.findings import Fact, Finding, FindingKind, Place, PlaceKind

if TYPE_CHECKING:
    from etloop.contract.model.topology import SwitchSettings
    from etloop.results.diagnosis.evidence import Evidence

_LEAST_MISSING_SHARE: Final = 0.01
"""Share of a class's packets: counters of two devices are not read at the same time."""
_DATA: Final = "data"
_NOTIFICATIONS: Final = "notifications"


@dataclass(frozen=True, slots=True)
class ClassWay:
    """Treatment of the packets of one DSCP by a switch."""

    traffic_class: int
    queue: int
    group: int
    priority: int
    """PFC priority that pauses the senders to the group."""
    paused_queue: int
    """Queue that a received pause of that priority stops."""
    is_lossless: bool
    is_marked: bool

    @classmethod
    def of(cls, switch: SwitchSettings, dscp: int) -> ClassWay:
        """Return the way of the packets of a DSCP."""
        traffic_class = switch.dscp_to_class[dscp]
        queue, group = switch.class_to_queue[traffic_class], switch.class_to_group[traffic_class]
        priority = switch.group_to_priority[group]
        return cls(
            traffic_class,
            queue,
            group,
            priority,
            switch.priority_to_queue[priority],
            switch.pfc and switch.groups[group].lossless,
            switch.queues[queue].marking is not None,
        )


@dataclass(frozen=True, slots=True)
class _Wrong:
    """A switch at which a class is wrong."""

    switch: str
    dscp: int
    way: ClassWay
    why: str
    expected_queue: int | None
    """Queue of the peers, or one that has what the job needs; None: unknown."""
    key: str
    """Setting to look at."""


def misplaced_data(evidence: Evidence) -> frozenset[str]:
    """Return the names of the switches at which the data takes a wrong class."""
    return frozenset(wrong.switch for wrong in _wrong_data(evidence))


def look(evidence: Evidence) -> Found:
    """Return the switches at which data or notifications take a wrong class."""
    data, notifications = _look_at_data(evidence), _look_at_notifications(evidence)
    return Found(data.findings + notifications.findings, data.examinations + notifications.examinations)


def _look_at_data(evidence: Evidence) -> Found:
    kind = FindingKind.DATA_CLASS
    if evidence.needs.data_dscp < 0:
        return no_evidence(kind, "the DSCP of the job is not known")
    if evidence.topology is None:
        return _look_at_counters(evidence, kind, _DATA)
    return report(kind, tuple(_findings(evidence, kind, "data", _wrong_data(evidence))))


def _look_at_notifications(evidence: Evidence) -> Found:
    kind = FindingKind.CNP_CLASS
    if evidence.needs.cnp_dscp < 0:
        return not_exercised(kind, "the transport sends no congestion notifications")
    if not _sum(evidence.flows.received.get("np_cnp_sent")) + _sum(evidence.flows.sent.get("np_cnp_sent")):
        return not_exercised(kind, "no congestion notification was sent")
    if evidence.topology is None:
        return _look_at_counters(evidence, kind, _NOTIFICATIONS)
    return report(
        kind, tuple(_findings(evidence, kind, "congestion notifications", _wrong_notifications(evidence)))
    )


def _sum(column: np.ndarray[tuple[int, ...], np.dtype[np.float64]] | None) -> float:
    return 0.0 if column is None else float(np.nansum(column))


def _used_switches(evidence: Evidence) -> list[SwitchSettings]:
    """Return the switches of the topology that packets left."""
    lanes, ports = evidence.lanes, evidence.ports
    sent = np.nan_to_num(lanes.counter("queue_packets"))
    used = {ports.switch[port] for port in lanes.port[sent > 0].tolist()}
    assert evidence.topology is not None
    return [switch for switch in evidence.topology.switches if switch.name in used]


def _wrong_data(evidence: Evidence) -> list[_Wrong]:
    needs, dscp = evidence.needs, evidence.needs.data_dscp
    if evidence.topology is None or dscp < 0:
        return []
    switches = _used_switches(evidence)
    ways = {switch.name: ClassWay.of(switch, dscp) for switch in switches}
    usual = _usual(ways.values(), lambda way: (way.queue, way.priority, way.is_lossless, way.paused_queue))
    wrong = []
    for switch in switches:
        way = ways[switch.name]
        reason = _lacking(switch, way, needs_lossless=needs.needs_lossless, needs_marks=needs.reacts_to_marks)
        if reason is None and usual is not None:
            reason = _deviation(way, usual, has_pfc=switch.pfc)
        if reason is not None:
            why, key, queue = reason
            expected = usual.queue if usual is not None and usual.queue != way.queue else queue
            wrong.append(_Wrong(switch.name, dscp, way, why, expected, key))
    return wrong


def _usual(ways: Iterable[ClassWay], key: Callable[[ClassWay], object]) -> ClassWay | None:
    """Return the way of more than half of at least three switches, by `key`; None if there is none."""
    values = list(ways)
    counts = Counter(key(way) for way in values)
    if len(values) < 3:
        return None
    value, count = counts.most_common(1)[0]
    return next(way for way in values if key(way) == value) if 2 * count > len(values) else None


def _lacking(
    switch: SwitchSettings, way: ClassWay, *, needs_lossless: bool, needs_marks: bool
) -> tuple[str, str, int | None] | None:
    """Return what the class of the data lacks although another class of the switch has it, with the key and the other
    queue; None if it lacks nothing."""
    if needs_lossless and switch.pfc:
        lossless = tuple(number for number, group in enumerate(switch.groups) if group.lossless)
        if not way.is_lossless and lossless:
            why = f"priority group {way.group} is lossy, lossless is group {', '.join(map(str, lossless))}"
            if lossless[0] not in switch.class_to_group:
                return why, f"maps.class_to_group.{way.traffic_class}", None
            queue = switch.class_to_queue[switch.class_to_group.index(lossless[0])]
            return why, f"maps.dscp_to_class, or groups.{way.group}.lossless,", queue
        if way.is_lossless and way.paused_queue != way.queue:
            why = f"a received pause of its priority {way.priority} stops queue {way.paused_queue}"
            return why, _key_of_pause(way), way.paused_queue
    marked = [number for number, queue in enumerate(switch.queues) if queue.marking is not None]
    if needs_marks and not way.is_marked and marked:
        return f"queue {marked[0]} marks, and this one does not", "maps.dscp_to_class", marked[0]
    return None


def _key_of_pause(way: ClassWay) -> str:
    """Return the map that separates a queue from its pauses: the first that is not the identity."""
    if way.queue != way.traffic_class:
        return f"maps.class_to_queue.{way.traffic_class}"
    if way.priority != way.group:
        return f"maps.group_to_priority.{way.group}"
    return f"maps.priority_to_queue.{way.priority}"


def _deviation(way: ClassWay, usual: ClassWay, *, has_pfc: bool) -> tuple[str, str, int | None] | None:
    """Return how the data's class differs from the one of the peers; None if it does not."""
    if way.queue != usual.queue:
        is_class = way.traffic_class != usual.traffic_class
        key = "maps.dscp_to_class" if is_class else f"maps.class_to_queue.{way.traffic_class}"
        return f"its peers use queue {usual.queue}", key, usual.queue
    if not has_pfc or not usual.is_lossless:
        return None
    if way.priority != usual.priority:
        why = f"it pauses priority {way.priority}, its peers priority {usual.priority}"
        return why, f"maps.group_to_priority.{way.group}", usual.queue
    if not way.is_lossless:
        why = f"priority group {way.group} is lossy here, lossless at its peers"
        return why, f"groups.{way.group}.lossless", usual.queue
    return None


def _wrong_notifications(evidence: Evidence) -> list[_Wrong]:
    dscp, data_dscp = evidence.needs.cnp_dscp, evidence.needs.data_dscp
    switches = _used_switches(evidence)
    ways = {switch.name: ClassWay.of(switch, dscp) for switch in switches}
    usual = _usual(ways.values(), lambda way: way.queue)
    wrong = []
    for switch in switches:
        way = ways[switch.name]
        data = ClassWay.of(switch, data_dscp) if data_dscp >= 0 else None
        expected = usual.queue if usual is not None and usual.queue != way.queue else None
        if data is not None and way.queue == data.queue and dscp != data_dscp:
            why, key = "which is the queue of the data", f"maps.dscp_to_class.{dscp}"
        elif data is not None and way.queue == data.queue:
            why, key = "which is the queue of the data: both have the same DSCP", "cnp.dscp"
        elif way.is_lossless:
            why = f"whose priority {way.priority} is paused like the data"
            key = f"maps.dscp_to_class.{dscp}"
        elif expected is not None:
            why, key = f"its peers use queue {expected}", f"maps.dscp_to_class.{dscp}"
        else:
            continue
        wrong.append(_Wrong(switch.name, dscp, way, why, expected, key))
    # Where a switch sends data into the queue of the notifications, the data are wrong.
    misplaced = misplaced_data(evidence)
    return [item for item in wrong if item.switch not in misplaced or item.expected_queue is not None]


def _findings(evidence: Evidence, kind: FindingKind, packets: str, wrong: list[_Wrong]) -> Iterable[Finding]:
    """Yield one finding for all switches that have the same fault."""
    alike: dict[tuple[int, str, str], list[_Wrong]] = {}
    for item in wrong:
        alike.setdefault((item.way.queue, item.why, item.key), []).append(item)
    for (queue, why, key), items in alike.items():
        names = [item.switch for item in items]
        first = items[0]
        sent = sum(_packets_of_queue(evidence, name, queue) for name in names)
        text = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
        verb = "send" if len(names) > 1 else "sends"
        sentence = f"{text} {verb} {packets} (DSCP {first.dscp}) by queue {queue}: {why}"
        facts = [Fact("queue_packets", sent, "packets")]
        expected = None if first.expected_queue is None else float(first.expected_queue)
        facts.append(Fact("queue", float(queue), "id", expected))
        facts.append(Fact("pfc_priority", float(first.way.priority), "id"))
        setting = key if key == "cnp.dscp" else f"{key} of {text}"
        remedy = f"correct {setting}"
        if first.expected_queue is not None:
            remedy += f": {packets} belong in queue {first.expected_queue}"
        places = tuple(Place(PlaceKind.SWITCH, name) for name in names)
        yield Finding(kind, places, sentence, tuple(facts), 1.0, remedy)


def _packets_of_queue(evidence: Evidence, switch: str, queue: int) -> float:
    lanes, ports = evidence.lanes, evidence.ports
    rows = [
        lane
        for lane in np.flatnonzero(lanes.number == queue).tolist()
        if ports.switch[int(lanes.port[lane])] == switch
    ]
    return float(np.nansum(lanes.counter("queue_packets")[rows]))


def _look_at_counters(evidence: Evidence, kind: FindingKind, carries: str) -> Found:
    """Return the ports whose counted packets of a class left by another queue than the profile's maps state."""
    frame = evidence.run.frames.get("classes")
    if frame is None:
        return no_evidence(kind, "no counters of queues, or no maps of the device")
    columns = {
        name: frame.columns[name].tolist() for name in ("port", "device_port", "source", "carries", "dscp")
    }
    columns |= {
        name: frame.columns[name].tolist() for name in ("expected_queue", "found_queue", "missing_share")
    }
    findings = []
    for row in range(frame.rows):
        share, queue = _number(columns["missing_share"][row]), _number(columns["found_queue"][row])
        if carries not in columns["carries"][row].split(", ") or not share > _LEAST_MISSING_SHARE:
            continue
        name = f"{columns['source'][row]}/{columns['device_port'][row]}"
        place = Place(PlaceKind.PORT, name, columns["port"][row])
        expected, dscp = int(columns["expected_queue"][row]), int(columns["dscp"][row])
        where = f"leave by queue {queue:.0f}" if not np.isnan(queue) else "are missing"
        sentence = (
            f"{share:.0%} of the {carries} (DSCP {dscp}) to {place.peer} {where} at {name}; "
            f"the profile states queue {expected}"
        )
        facts = (
            Fact("missing_share", share, "ratio", 0.0),
            Fact("found_queue", queue, "id", float(expected)),
        )
        remedy = f"correct the map of DSCP {dscp} at {name}"
        findings.append(Finding(kind, (place,), sentence, facts, 1.0, remedy))
    return report(kind, tuple(findings))


def _number(value: object) -> float:
    return float("nan") if value is None else float(value)  # type: ignore[arg-type]
