"""Rules for what a device does with its memory: marking, pausing, headroom, pools and what is reserved.

Decides what of a buffer and its thresholds cannot be true together. Ports and everything else of a device are examined by
`contradictions`, the way of a packet by `map_contradictions`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from etloop.contract.base.errors import Problem, Severity
from etloop.contract.base.units import format_bytes, format_rate
from etloop.dut_profiles.model.findings import NotStated, Rule, absent, where
from etloop.dut_profiles.model.profile import DutKind, DutProfile, PortGroup

FRAME_OVERHEAD_BYTES: Final = 38
"""Of an IP packet on the link: Ethernet header 14, FCS 4, preamble 8, gap 12."""
PAUSE_FRAME_BYTES: Final = 84
"""64 of the frame, preamble and gap."""
CABLE_NS_PER_METRE: Final = 5


def least_headroom_bytes(speed_bps: int, ip_mtu_bytes: int, cable_metres: int) -> int:
    """What still arrives after xoff is decided, at the very least.

    Twice the cable, a largest frame that had just begun at each end, and the pause frame itself (IEEE 802.1Q Annex N has
    the full sum; the time that the peer's MAC takes to stop is left out here, so real needs are higher).
    """
    on_the_cable = 2 * cable_metres * CABLE_NS_PER_METRE * speed_bps // 8_000_000_000
    return on_the_cable + 2 * (ip_mtu_bytes + FRAME_OVERHEAD_BYTES) + PAUSE_FRAME_BYTES


def _xon(profile: DutProfile) -> Iterator[Problem | NotStated]:
    for group in profile.groups:
        xoff, path = group.xoff_bytes.value, f"groups[{group.group}]"
        for name, stated in (("xon", group.xon_bytes), ("xon_offset", group.xon_offset_bytes)):
            if xoff is not None and stated.value is not None and stated.value > xoff:
                what = (
                    f"{name} {format_bytes(stated.value)} is above xoff {format_bytes(xoff)} "
                    f"of priority group {group.group}"
                )
                yield Problem(where(stated, path), what, "pausing would never end: state xon below xoff")


def _thresholds(profile: DutProfile) -> Iterator[Problem | NotStated]:
    for queue in profile.queues:
        ecn, path = queue.ecn, f"queues[{queue.queue}].ecn"
        if not ecn.enabled.value:
            continue
        kmin, kmax = ecn.kmin_bytes.value, ecn.kmax_bytes.value
        sought = (("kmin", ecn.kmin_bytes), ("kmax", ecn.kmax_bytes), ("pmax", ecn.pmax_per_million))
        yield from (NotStated(f"{path}.{name}") for name, stated in sought if stated.best is None)
        if kmin is not None and kmax is not None and kmin > kmax:
            what = f"Kmin {format_bytes(kmin)} of queue {queue.queue} is above Kmax {format_bytes(kmax)}"
            yield Problem(where(ecn.kmin_bytes, path), what, "state Kmin at or below Kmax")


def _never_marks(profile: DutProfile) -> Iterator[Problem | NotStated]:
    total = profile.buffer.total_bytes.value
    for queue in profile.queues:
        ecn, path = queue.ecn, f"queues[{queue.queue}].ecn"
        kmin, kmax, pmax = ecn.kmin_bytes.value, ecn.kmax_bytes.value, ecn.pmax_per_million.value
        if not ecn.enabled.value:
            continue
        if total is None:
            yield NotStated("buffer.total")
        elif kmin is not None and kmin >= total:
            what = f"Kmin {format_bytes(kmin)} of queue {queue.queue} is not below the whole buffer, {format_bytes(total)}"
            yield Problem(
                where(ecn.kmin_bytes, path), what, "the queue never marks: lower Kmin, or say enabled: false"
            )
        if pmax == 0 and kmin != kmax:
            what = f"Pmax of queue {queue.queue} is 0% between Kmin and Kmax"
            yield Problem(where(ecn.pmax_per_million, path), what, "raise Pmax, or make Kmin and Kmax equal")


def _pause_before_mark(profile: DutProfile) -> Iterator[Problem | NotStated]:
    if profile.kind is DutKind.NIC:
        return
    queue_of, group_of = profile.maps.class_to_queue.value, profile.maps.class_to_group.value
    if queue_of is None or group_of is None:
        yield from absent(
            maps__class_to_queue=profile.maps.class_to_queue, maps__class_to_group=profile.maps.class_to_group
        )
        return
    pairs = dict.fromkeys(zip(queue_of, group_of, strict=False))
    for queue, group in pairs:
        kmin, xoff = profile.queue(queue).ecn.kmin_bytes, profile.group(group).xoff_bytes
        marks = profile.queue(queue).ecn.enabled.value
        if marks and kmin.value is not None and xoff.value is not None and kmin.value >= xoff.value:
            what = (
                f"Kmin {format_bytes(kmin.value)} of queue {queue} is not below xoff {format_bytes(xoff.value)} "
                f"of group {group}"
            )
            remedy = "few senders are paused before the first packet is marked: lower Kmin or raise xoff"
            yield Problem(where(kmin, f"queues[{queue}].ecn"), what, remedy)


def _headroom(profile: DutProfile) -> Iterator[Problem | NotStated]:
    for ports in profile.ports:
        for group in profile.lossless_groups:
            known = (ports.speed_bps.value, ports.ip_mtu_bytes.value, ports.cable_metres.value)
            speed_bps, ip_mtu_bytes, cable_metres = known
            headroom = group.headroom_bytes
            if speed_bps is None or ip_mtu_bytes is None or cable_metres is None or headroom.value is None:
                yield from _needed_for_headroom(ports, group.group, headroom.best is None)
                continue
            needed = least_headroom_bytes(speed_bps, ip_mtu_bytes, cable_metres)
            if headroom.value < needed:
                what = (
                    f"headroom {format_bytes(headroom.value)} of lossless group {group.group} is below the "
                    f"{format_bytes(needed)} that arrive after xoff at {format_rate(speed_bps)} over "
                    f"{cable_metres} m with packets of {format_bytes(ip_mtu_bytes)}"
                )
                remedy = "raise the headroom, shorten the cable or lower the MTU; else a paused port drops"
                yield Problem(where(headroom, f"groups[{group.group}]"), what, remedy)


def _needed_for_headroom(ports: PortGroup, group: int, headroom_absent: bool) -> Iterator[NotStated]:
    path = f"ports[{ports.name}]"
    sought = (
        ("speed", ports.speed_bps),
        ("ip_mtu", ports.ip_mtu_bytes),
        ("cable_metres", ports.cable_metres),
    )
    yield from (NotStated(f"{path}.{name}") for name, stated in sought if stated.best is None)
    if headroom_absent:
        yield NotStated(f"groups[{group}].headroom")


def _headroom_pool(profile: DutProfile) -> Iterator[Problem | NotStated]:
    pool = profile.buffer.headroom_bytes
    each = [group.headroom_bytes.value for group in profile.lossless_groups]
    ports = profile.port_count
    if not each:
        return
    if pool.value is None or None in each or ports is None:
        yield from absent(buffer__headroom=pool)
        if ports is None:
            yield NotStated("ports.count")
        return
    wanted = ports * sum(one or 0 for one in each)
    if wanted > pool.value:
        what = (
            f"the headroom of all lossless groups of all ports is {format_bytes(wanted)}, "
            f"the pool for it {format_bytes(pool.value)}"
        )
        share = 100 * pool.value // wanted
        remedy = f"enough while at most {share}% of ports and groups are paused at a time; more may drop"
        yield Problem(where(pool, "buffer.headroom"), what, remedy)


def _pools(profile: DutProfile) -> Iterator[Problem | NotStated]:
    total = profile.buffer.total_bytes
    if not profile.buffer.pools:
        return
    if total.value is None:
        yield NotStated("buffer.total")
        return
    for pool in profile.buffer.pools:
        used = (pool.size_bytes.value or 0) + (pool.headroom_bytes.value or 0)
        if used > total.value:
            what = f"pool {pool.name} with its headroom is {format_bytes(used)}, the buffer {format_bytes(total.value)}"
            remedy = "ingress and egress pools may cover the same memory, but none exceeds it"
            yield Problem(where(pool.size_bytes, f"buffer.pools[{pool.name}]"), what, remedy)


def _xoff(profile: DutProfile) -> Iterator[Problem | NotStated]:
    total = profile.buffer.total_bytes
    for group in profile.groups:
        xoff, path = group.xoff_bytes, f"groups[{group.group}]"
        if xoff.value is None or group.lossless.value is False:
            continue
        if total.value is None:
            yield NotStated("buffer.total")
        elif xoff.value >= total.value:
            what = (
                f"xoff {format_bytes(xoff.value)} of priority group {group.group} is not below the whole buffer, "
                f"{format_bytes(total.value)}"
            )
            yield Problem(where(xoff, path), what, "it drops before it pauses anybody: lower xoff")


def _marks_incomplete(profile: DutProfile) -> Iterator[Problem | NotStated]:
    total = profile.buffer.total_bytes
    for queue in profile.queues:
        kmin, kmax = queue.ecn.kmin_bytes.value, queue.ecn.kmax_bytes
        if not queue.ecn.enabled.value or kmax.value is None:
            continue
        if total.value is None:
            yield NotStated("buffer.total")
        elif kmax.value > total.value and (kmin is None or kmin < total.value):
            what = (
                f"Kmax {format_bytes(kmax.value)} of queue {queue.queue} is above the whole buffer, "
                f"{format_bytes(total.value)}"
            )
            yield Problem(
                where(kmax, f"queues[{queue.queue}].ecn"), what, "lower Kmax, or correct the buffer"
            )


def _headroom_for_all(profile: DutProfile) -> Iterator[Problem | NotStated]:
    whole, total = profile.buffer.headroom_bytes, profile.buffer.total_bytes.value
    if whole.value is None:
        return
    if total is None:
        yield NotStated("buffer.total")
    elif whole.value > total:
        what = f"the headroom of all ports is {format_bytes(whole.value)}, the buffer {format_bytes(total)}"
        yield Problem(
            where(whole, "buffer.headroom"), what, "headroom is a part of the buffer: correct one of them"
        )
    parts = [(f"pool {pool.name}", pool.headroom_bytes) for pool in profile.buffer.pools]
    parts += [(f"priority group {group.group}", group.headroom_bytes) for group in profile.lossless_groups]
    for name, part in parts:
        if part.value is not None and part.value > whole.value:
            what = f"{name} has {format_bytes(part.value)} of headroom, all ports together {format_bytes(whole.value)}"
            yield Problem(where(part, "buffer.headroom"), what, "correct one of them")


def _reserved(profile: DutProfile) -> Iterator[Problem | NotStated]:
    total = profile.buffer.total_bytes.value
    ports = profile.port_count
    sides = (
        ("groups", [group.reserved_bytes for group in profile.groups]),
        ("queues", [queue.reserved_bytes for queue in profile.queues]),
    )
    for name, stated in sides:
        reserved = [each for each in stated if each.value]
        if not reserved:
            continue
        if total is None or ports is None:
            yield from absent(buffer__total=profile.buffer.total_bytes)
            if ports is None:
                yield NotStated("ports.count")
            continue
        wanted = ports * sum(each.value or 0 for each in reserved)
        if wanted > total:
            what = f"{name} of all ports reserve {format_bytes(wanted)}, the buffer has {format_bytes(total)}"
            yield Problem(where(reserved[0], name), what, "lower what each reserves, or correct the buffer")


_C: Final = Severity.ERROR
_R: Final = Severity.WARNING

BUFFER_RULES: Final[tuple[Rule[DutProfile], ...]] = (
    Rule("xon-above-xoff", _C, "A paused sender would never be let go on.", _xon),
    Rule("xoff-out-of-reach", _C, "A lossless group drops before it pauses anybody.", _xoff),
    Rule("kmin-above-kmax", _C, "Marking would begin after it is complete.", _thresholds),
    Rule("never-marks", _C, "ECN is on, but no length of the queue makes it mark.", _never_marks),
    Rule("marks-incomplete", _R, "Packets are dropped before all of them are marked.", _marks_incomplete),
    Rule("pause-before-mark", _R, "PFC acts before congestion control learns anything.", _pause_before_mark),
    Rule("headroom-too-small", _C, "A lossless group drops what arrives after xoff.", _headroom),
    Rule(
        "headroom-shared", _R, "Headroom is promised to more ports than there is memory for.", _headroom_pool
    ),
    Rule("headroom-beyond-buffer", _C, "One has more headroom than there is for all.", _headroom_for_all),
    Rule("pool-beyond-buffer", _C, "A pool is larger than the buffer that it is a part of.", _pools),
    Rule("reserved-beyond-buffer", _C, "Ports reserve more than the buffer has.", _reserved),
)
