"""Rules for a profile on its own: buffer, marking, pausing, ports, and what was measured against what is configured.

Decides what cannot be true together in one device. The way of a packet through the maps is examined by
`map_contradictions`, a profile against a job by `job_contradictions`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from contract.errors import Problem
from contract.units import format_bytes, format_duration, format_rate
from dut_profiles.examination import Examination, Gravity, NotStated, Rule, absent, apply, where
from dut_profiles.map_contradictions import MAP_RULES
from dut_profiles.profile import DutKind
from dut_profiles.stated import Basis, disagree, stated_values
from dut_profiles.stated_text import said

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dut_profiles.profile import DutProfile, PortGroup


FRAME_OVERHEAD_BYTES: Final = 38
"""Of an IP packet on the link: Ethernet header 14, FCS 4, preamble 8, gap 12."""
PAUSE_FRAME_BYTES: Final = 84
"""64 of the frame, preamble and gap."""
CABLE_NS_PER_METRE: Final = 5
QUANTUM_BITS: Final = 512
LONGEST_PAUSE_QUANTA: Final = 65_535
LEAST_TRIMMED_BYTES: Final = 54
"""Ethernet 14, IPv4 20, UDP 8 and BTH 12: without them nobody can say what was lost."""


def examine(profile: DutProfile) -> Examination:
    """What contradicts itself within a profile, what is remarkable, and what could not be examined."""
    return apply((*RULES, *MAP_RULES), profile)


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
        for name, stated in (
            ("kmin", ecn.kmin_bytes),
            ("kmax", ecn.kmax_bytes),
            ("pmax", ecn.pmax_per_million),
        ):
            if stated.best is None:
                yield NotStated(f"{path}.{name}")
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
        for group in profile.groups:
            if not group.lossless.value:
                continue
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
    for name, stated in (
        ("speed", ports.speed_bps),
        ("ip_mtu", ports.ip_mtu_bytes),
        ("cable_metres", ports.cable_metres),
    ):
        if stated.best is None:
            yield NotStated(f"{path}.{name}")
    if headroom_absent:
        yield NotStated(f"groups[{group}].headroom")


def _headroom_pool(profile: DutProfile) -> Iterator[Problem | NotStated]:
    pool = profile.buffer.headroom_bytes
    each = [group.headroom_bytes.value for group in profile.groups if group.lossless.value]
    counts = [ports.count.value for ports in profile.ports]
    if not each:
        return
    if pool.value is None or None in each or None in counts or not counts:
        yield from absent(buffer__headroom=pool)
        if None in counts or not counts:
            yield NotStated("ports.count")
        return
    wanted = sum(one for one in each if one is not None) * sum(one for one in counts if one is not None)
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


def _ports(profile: DutProfile) -> Iterator[Problem | NotStated]:
    for ports in profile.ports:
        path, speeds, used = f"ports[{ports.name}]", ports.speeds_bps.value, ports.speed_bps.value
        most = max(speeds) if speeds else used
        for breakout in ports.breakouts.value or ():
            if most is not None and breakout.count * breakout.speed_bps > most:
                what = f"breakout {breakout.count}x{format_rate(breakout.speed_bps)} is more than a port of {format_rate(most)}"
                yield Problem(where(ports.breakouts, path), what, "correct the breakout or the port's speeds")
        offered = (*(speeds or ()), *(breakout.speed_bps for breakout in ports.breakouts.value or ()))
        if used is not None and speeds and used not in offered:
            what = (
                f"ports run at {format_rate(used)}, which is none of {', '.join(map(format_rate, offered))}"
            )
            yield Problem(where(ports.speed_bps, path), what, "correct the speed, or list it among speeds")


def _balancing(profile: DutProfile) -> Iterator[Problem | NotStated]:
    balancing = profile.balancing
    mode, modes = balancing.mode.value, balancing.modes.value
    if mode is not None and modes is not None and mode not in modes:
        what = f"{mode} is in use, the device offers {', '.join(modes) or 'none'}"
        yield Problem(where(balancing.mode, "balancing.mode"), what, "correct mode, or list it among modes")


def _watchdog(profile: DutProfile) -> Iterator[Problem | NotStated]:
    detect = profile.pfc.watchdog_detect_ns
    if not detect.value:
        return
    for ports in profile.ports:
        if ports.speed_bps.value is None:
            yield NotStated(f"ports[{ports.name}].speed")
            continue
        longest_ns = LONGEST_PAUSE_QUANTA * QUANTUM_BITS * 1_000_000_000 // ports.speed_bps.value
        if detect.value <= longest_ns:
            what = (
                f"the watchdog acts after {format_duration(detect.value)}, a single pause at "
                f"{format_rate(ports.speed_bps.value)} may last {format_duration(longest_ns)}"
            )
            remedy = "it would take one rightful pause for a storm and drop: raise watchdog_detect"
            yield Problem(where(detect, "pfc.watchdog_detect"), what, remedy)


def _trimming(profile: DutProfile) -> Iterator[Problem | NotStated]:
    size = profile.trimming.size_bytes
    if profile.trimming.enabled.value and size.value is not None and size.value < LEAST_TRIMMED_BYTES:
        what = (
            f"packets are trimmed to {format_bytes(size.value)}, Ethernet to BTH take {LEAST_TRIMMED_BYTES}B"
        )
        yield Problem(
            where(size, "trimming.size"), what, "the receiver could not tell what was lost: raise it"
        )


def _measured_otherwise(profile: DutProfile) -> Iterator[Problem | NotStated]:
    for path, stated in stated_values(profile):
        measured, configured = stated.measured, stated.configured
        if measured is not None and configured is not None and disagree(measured.value, configured.value):
            what = (
                f"{path} is {said(path, configured.value)} by configuration "
                f"and {said(path, measured.value)} by measurement ({measured.source.title})"
            )
            remedy = "the device does not do what it is told, or the measurement is wrong: find out which"
            yield Problem(measured.where or path, what, remedy)


def _other_than_declared(profile: DutProfile) -> Iterator[Problem | NotStated]:
    for path, stated in stated_values(profile):
        declared, best = stated.declared, stated.best
        basis = stated.basis
        if (
            declared is None
            or best is None
            or basis is Basis.DECLARED
            or not disagree(declared.value, best.value)
        ):
            continue
        what = f"{path} is {said(path, best.value)} as {basis}, {said(path, declared.value)} as declared"
        yield Problem(best.where or path, what, f"the {basis} value is used")


_C: Final = Gravity.CONTRADICTION
_R: Final = Gravity.REMARK

RULES: Final[tuple[Rule[DutProfile], ...]] = (
    Rule("xon-above-xoff", _C, "A paused sender would never be let go on.", _xon),
    Rule("kmin-above-kmax", _C, "Marking would begin after it is complete.", _thresholds),
    Rule("never-marks", _C, "ECN is on, but no length of the queue makes it mark.", _never_marks),
    Rule("pause-before-mark", _R, "PFC acts before congestion control learns anything.", _pause_before_mark),
    Rule("headroom-too-small", _C, "A lossless group drops what arrives after xoff.", _headroom),
    Rule(
        "headroom-shared", _R, "Headroom is promised to more ports than there is memory for.", _headroom_pool
    ),
    Rule("pool-beyond-buffer", _C, "A pool is larger than the buffer that it is a part of.", _pools),
    Rule("ports-beyond-speed", _C, "Breakouts or speeds that the ports cannot have.", _ports),
    Rule("balancing-not-offered", _C, "A way of balancing is in use that the device lacks.", _balancing),
    Rule("watchdog-within-pause", _C, "The PFC watchdog takes one rightful pause for a storm.", _watchdog),
    Rule("trimmed-too-far", _C, "What is left of a packet does not name it.", _trimming),
    Rule("measured-otherwise", _C, "The device does other than it is configured to.", _measured_otherwise),
    Rule("other-than-declared", _R, "The datasheet says otherwise.", _other_than_declared),
)
