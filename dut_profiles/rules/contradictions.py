"""Examines a profile on its own. Rules for ports, balancing, trimming, counters, and what was measured otherwise.

Decides what cannot be true together in one device. Its memory is examined by `buffer_contradictions`, the way of a packet
by `map_contradictions`, what only NICs say by `nic_contradictions`, a profile against a job by `job_contradictions`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from etloop.contract.base.errors import Problem, Severity
from etloop.contract.base.units import format_bytes, format_duration, format_rate
from etloop.contract.model.counters import CounterObject
from etloop.dut_profiles.model.findings import NotStated, ProfileVerdict, Rule, apply, where
from etloop.dut_profiles.model.profile import CounterPaths, CounterReader, DutProfile
from etloop.dut_profiles.model.stated import Basis, disagree, stated_values
from etloop.dut_profiles.model.stated_text import value_text
from etloop.dut_profiles.rules.buffers import BUFFER_RULES
from etloop.dut_profiles.rules.maps import MAP_RULES
from etloop.dut_profiles.rules.nic import NIC_RULES

QUANTUM_BITS: Final = 512
LONGEST_PAUSE_QUANTA: Final = 65_535
LEAST_TRIMMED_BYTES: Final = 54
"""Ethernet 14, IPv4 20, UDP 8 and BTH 12: without them nobody can say what was lost."""
ETHERNET_BYTES: Final = 18
"""Header and FCS."""
NAMES_BY: Final = {
    CounterReader.SOFT_SWITCH: (CounterPaths.CANONICAL,),
    CounterReader.LINUX: (CounterPaths.ETHTOOL, CounterPaths.MLX5, CounterPaths.BNXT),
    CounterReader.SNMP: (CounterPaths.IF_MIB, CounterPaths.PFC_MIB),
    CounterReader.GNMI: (CounterPaths.OPENCONFIG, CounterPaths.SONIC),
}
"""Under whose names each reader finds counters."""
OBJECTS_OF: Final = {
    CounterPaths.OPENCONFIG: (CounterObject.PORT, CounterObject.QUEUE),
    CounterPaths.IF_MIB: (CounterObject.PORT,),
    CounterPaths.PFC_MIB: (CounterObject.PORT, CounterObject.PRIORITY),
}
"""Of what these names have counters at all; all others may have any (OpenConfig has no PFC by priority)."""


def check_profile(profile: DutProfile) -> ProfileVerdict:
    """What contradicts itself within a profile, what is remarkable, and what could not be examined."""
    return apply(RULES, profile)


def _ports(profile: DutProfile) -> Iterator[Problem | NotStated]:
    for ports in profile.ports:
        path, speeds, used = f"ports[{ports.name}]", ports.speeds_bps.value, ports.speed_bps.value
        most = max(speeds) if speeds else used
        for breakout in ports.breakouts.value or ():
            if most is not None and breakout.count * breakout.speed_bps > most:
                what = f"breakout {breakout.count}x{format_rate(breakout.speed_bps)} is more than a port of {format_rate(most)}"
                yield Problem(where(ports.breakouts, path), what, "correct the breakout or the port's speeds")
            if ports.lanes.value is not None and breakout.count > ports.lanes.value:
                what = f"breakout {breakout.count}x{format_rate(breakout.speed_bps)} of a port with {ports.lanes.value} lanes"
                yield Problem(
                    where(ports.breakouts, path), what, "a part has a lane at least: correct one of them"
                )
        offered = (*(speeds or ()), *(breakout.speed_bps for breakout in ports.breakouts.value or ()))
        if used is not None and speeds and used not in offered:
            what = (
                f"ports run at {format_rate(used)}, which is none of {', '.join(map(format_rate, offered))}"
            )
            yield Problem(where(ports.speed_bps, path), what, "correct the speed, or list it among speeds")


def _capacity(profile: DutProfile) -> Iterator[Problem | NotStated]:
    capacity = profile.identity.capacity_bps
    if capacity.value is None or not profile.ports:
        return
    known = [(ports.count.value, ports.speed_bps.value) for ports in profile.ports]
    together_bps = sum((count or 0) * (speed_bps or 0) for count, speed_bps in known)
    for ports, (count, speed_bps) in zip(profile.ports, known, strict=True):
        yield from () if count is not None else [NotStated(f"ports[{ports.name}].count")]
        yield from () if speed_bps is not None else [NotStated(f"ports[{ports.name}].speed")]
    if together_bps > capacity.value:
        what = f"all ports together are {format_rate(together_bps)}, the device {format_rate(capacity.value)}"
        remedy = (
            "it cannot carry all of them at full speed: correct the ports, or know that it is oversubscribed"
        )
        yield Problem(where(capacity, "identity.capacity"), what, remedy)


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


def _never_trims(profile: DutProfile) -> Iterator[Problem | NotStated]:
    size = profile.trimming.size_bytes
    if not profile.trimming.enabled.value or size.value is None:
        return
    for ports in profile.ports:
        largest = ports.ip_mtu_bytes.value
        if largest is not None and size.value >= largest + ETHERNET_BYTES:
            what = (
                f"packets are trimmed to {format_bytes(size.value)}, "
                f"the largest of ports {ports.name} are {format_bytes(largest + ETHERNET_BYTES)}"
            )
            yield Problem(where(size, "trimming.size"), what, "they are dropped: lower the size")


def _counters(profile: DutProfile) -> Iterator[Problem | NotStated]:
    for access in profile.counters.access:
        if access.paths not in NAMES_BY[access.reader]:
            names = " or ".join(NAMES_BY[access.reader])
            what = f"{access.reader} reads no counters under the names of {access.paths}"
            yield Problem(access.where, what, f"write paths: {names}")
            continue
        absent = [each for each in access.objects if each not in OBJECTS_OF.get(access.paths, CounterObject)]
        if absent:
            what = f"{access.paths} has no counters of a {', '.join(absent)}"
            remedy = f"it has those of a {', '.join(OBJECTS_OF[access.paths])}: list these"
            yield Problem(access.where, what, remedy)


def _measured_otherwise(profile: DutProfile) -> Iterator[Problem | NotStated]:
    for path, stated in stated_values(profile):
        measured, configured = stated.measured, stated.configured
        if measured is not None and configured is not None and disagree(measured.value, configured.value):
            what = (
                f"{path} is {value_text(path, configured.value)} by configuration "
                f"and {value_text(path, measured.value)} by measurement ({measured.source.title})"
            )
            remedy = "the device does not do what it is told, or the measurement is wrong: find out which"
            yield Problem(measured.where or path, what, remedy)


def _other_than_declared(profile: DutProfile) -> Iterator[Problem | NotStated]:
    for path, stated in stated_values(profile):
        declared, best = stated.declared, stated.best
        basis = stated.basis
        if declared is None or best is None or basis is Basis.DECLARED:
            continue
        if not disagree(declared.value, best.value):
            continue
        what = f"{path} is {value_text(path, best.value)} as {basis}, {value_text(path, declared.value)} as declared"
        yield Problem(best.where or path, what, f"the {basis} value is used")


_C: Final = Severity.ERROR
_R: Final = Severity.WARNING

RULES: Final[tuple[Rule[DutProfile], ...]] = (
    *BUFFER_RULES,
    Rule("ports-beyond-speed", _C, "Breakouts or speeds that the ports cannot have.", _ports),
    Rule("ports-beyond-capacity", _R, "All ports together are faster than the device.", _capacity),
    Rule("balancing-not-offered", _C, "A way of balancing is in use that the device lacks.", _balancing),
    Rule("watchdog-within-pause", _C, "The PFC watchdog takes one rightful pause for a storm.", _watchdog),
    Rule("trimmed-too-far", _C, "What is left of a packet does not name it.", _trimming),
    Rule("never-trims", _C, "Trimming is on, and no packet is larger than what it leaves.", _never_trims),
    Rule("counters-not-there", _C, "Counters are said to be where that source has none.", _counters),
    Rule("measured-otherwise", _C, "The device does other than it is configured to.", _measured_otherwise),
    Rule("other-than-declared", _R, "The datasheet says otherwise.", _other_than_declared),
    *MAP_RULES,
    *NIC_RULES,
)
