"""Rules for a device's memory: marking, pausing, headroom, pools and reserves.

Decides which values of a buffer and its thresholds contradict each other. `contradictions` examines ports and everything else
of a device, `maps` the path of a packet.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from etloop.contract.base.errors import Problem, Severity
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import approximate_bytes, format_bytes, format_rate
from etloop.dut_profiles.model.findings import NotStated, Rule, absent, where
from etloop.dut_profiles.model.profile import DutKind, DutProfile, PortGroup, PriorityGroup

FRAME_OVERHEAD_BYTES: Final = 38
"""Overhead of an IP packet on the link: Ethernet header 14, FCS 4, preamble 8, gap 12."""
PAUSE_FRAME_BYTES: Final = 84
"""64 of the frame, plus preamble and gap."""
CABLE_NS_PER_METRE: Final = 5


def least_headroom_bytes(speed_bps: int, ip_mtu_bytes: int, cable_metres: int) -> int:
    """Return a lower bound on the bytes that arrive after the xoff decision.

    Twice the cable, a largest frame that has just begun at each end, and the pause frame itself (IEEE 802.1Q Annex N has the
    full sum; the peer MAC's reaction time is left out here, so real needs are higher).
    """
    cable_bytes = 2 * cable_metres * CABLE_NS_PER_METRE * speed_bps // 8_000_000_000
    return cable_bytes + 2 * (ip_mtu_bytes + FRAME_OVERHEAD_BYTES) + PAUSE_FRAME_BYTES


def _check_xon(profile: DutProfile) -> Iterator[Problem | NotStated]:
    for group in profile.groups:
        xoff, path = group.xoff_bytes.value, f"groups[{group.group}]"
        for name, stated in (("xon", group.xon_bytes), ("xon_offset", group.xon_offset_bytes)):
            if xoff is not None and stated.value is not None and stated.value > xoff:
                problem = (
                    f"{name} {format_bytes(stated.value)} is above xoff {format_bytes(xoff)} "
                    f"of priority group {group.group}"
                )
                yield Problem(
                    where(stated, path), problem, "a paused sender would never resume: state xon below xoff"
                )


def _check_thresholds(profile: DutProfile) -> Iterator[Problem | NotStated]:
    for queue in profile.queues:
        ecn, path = queue.ecn, f"queues[{queue.queue}].ecn"
        if not ecn.enabled.value:
            continue
        kmin, kmax = ecn.kmin_bytes.value, ecn.kmax_bytes.value
        thresholds = (("kmin", ecn.kmin_bytes), ("kmax", ecn.kmax_bytes), ("pmax", ecn.pmax_per_million))
        yield from (NotStated(f"{path}.{name}") for name, stated in thresholds if stated.best is None)
        if kmin is not None and kmax is not None and kmin > kmax:
            problem = f"Kmin {format_bytes(kmin)} of queue {queue.queue} is above Kmax {format_bytes(kmax)}"
            yield Problem(where(ecn.kmin_bytes, path), problem, "state Kmin at or below Kmax")


def _check_marking(profile: DutProfile) -> Iterator[Problem | NotStated]:
    total = profile.buffer.total_bytes.value
    for queue in profile.queues:
        ecn, path = queue.ecn, f"queues[{queue.queue}].ecn"
        kmin, kmax, pmax = ecn.kmin_bytes.value, ecn.kmax_bytes.value, ecn.pmax_per_million.value
        if not ecn.enabled.value:
            continue
        if total is None:
            yield NotStated("buffer.total")
        elif kmin is not None and kmin >= total:
            problem = f"Kmin {format_bytes(kmin)} of queue {queue.queue} is not below the whole buffer, {format_bytes(total)}"
            yield Problem(
                where(ecn.kmin_bytes, path),
                problem,
                "the queue never marks: lower Kmin, or write enabled: false",
            )
        if pmax == 0 and kmin != kmax:
            problem = f"Pmax of queue {queue.queue} is 0% between Kmin and Kmax"
            yield Problem(
                where(ecn.pmax_per_million, path), problem, "raise Pmax, or make Kmin and Kmax equal"
            )


def _check_pause_before_mark(profile: DutProfile) -> Iterator[Problem | NotStated]:
    if profile.kind is DutKind.NIC:
        return
    queue_of, group_of = profile.maps.class_to_queue.value, profile.maps.class_to_group.value
    if queue_of is None or group_of is None:
        yield from absent(
            maps__class_to_queue=profile.maps.class_to_queue, maps__class_to_group=profile.maps.class_to_group
        )
        return
    for queue, group in dict.fromkeys(zip(queue_of, group_of, strict=False)):
        kmin = profile.queue(queue).ecn.kmin_bytes
        if not profile.queue(queue).ecn.enabled.value or kmin.value is None:
            continue
        threshold = _first_pause(profile, profile.group(group))
        if isinstance(threshold, NotStated):
            yield threshold
        elif threshold is not None and kmin.value >= threshold.length_bytes:
            problem = f"Kmin {format_bytes(kmin.value)} of queue {queue} is not below {threshold.words}"
            remedy = (
                "few senders are paused before the first packet is marked: lower Kmin or raise the threshold"
            )
            yield Problem(where(kmin, f"queues[{queue}].ecn"), problem, remedy)


@dataclass(frozen=True, slots=True)
class _PauseThreshold:
    """Length at which a priority group with a single sender pauses it."""

    length_bytes: int
    words: str


def _first_pause(profile: DutProfile, group: PriorityGroup) -> _PauseThreshold | NotStated | None:
    """Return the occupancy at which a single sender is paused: the fixed xoff, or alpha times what it leaves free.

    With alpha, x = alpha * (shared - x), so that x = shared * alpha / (1 + alpha). None: the group never pauses, or no queue
    can grow, because the device has fewer than three ports.
    """
    xoff, alpha = group.xoff_bytes.value, group.alpha.value
    if xoff is not None:
        return _PauseThreshold(xoff, f"xoff {format_bytes(xoff)} of group {group.group}")
    if not group.lossless.value or (profile.port_count or 3) < 3:
        return None
    if alpha is None:
        return NotStated(f"groups[{group.group}].alpha")
    shared = _shared_bytes(profile)
    if shared is None:
        return NotStated("buffer.total")
    length_bytes = int(shared * alpha / (1 + alpha))
    words = f"the {approximate_bytes(length_bytes)} at which alpha {alpha} of group {group.group} pauses a single sender"
    return _PauseThreshold(length_bytes, words)


def _shared_bytes(profile: DutProfile) -> int | None:
    """Return the part of the buffer that all ports share: the largest pool, else the buffer less headroom and reserves."""
    pools = [pool.size_bytes.value for pool in profile.buffer.pools if pool.size_bytes.value is not None]
    total = profile.buffer.total_bytes.value
    if pools or total is None:
        return max(pools, default=None)
    headroom = profile.buffer.headroom_bytes.value
    ports = profile.port_count or 0
    if headroom is None:
        headroom = ports * sum(group.headroom_bytes.value or 0 for group in profile.lossless_groups)
    return max(total - headroom - ports * sum(group.reserved_bytes.value or 0 for group in profile.groups), 0)


def _check_headroom(profile: DutProfile) -> Iterator[Problem | NotStated]:
    for ports in profile.ports:
        for group in profile.of_ports(ports).lossless_groups:
            link_values = (ports.speed_bps.value, ports.ip_mtu_bytes.value, ports.cable_metres.value)
            speed_bps, ip_mtu_bytes, cable_metres = link_values
            headroom = group.headroom_bytes
            if speed_bps is None or ip_mtu_bytes is None or cable_metres is None or headroom.value is None:
                yield from _missing_for_headroom(ports, group.group, headroom.best is None)
                continue
            needed = least_headroom_bytes(speed_bps, ip_mtu_bytes, cable_metres)
            if headroom.value < needed:
                of_ports = f" on ports {ports.name}" if ports.overrides else ""
                problem = (
                    f"headroom {format_bytes(headroom.value)} of lossless group {group.group}{of_ports} is below the "
                    f"{format_bytes(needed)} that arrive after xoff at {format_rate(speed_bps)} over "
                    f"{cable_metres} m with packets of {format_bytes(ip_mtu_bytes)}"
                )
                remedy = "raise the headroom, shorten the cable or lower the MTU; else a paused port drops"
                yield Problem(where(headroom, f"groups[{group.group}]"), problem, remedy)


def _missing_for_headroom(ports: PortGroup, group: int, headroom_absent: bool) -> Iterator[NotStated]:
    path = f"ports[{ports.name}]"
    link_values = (
        ("speed", ports.speed_bps),
        ("ip_mtu", ports.ip_mtu_bytes),
        ("cable_metres", ports.cable_metres),
    )
    yield from (NotStated(f"{path}.{name}") for name, stated in link_values if stated.best is None)
    if headroom_absent:
        yield NotStated(f"groups[{group}].headroom")


def _check_headroom_pool(profile: DutProfile) -> Iterator[Problem | NotStated]:
    pool = profile.buffer.headroom_bytes
    ports = profile.port_count
    group_bytes = [
        (ports_alike.count.value or 0, group.headroom_bytes.value)
        for ports_alike in profile.ports or (PortGroup("all"),)
        for group in profile.of_ports(ports_alike).lossless_groups
    ]
    if not group_bytes:
        return
    if (
        pool.value is None
        or ports is None
        or any(headroom_bytes is None for _, headroom_bytes in group_bytes)
    ):
        yield from absent(buffer__headroom=pool)
        if ports is None:
            yield NotStated("ports.count")
        return
    needed_bytes = sum(count * (headroom_bytes or 0) for count, headroom_bytes in group_bytes)
    if needed_bytes > pool.value:
        problem = (
            f"the headroom of all lossless groups of all ports is {format_bytes(needed_bytes)}, "
            f"their pool has {format_bytes(pool.value)}"
        )
        share = 100 * pool.value // needed_bytes
        remedy = f"enough while at most {share}% of ports and groups are paused at a time; more may drop"
        yield Problem(where(pool, "buffer.headroom"), problem, remedy)


def _check_pools(profile: DutProfile) -> Iterator[Problem | NotStated]:
    total = profile.buffer.total_bytes
    if not profile.buffer.pools:
        return
    if total.value is None:
        yield NotStated("buffer.total")
        return
    for pool in profile.buffer.pools:
        pool_bytes = (pool.size_bytes.value or 0) + (pool.headroom_bytes.value or 0)
        if pool_bytes > total.value:
            problem = f"pool {pool.name} with its headroom is {format_bytes(pool_bytes)}, the buffer {format_bytes(total.value)}"
            remedy = "ingress and egress pools may cover the same memory, but none exceeds it"
            yield Problem(where(pool.size_bytes, f"buffer.pools[{pool.name}]"), problem, remedy)


def _check_xoff(profile: DutProfile) -> Iterator[Problem | NotStated]:
    total = profile.buffer.total_bytes
    for group in profile.groups:
        xoff, path = group.xoff_bytes, f"groups[{group.group}]"
        if xoff.value is None or group.lossless.value is False:
            continue
        if total.value is None:
            yield NotStated("buffer.total")
        elif xoff.value >= total.value:
            problem = (
                f"xoff {format_bytes(xoff.value)} of priority group {group.group} is not below the whole buffer, "
                f"{format_bytes(total.value)}"
            )
            yield Problem(where(xoff, path), problem, "it drops before it sends a pause: lower xoff")


def _check_full_marking(profile: DutProfile) -> Iterator[Problem | NotStated]:
    total = profile.buffer.total_bytes
    for queue in profile.queues:
        kmin, kmax = queue.ecn.kmin_bytes.value, queue.ecn.kmax_bytes
        if not queue.ecn.enabled.value or kmax.value is None:
            continue
        if total.value is None:
            yield NotStated("buffer.total")
        elif kmax.value > total.value and (kmin is None or kmin < total.value):
            problem = (
                f"Kmax {format_bytes(kmax.value)} of queue {queue.queue} is above the whole buffer, "
                f"{format_bytes(total.value)}"
            )
            yield Problem(
                where(kmax, f"queues[{queue.queue}].ecn"), problem, "lower Kmax, or correct the buffer"
            )


def _check_headroom_parts(profile: DutProfile) -> Iterator[Problem | NotStated]:
    headroom, total = profile.buffer.headroom_bytes, profile.buffer.total_bytes.value
    if headroom.value is None:
        yield from _check_headroom_of_shared(profile)
        return
    if total is None:
        yield NotStated("buffer.total")
    elif headroom.value > total:
        problem = (
            f"the headroom of all ports is {format_bytes(headroom.value)}, the buffer {format_bytes(total)}"
        )
        yield Problem(
            where(headroom, "buffer.headroom"),
            problem,
            "headroom is a part of the buffer: correct one of them",
        )
    parts = [(f"pool {pool.name}", pool.headroom_bytes) for pool in profile.buffer.pools]
    parts += [(f"priority group {group.group}", group.headroom_bytes) for group in profile.lossless_groups]
    for name, part in parts:
        if part.value is not None and part.value > headroom.value:
            problem = f"{name} has {format_bytes(part.value)} of headroom, all ports together {format_bytes(headroom.value)}"
            yield Problem(where(part, "buffer.headroom"), problem, "correct one of them")


def _check_headroom_of_shared(profile: DutProfile) -> Iterator[Problem | NotStated]:
    """Compare the headroom of each group with the shared buffer that it is taken from, where there is no headroom pool."""
    pools = profile.buffer.pools
    ingress_pools = [pool for pool in pools if pool.name.startswith("ingress")] or list(pools)
    sizes = [pool.size_bytes.value for pool in ingress_pools if pool.size_bytes.value is not None]
    shared_bytes = max(sizes, default=profile.buffer.total_bytes.value)
    if shared_bytes is None:
        return
    for group in profile.lossless_groups:
        headroom = group.headroom_bytes
        if headroom.value is not None and headroom.value > shared_bytes:
            problem = (
                f"priority group {group.group} has {format_bytes(headroom.value)} of headroom, "
                f"the shared buffer {format_bytes(shared_bytes)}"
            )
            yield Problem(where(headroom, "buffer.pools"), problem, "correct one of them")


def _check_reserved(profile: DutProfile) -> Iterator[Problem | NotStated]:
    total = profile.buffer.total_bytes.value
    kinds_of_ports = [
        (ports.count.value or 0, profile.of_ports(ports)) for ports in profile.ports or (PortGroup("all"),)
    ]
    sides = (
        (
            "groups",
            [(count, group.reserved_bytes) for count, ports in kinds_of_ports for group in ports.groups],
        ),
        (
            "queues",
            [(count, queue.reserved_bytes) for count, ports in kinds_of_ports for queue in ports.queues],
        ),
    )
    for name, stated in sides:
        reserved = [(count, reserve) for count, reserve in stated if reserve.value]
        if not reserved:
            continue
        if total is None or profile.port_count is None:
            yield from absent(buffer__total=profile.buffer.total_bytes)
            if profile.port_count is None:
                yield NotStated("ports.count")
            continue
        needed_bytes = sum(count * (reserve.value or 0) for count, reserve in reserved)
        if needed_bytes > total:
            problem = f"{name} of all ports reserve {format_bytes(needed_bytes)}, the buffer has {format_bytes(total)}"
            yield Problem(
                where(reserved[0][1], name), problem, "lower what each reserves, or correct the buffer"
            )


_C: Final = Severity.ERROR
_R: Final = Severity.WARNING

BUFFER_RULES: Final[tuple[Rule[DutProfile], ...]] = (
    Rule("xon-above-xoff", _C, "A paused sender would never resume.", _check_xon),
    Rule("xoff-out-of-reach", _C, "A lossless group drops before it sends a pause.", _check_xoff),
    Rule(
        "kmin-above-kmax",
        _C,
        "Marking would start above the length at which every packet is marked.",
        _check_thresholds,
    ),
    Rule("never-marks", _C, "ECN is on, but the queue never marks.", _check_marking),
    Rule("marks-incomplete", _R, "Packets are dropped before all of them are marked.", _check_full_marking),
    Rule(
        "pause-before-mark",
        _R,
        "PFC pauses before congestion control gets a mark.",
        _check_pause_before_mark,
    ),
    Rule("headroom-too-small", _C, "A lossless group drops what arrives after xoff.", _check_headroom),
    Rule(
        "headroom-shared",
        _R,
        "The headroom of all ports exceeds its pool.",
        _check_headroom_pool,
    ),
    Rule(
        "headroom-beyond-buffer",
        _C,
        "One group or pool has more headroom than all ports together.",
        _check_headroom_parts,
    ),
    Rule("pool-beyond-buffer", _C, "A pool is larger than the buffer.", _check_pools),
    Rule("reserved-beyond-buffer", _C, "Ports reserve more than the buffer.", _check_reserved),
)
