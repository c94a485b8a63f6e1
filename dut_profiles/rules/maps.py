"""Rules for the way of packets through a device: DSCP to class, class to queue and group, group to priority, and back.

Decides what in the maps cannot work together. What a job sends on is examined by `job_contradictions`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from etloop.contract.base.errors import Problem, Severity
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import number_spans
from etloop.contract.model.topology import HashField
from etloop.dut_profiles.model.findings import NotStated, Rule, absent, where
from etloop.dut_profiles.model.profile import DutKind, DutProfile, Scheduler, Trust

_TELL_QUEUE_PAIRS_APART: Final = {
    HashField.SRC_PORT,
    HashField.DEST_QP,
    HashField.FLOW_LABEL,
    HashField.INNER_SRC_PORT,
}


@dataclass(frozen=True, slots=True)
class Way:
    """Where packets of one class go; None where a map does not say."""

    traffic_class: int
    queue: int | None
    group: int | None
    priority: int | None
    """PFC priority that its group pauses."""


def way_of_class(profile: DutProfile, traffic_class: int) -> Way:
    """The way of a traffic class."""
    maps = profile.maps
    group = _at(maps.class_to_group.value, traffic_class)
    priority = _at(maps.group_to_priority.value, group)
    return Way(traffic_class, _at(maps.class_to_queue.value, traffic_class), group, priority)


def way_of_packet(profile: DutProfile, dscp: int, pcp: int | None) -> Way | None:
    """The way of packets with these marks (`pcp` None: untagged); None where no map says. Untagged counts as PCP 0."""
    maps = profile.maps
    if maps.trust.value is Trust.PCP:
        traffic_class = _at(maps.pcp_to_class.value, pcp or 0)
    else:
        traffic_class = _at(maps.dscp_to_class.value, dscp)
    return None if traffic_class is None else way_of_class(profile, traffic_class)


def _at(mapped: tuple[int, ...] | None, key: int | None) -> int | None:
    return mapped[key] if mapped is not None and key is not None and key < len(mapped) else None


def classes_in_use(profile: DutProfile) -> tuple[int, ...]:
    """The traffic classes that some DSCP or PCP leads to, by the field that is trusted."""
    maps = profile.maps
    mapped = maps.pcp_to_class if maps.trust.value is Trust.PCP else maps.dscp_to_class
    return tuple(sorted(set(mapped.value or ())))


def dscps_of(profile: DutProfile, traffic_class: int) -> str:
    """The DSCPs of a class for a message: "DSCP 3", "DSCP 0-7, 9" or the class alone."""
    if profile.maps.trust.value is Trust.PCP:
        return f"class {traffic_class}"
    found = [dscp for dscp, to in enumerate(profile.maps.dscp_to_class.value or ()) if to == traffic_class]
    return f"class {traffic_class} (DSCP {', '.join(number_spans(found))})"


def _unmapped_class(profile: DutProfile) -> Iterator[Problem | NotStated]:
    maps = profile.maps
    for traffic_class in classes_in_use(profile):
        for name, stated in (("queue", maps.class_to_queue), ("group", maps.class_to_group)):
            if stated.value is not None and traffic_class >= len(stated.value):
                what = f"{dscps_of(profile, traffic_class)} has no {name}"
                yield Problem(where(stated, f"maps.class_to_{name}"), what, f"map class {traffic_class}")


def _lossless_without_pfc(profile: DutProfile) -> Iterator[Problem | NotStated]:
    priorities, to_priority = profile.pfc.priorities, profile.maps.group_to_priority
    if not profile.lossless_groups:
        return
    if priorities.value is None or to_priority.value is None:
        yield from absent(pfc__priorities=priorities, maps__group_to_priority=to_priority)
        return
    for group in profile.lossless_groups:
        priority = to_priority.value[group.group]
        if priority not in priorities.value:
            what = f"group {group.group} is lossless, but PFC is off for its priority {priority}"
            remedy = (
                f"add {priority} to pfc.priorities, or say lossless: false: it drops when its buffer is full"
            )
            yield Problem(where(group.lossless, f"groups[{group.group}]"), what, remedy)


def _pfc_without_headroom(profile: DutProfile) -> Iterator[Problem | NotStated]:
    priorities, to_priority = profile.pfc.priorities, profile.maps.group_to_priority
    if profile.kind is DutKind.NIC or not priorities.value:
        return
    if to_priority.value is None:
        yield from absent(maps__group_to_priority=to_priority)
        return
    for priority in priorities.value:
        groups = [profile.group(group) for group, to in enumerate(to_priority.value) if to == priority]
        if not groups:
            what = f"PFC is on for priority {priority}, to which no priority group leads"
            yield Problem(
                where(priorities, "pfc.priorities"), what, "turn it off, or map a lossless group to it"
            )
        for group in groups:
            if group.lossless.best is None:
                yield NotStated(f"groups[{group.group}].lossless")
        if groups and all(group.lossless.value is False for group in groups):
            names = ", ".join(str(group.group) for group in groups)
            what = f"PFC is on for priority {priority}, but its group {names} is not lossless"
            yield Problem(
                where(priorities, "pfc.priorities"), what, "turn it off, or give the group headroom"
            )
        for group in groups:
            if group.lossless.value and group.headroom_bytes.value == 0:
                what = f"group {group.group} of PFC priority {priority} has no headroom"
                remedy = "what is under way when xoff is sent is dropped: give it headroom"
                yield Problem(where(group.headroom_bytes, f"groups[{group.group}]"), what, remedy)


def _pause_stops_another(profile: DutProfile) -> Iterator[Problem | NotStated]:
    maps, priorities = profile.maps, profile.pfc.priorities.value
    if profile.kind is DutKind.NIC or not priorities:
        return
    if maps.priority_to_queue.value is None:
        yield NotStated("maps.priority_to_queue")
        return
    for traffic_class in classes_in_use(profile):
        way = way_of_class(profile, traffic_class)
        if way.queue is None or way.priority is None or way.priority not in priorities:
            continue
        if way.group is None or not profile.group(way.group).lossless.value:
            continue
        stopped = maps.priority_to_queue.value[way.priority]
        if stopped != way.queue:
            what = (
                f"{dscps_of(profile, traffic_class)} leaves by queue {way.queue} with PFC priority {way.priority}, "
                f"but a received pause of priority {way.priority} stops queue {stopped}"
            )
            remedy = f"map priority {way.priority} to queue {way.queue}, or the class to queue {stopped}"
            yield Problem(where(maps.priority_to_queue, "maps.priority_to_queue"), what, remedy)


def _lossless_shares(profile: DutProfile) -> Iterator[Problem | NotStated]:
    by_queue: dict[int, dict[bool, list[int]]] = {}
    for traffic_class in classes_in_use(profile):
        way = way_of_class(profile, traffic_class)
        if way.queue is None or way.group is None:
            continue
        lossless = profile.group(way.group).lossless.value
        if lossless is None:
            yield NotStated(f"groups[{way.group}].lossless")
            continue
        by_queue.setdefault(way.queue, {}).setdefault(lossless, []).append(traffic_class)
    for queue, classes in sorted(by_queue.items()):
        if len(classes) == 1:
            continue
        lossy = ", ".join(dscps_of(profile, traffic_class) for traffic_class in classes[False])
        what = f"queue {queue} carries lossless class {classes[True][0]} and lossy {lossy}"
        remedy = (
            "the lossy packets are paused with the others, and fill the queue: give them one of their own"
        )
        yield Problem(where(profile.maps.class_to_queue, "maps.class_to_queue"), what, remedy)


def _blind_hash(profile: DutProfile) -> Iterator[Problem | NotStated]:
    fields = profile.balancing.hash_fields
    if fields.value is not None and not _TELL_QUEUE_PAIRS_APART & set(fields.value):
        what = f"ECMP hashes {', '.join(fields.value) or 'nothing'}"
        remedy = (
            "all queue pairs of two addresses take one path: hash the UDP source port or the destination QP"
        )
        yield Problem(where(fields, "balancing.hash_fields"), what, remedy)


def _trimmed_waits(profile: DutProfile) -> Iterator[Problem | NotStated]:
    trimming = profile.trimming
    if not trimming.enabled.value:
        return
    if trimming.dscp.value is None:
        yield NotStated("trimming.dscp")
        return
    way = way_of_packet(profile, trimming.dscp.value, None)
    queue = trimming.queue.value
    if queue is None and way is not None:
        queue = way.queue
    if queue is None:
        yield NotStated("maps")
    elif profile.queue(queue).scheduler.value is not Scheduler.STRICT:
        what = f"trimmed packets (DSCP {trimming.dscp.value}) leave by queue {queue}, which is not strict"
        remedy = "the news of a loss waits behind data: give it a strict queue"
        yield Problem(where(trimming.dscp, "trimming.dscp"), what, remedy)


def _lossless_unreached(profile: DutProfile) -> Iterator[Problem | NotStated]:
    maps = profile.maps
    mapped = maps.pcp_to_class if maps.trust.value is Trust.PCP else maps.dscp_to_class
    if profile.kind is DutKind.NIC or not profile.lossless_groups:
        return
    if mapped.value is None or maps.class_to_group.value is None:
        yield from absent(maps__dscp_to_class=mapped, maps__class_to_group=maps.class_to_group)
        return
    reached = {way_of_class(profile, each).group for each in classes_in_use(profile)}
    for group in profile.lossless_groups:
        if group.group not in reached:
            what = f"no packet comes to lossless group {group.group}"
            remedy = "its headroom is set aside for nothing: map a class to it, and a DSCP to the class"
            yield Problem(where(group.lossless, f"groups[{group.group}]"), what, remedy)


def _not_described(profile: DutProfile) -> Iterator[Problem | NotStated]:
    maps = profile.maps
    queues, groups = {queue.queue for queue in profile.queues}, {group.group for group in profile.groups}
    for traffic_class in classes_in_use(profile):
        way = way_of_class(profile, traffic_class)
        for name, number, known, stated in (
            ("queue", way.queue, queues, maps.class_to_queue),
            ("group", way.group, groups, maps.class_to_group),
        ):
            if known and number is not None and number not in known:
                what = f"{dscps_of(profile, traffic_class)} goes to {name} {number}, of which nothing is said"
                remedy = f"describe {name} {number}, or correct the map"
                yield Problem(where(stated, f"maps.class_to_{name}"), what, remedy)


def _weight_of_strict(profile: DutProfile) -> Iterator[Problem | NotStated]:
    for queue in profile.queues:
        if queue.scheduler.value is Scheduler.STRICT and queue.weight.value is not None:
            what = f"queue {queue.queue} is strict and has weight {queue.weight.value}"
            remedy = "a strict queue goes before all others, whatever its weight: remove it, or write dwrr"
            yield Problem(where(queue.weight, f"queues[{queue.queue}].weight"), what, remedy)


_C: Final = Severity.ERROR
_R: Final = Severity.WARNING

MAP_RULES: Final[tuple[Rule[DutProfile], ...]] = (
    Rule("class-without-way", _C, "A class that DSCPs lead to has no queue or group.", _unmapped_class),
    Rule("lossless-without-pfc", _C, "A lossless group cannot pause anybody.", _lossless_without_pfc),
    Rule("pfc-without-headroom", _C, "PFC is on for a group that drops anyway.", _pfc_without_headroom),
    Rule(
        "pause-stops-another",
        _C,
        "A pause stops another queue than the one it is about.",
        _pause_stops_another,
    ),
    Rule("lossless-shares-queue", _R, "Lossy packets share a queue with lossless ones.", _lossless_shares),
    Rule("blind-hash", _R, "ECMP cannot tell queue pairs apart.", _blind_hash),
    Rule("trimmed-waits", _R, "Trimmed packets do not overtake data.", _trimmed_waits),
    Rule("lossless-unreached", _R, "No packet leads to a lossless group.", _lossless_unreached),
    Rule(
        "way-not-described", _R, "A class leads to a queue or group of which nothing is said.", _not_described
    ),
    Rule(
        "weight-of-strict",
        _R,
        "A queue that goes before all others has no use for a weight.",
        _weight_of_strict,
    ),
)
