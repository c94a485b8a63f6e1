"""Rules for the path of packets through a device: DSCP to class, class to queue and group, group to priority, and back.

Decides which entries of the maps contradict each other. `job` examines the marks that a job sends with.
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
    """Treatment of the packets of one class; None where a map has no entry."""

    traffic_class: int
    queue: int | None
    group: int | None
    priority: int | None
    """PFC priority that its group pauses."""


def way_of_class(profile: DutProfile, traffic_class: int) -> Way:
    """Return the queue, group and priority of a traffic class."""
    maps = profile.maps
    group = _at(maps.class_to_group.value, traffic_class)
    priority = _at(maps.group_to_priority.value, group)
    return Way(traffic_class, _at(maps.class_to_queue.value, traffic_class), group, priority)


def way_of_packet(profile: DutProfile, dscp: int, pcp: int | None) -> Way | None:
    """Return the class, queue, group and priority of packets with these marks, or None if no map gives the class.

    `pcp` None: untagged frames, which count as PCP 0.
    """
    maps = profile.maps
    if maps.trust.value is Trust.PCP:
        traffic_class = _at(maps.pcp_to_class.value, pcp or 0)
    else:
        traffic_class = _at(maps.dscp_to_class.value, dscp)
    return None if traffic_class is None else way_of_class(profile, traffic_class)


def _at(mapped: tuple[int, ...] | None, key: int | None) -> int | None:
    return mapped[key] if mapped is not None and key is not None and key < len(mapped) else None


def classes_in_use(profile: DutProfile) -> tuple[int, ...]:
    """Return the traffic classes that some DSCP or PCP maps to, by the trusted field."""
    maps = profile.maps
    mark_to_class = maps.pcp_to_class if maps.trust.value is Trust.PCP else maps.dscp_to_class
    return tuple(sorted(set(mark_to_class.value or ())))


def dscps_of(profile: DutProfile, traffic_class: int) -> str:
    """Return a class with its DSCPs for a message: "class 3 (DSCP 0-7, 9)", or the class alone if the device trusts PCP."""
    if profile.maps.trust.value is Trust.PCP:
        return f"class {traffic_class}"
    dscps = [
        dscp
        for dscp, mapped_class in enumerate(profile.maps.dscp_to_class.value or ())
        if mapped_class == traffic_class
    ]
    return f"class {traffic_class} (DSCP {', '.join(number_spans(dscps))})"


def _check_class_maps(profile: DutProfile) -> Iterator[Problem | NotStated]:
    maps = profile.maps
    for traffic_class in classes_in_use(profile):
        for name, stated in (("queue", maps.class_to_queue), ("group", maps.class_to_group)):
            if stated.value is not None and traffic_class >= len(stated.value):
                problem = f"{dscps_of(profile, traffic_class)} has no {name}"
                yield Problem(where(stated, f"maps.class_to_{name}"), problem, f"map class {traffic_class}")


def _check_lossless_pfc(profile: DutProfile) -> Iterator[Problem | NotStated]:
    priorities, to_priority = profile.pfc.priorities, profile.maps.group_to_priority
    if not profile.lossless_groups:
        return
    if priorities.value is None or to_priority.value is None:
        yield from absent(pfc__priorities=priorities, maps__group_to_priority=to_priority)
        return
    for group in profile.lossless_groups:
        priority = to_priority.value[group.group]
        if priority not in priorities.value:
            problem = f"group {group.group} is lossless, but PFC is off for its priority {priority}"
            remedy = f"add {priority} to pfc.priorities, or write lossless: false: it drops when its buffer is full"
            yield Problem(where(group.lossless, f"groups[{group.group}]"), problem, remedy)


def _check_pfc_headroom(profile: DutProfile) -> Iterator[Problem | NotStated]:
    priorities, to_priority = profile.pfc.priorities, profile.maps.group_to_priority
    if profile.kind is DutKind.NIC or not priorities.value:
        return
    if to_priority.value is None:
        yield from absent(maps__group_to_priority=to_priority)
        return
    for priority in priorities.value:
        groups = [
            profile.group(group)
            for group, mapped_priority in enumerate(to_priority.value)
            if mapped_priority == priority
        ]
        if not groups:
            problem = f"PFC is on for priority {priority}, but no priority group maps to it"
            yield Problem(
                where(priorities, "pfc.priorities"), problem, "turn it off, or map a lossless group to it"
            )
        for group in groups:
            if group.lossless.best is None:
                yield NotStated(f"groups[{group.group}].lossless")
        if groups and all(group.lossless.value is False for group in groups):
            names = ", ".join(str(group.group) for group in groups)
            problem = f"PFC is on for priority {priority}, but its group {names} is not lossless"
            yield Problem(
                where(priorities, "pfc.priorities"), problem, "turn it off, or give the group headroom"
            )
        for group in groups:
            if group.lossless.value and group.headroom_bytes.value == 0:
                problem = f"group {group.group} of PFC priority {priority} has no headroom"
                remedy = "packets in flight when xoff is sent are dropped: give it headroom"
                yield Problem(where(group.headroom_bytes, f"groups[{group.group}]"), problem, remedy)


def _check_paused_queue(profile: DutProfile) -> Iterator[Problem | NotStated]:
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
        paused_queue = maps.priority_to_queue.value[way.priority]
        if paused_queue != way.queue:
            problem = (
                f"{dscps_of(profile, traffic_class)} leaves by queue {way.queue} with PFC priority {way.priority}, "
                f"but a received pause of priority {way.priority} stops queue {paused_queue}"
            )
            remedy = f"map priority {way.priority} to queue {way.queue}, or the class to queue {paused_queue}"
            yield Problem(where(maps.priority_to_queue, "maps.priority_to_queue"), problem, remedy)


def _check_lossless_queues(profile: DutProfile) -> Iterator[Problem | NotStated]:
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
        problem = f"queue {queue} carries lossless class {classes[True][0]} and lossy {lossy}"
        remedy = "pauses stop the lossy packets too, which fill the queue: give them a separate queue"
        yield Problem(where(profile.maps.class_to_queue, "maps.class_to_queue"), problem, remedy)


def _check_hash_fields(profile: DutProfile) -> Iterator[Problem | NotStated]:
    fields = profile.balancing.hash_fields
    if fields.value is not None and not _TELL_QUEUE_PAIRS_APART & set(fields.value):
        problem = f"ECMP hashes {', '.join(fields.value) or 'nothing'}"
        remedy = (
            "all queue pairs of two addresses take one path: hash the UDP source port or the destination QP"
        )
        yield Problem(where(fields, "balancing.hash_fields"), problem, remedy)


def _check_trimmed_queue(profile: DutProfile) -> Iterator[Problem | NotStated]:
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
        problem = f"trimmed packets (DSCP {trimming.dscp.value}) leave by queue {queue}, which is not strict"
        remedy = "loss reports wait behind data: give them a strict queue"
        yield Problem(where(trimming.dscp, "trimming.dscp"), problem, remedy)


def _check_lossless_reached(profile: DutProfile) -> Iterator[Problem | NotStated]:
    maps = profile.maps
    mark_to_class = maps.pcp_to_class if maps.trust.value is Trust.PCP else maps.dscp_to_class
    if profile.kind is DutKind.NIC or not profile.lossless_groups:
        return
    if mark_to_class.value is None or maps.class_to_group.value is None:
        yield from absent(maps__dscp_to_class=mark_to_class, maps__class_to_group=maps.class_to_group)
        return
    reached = {way_of_class(profile, traffic_class).group for traffic_class in classes_in_use(profile)}
    for group in profile.lossless_groups:
        if group.group not in reached:
            problem = f"no DSCP maps to lossless group {group.group}"
            remedy = "its headroom is unused: map a class to it, and a DSCP to the class"
            yield Problem(where(group.lossless, f"groups[{group.group}]"), problem, remedy)


def _check_described(profile: DutProfile) -> Iterator[Problem | NotStated]:
    maps = profile.maps
    queues, groups = {queue.queue for queue in profile.queues}, {group.group for group in profile.groups}
    for traffic_class in classes_in_use(profile):
        way = way_of_class(profile, traffic_class)
        for name, number, described, stated in (
            ("queue", way.queue, queues, maps.class_to_queue),
            ("group", way.group, groups, maps.class_to_group),
        ):
            if described and number is not None and number not in described:
                problem = (
                    f"{dscps_of(profile, traffic_class)} goes to {name} {number}, which is not described"
                )
                remedy = f"describe {name} {number}, or correct the map"
                yield Problem(where(stated, f"maps.class_to_{name}"), problem, remedy)


def _check_strict_weights(profile: DutProfile) -> Iterator[Problem | NotStated]:
    for queue in profile.queues:
        if queue.scheduler.value is Scheduler.STRICT and queue.weight.value is not None:
            problem = f"queue {queue.queue} is strict and has weight {queue.weight.value}"
            remedy = "a strict queue ignores its weight: remove it, or write dwrr"
            yield Problem(where(queue.weight, f"queues[{queue.queue}].weight"), problem, remedy)


_C: Final = Severity.ERROR
_R: Final = Severity.WARNING

MAP_RULES: Final[tuple[Rule[DutProfile], ...]] = (
    Rule("class-without-way", _C, "A class that DSCPs map to has no queue or group.", _check_class_maps),
    Rule("lossless-without-pfc", _C, "A lossless group cannot send pauses.", _check_lossless_pfc),
    Rule(
        "pfc-without-headroom",
        _C,
        "PFC is on without a lossless group that has headroom.",
        _check_pfc_headroom,
    ),
    Rule(
        "pause-stops-another",
        _C,
        "A pause stops another queue than that of its priority.",
        _check_paused_queue,
    ),
    Rule(
        "lossless-shares-queue", _R, "Lossy packets share a queue with lossless ones.", _check_lossless_queues
    ),
    Rule("blind-hash", _R, "ECMP cannot distinguish queue pairs.", _check_hash_fields),
    Rule("trimmed-waits", _R, "Trimmed packets do not overtake data.", _check_trimmed_queue),
    Rule("lossless-unreached", _R, "A lossless group is not reached by any DSCP.", _check_lossless_reached),
    Rule(
        "way-not-described",
        _R,
        "A class maps to a queue or group that is not described.",
        _check_described,
    ),
    Rule(
        "weight-of-strict",
        _R,
        "A strict queue has a weight, which has no effect.",
        _check_strict_weights,
    ),
)
