"""Examines a profile on its own. Has the rules for ports, balancing, trimming, counters, and measurements that differ.

Decides which values of one device contradict each other. `buffers` examines its memory, `maps` the path of a packet, `nic` the
values that only NICs have, `job` a profile with a job.
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
from etloop.dut_profiles.rules.ports import check_ports

QUANTUM_BITS: Final = 512
LONGEST_PAUSE_QUANTA: Final = 65_535
LEAST_TRIMMED_BYTES: Final = 54
"""Ethernet 14, IPv4 20, UDP 8 and BTH 12: without them the lost packet cannot be identified."""
ETHERNET_BYTES: Final = 18
"""Header and FCS."""
NAMES_BY: Final = {
    CounterReader.SOFT_SWITCH: (CounterPaths.CANONICAL,),
    CounterReader.LINUX: (CounterPaths.ETHTOOL, CounterPaths.MLX5, CounterPaths.BNXT),
    CounterReader.SNMP: (CounterPaths.IF_MIB, CounterPaths.PFC_MIB),
    CounterReader.GNMI: (CounterPaths.OPENCONFIG, CounterPaths.SONIC),
}
"""Reader -> naming schemes under which it finds counters."""
OBJECTS_OF: Final = {
    CounterPaths.OPENCONFIG: (CounterObject.PORT, CounterObject.QUEUE),
    CounterPaths.IF_MIB: (CounterObject.PORT,),
    CounterPaths.PFC_MIB: (CounterObject.PORT, CounterObject.PRIORITY),
}
"""Naming scheme -> kinds of objects for which it has counters; all others may have any (OpenConfig has no PFC by priority)."""

_OF_PORTS: Final = frozenset(
    {
        *("xon-above-xoff", "xoff-out-of-reach", "kmin-above-kmax", "never-marks", "marks-incomplete"),
        *("pause-before-mark", "headroom-beyond-buffer", "class-without-way"),
        *("lossless-without-pfc", "pfc-without-headroom", "pause-stops-another", "lossless-shares-queue"),
        *("lossless-unreached", "way-not-described", "weight-of-strict"),
    }
)
"""Rules that also examine ports with settings of their own, one by one; the others examine the device as a whole."""


def check_profile(profile: DutProfile) -> ProfileVerdict:
    """Return the contradictions within a profile, the remarks, and the rules that could not be applied."""
    verdict = apply(RULES, profile)
    of_ports = [rule for rule in RULES if rule.name in _OF_PORTS]
    return verdict + check_ports(of_ports, profile, lambda ports: ports, verdict)


def _ports(profile: DutProfile) -> Iterator[Problem | NotStated]:
    for ports in profile.ports:
        path, speeds, speed_bps = f"ports[{ports.name}]", ports.speeds_bps.value, ports.speed_bps.value
        most_bps = max(speeds) if speeds else speed_bps
        for split in ports.breakouts.value or ():
            if most_bps is not None and split.count * split.speed_bps > most_bps:
                problem = f"breakout {split.count}x{format_rate(split.speed_bps)} is more than a port of {format_rate(most_bps)}"
                yield Problem(
                    where(ports.breakouts, path), problem, "correct the breakout or the port's speeds"
                )
            if ports.lanes.value is not None and split.count > ports.lanes.value:
                problem = f"breakout {split.count}x{format_rate(split.speed_bps)} of a port with {ports.lanes.value} lanes"
                yield Problem(
                    where(ports.breakouts, path),
                    problem,
                    "each part needs a lane or more: correct one of them",
                )
        offered_bps = (*(speeds or ()), *(split.speed_bps for split in ports.breakouts.value or ()))
        if speed_bps is not None and speeds and speed_bps not in offered_bps:
            problem = f"ports run at {format_rate(speed_bps)}, speeds lists {', '.join(map(format_rate, offered_bps))}"
            yield Problem(where(ports.speed_bps, path), problem, "correct the speed, or list it among speeds")


def _check_capacity(profile: DutProfile) -> Iterator[Problem | NotStated]:
    capacity = profile.identity.capacity_bps
    if capacity.value is None or not profile.ports:
        return
    counts_and_speeds = [(ports.count.value, ports.speed_bps.value) for ports in profile.ports]
    together_bps = sum((count or 0) * (speed_bps or 0) for count, speed_bps in counts_and_speeds)
    for ports, (count, speed_bps) in zip(profile.ports, counts_and_speeds, strict=True):
        yield from () if count is not None else [NotStated(f"ports[{ports.name}].count")]
        yield from () if speed_bps is not None else [NotStated(f"ports[{ports.name}].speed")]
    if together_bps > capacity.value:
        problem = (
            f"all ports together are {format_rate(together_bps)}, the device {format_rate(capacity.value)}"
        )
        remedy = (
            "it cannot carry all of them at full speed: correct the ports, or accept the oversubscription"
        )
        yield Problem(where(capacity, "identity.capacity"), problem, remedy)


def _check_balancing(profile: DutProfile) -> Iterator[Problem | NotStated]:
    balancing = profile.balancing
    mode, modes = balancing.mode.value, balancing.modes.value
    if mode is not None and modes is not None and mode not in modes:
        problem = f"{mode} is in use, the device offers {', '.join(modes) or 'none'}"
        yield Problem(
            where(balancing.mode, "balancing.mode"), problem, "correct mode, or list it among modes"
        )


def _check_watchdog(profile: DutProfile) -> Iterator[Problem | NotStated]:
    for ports in profile.ports:
        detect = profile.of_ports(ports).pfc.watchdog_detect_ns
        if not detect.value:
            continue
        if ports.speed_bps.value is None:
            yield NotStated(f"ports[{ports.name}].speed")
            continue
        longest_ns = LONGEST_PAUSE_QUANTA * QUANTUM_BITS * 1_000_000_000 // ports.speed_bps.value
        if detect.value <= longest_ns:
            problem = (
                f"the watchdog acts after {format_duration(detect.value)}, a single pause at "
                f"{format_rate(ports.speed_bps.value)} may last {format_duration(longest_ns)}"
            )
            remedy = "it would take one regular pause for a storm and drop: raise watchdog_detect"
            yield Problem(where(detect, "pfc.watchdog_detect"), problem, remedy)


def _check_trimmed_size(profile: DutProfile) -> Iterator[Problem | NotStated]:
    trimmed_size = profile.trimming.size_bytes
    if (
        profile.trimming.enabled.value
        and trimmed_size.value is not None
        and trimmed_size.value < LEAST_TRIMMED_BYTES
    ):
        problem = f"packets are trimmed to {format_bytes(trimmed_size.value)}, Ethernet to BTH take {LEAST_TRIMMED_BYTES}B"
        yield Problem(
            where(trimmed_size, "trimming.size"),
            problem,
            "the receiver could not identify the lost packet: raise it",
        )


def _check_trimming_effect(profile: DutProfile) -> Iterator[Problem | NotStated]:
    trimmed_size = profile.trimming.size_bytes
    if not profile.trimming.enabled.value or trimmed_size.value is None:
        return
    for ports in profile.ports:
        mtu_bytes = ports.ip_mtu_bytes.value
        if mtu_bytes is not None and trimmed_size.value >= mtu_bytes + ETHERNET_BYTES:
            problem = (
                f"packets are trimmed to {format_bytes(trimmed_size.value)}, "
                f"the largest of ports {ports.name} are {format_bytes(mtu_bytes + ETHERNET_BYTES)}"
            )
            yield Problem(where(trimmed_size, "trimming.size"), problem, "they are dropped: lower the size")


def _counters(profile: DutProfile) -> Iterator[Problem | NotStated]:
    for access in profile.counters.access:
        if access.paths not in NAMES_BY[access.reader]:
            names = " or ".join(NAMES_BY[access.reader])
            problem = f"{access.reader} reads no counters under the names of {access.paths}"
            yield Problem(access.where, problem, f"write paths: {names}")
            continue
        uncounted = [
            counted_object
            for counted_object in access.objects
            if counted_object not in OBJECTS_OF.get(access.paths, CounterObject)
        ]
        if uncounted:
            problem = f"{access.paths} has no counters of a {', '.join(uncounted)}"
            remedy = f"it has those of a {', '.join(OBJECTS_OF[access.paths])}: list these"
            yield Problem(access.where, problem, remedy)


def _compare_measured(profile: DutProfile) -> Iterator[Problem | NotStated]:
    for path, stated in stated_values(profile):
        measured, configured = stated.measured, stated.configured
        if measured is not None and configured is not None and disagree(measured.value, configured.value):
            problem = (
                f"{path} is {value_text(path, configured.value)} by configuration "
                f"and {value_text(path, measured.value)} by measurement ({measured.source.title})"
            )
            remedy = (
                "the device does not follow its configuration, or the measurement is wrong: find out which"
            )
            yield Problem(measured.where or path, problem, remedy)


def _compare_declared(profile: DutProfile) -> Iterator[Problem | NotStated]:
    for path, stated in stated_values(profile):
        declared, best = stated.declared, stated.best
        basis = stated.basis
        if declared is None or best is None or basis is Basis.DECLARED:
            continue
        if not disagree(declared.value, best.value):
            continue
        problem = f"{path} is {value_text(path, best.value)} as {basis}, {value_text(path, declared.value)} as declared"
        yield Problem(best.where or path, problem, f"the {basis} value is used")


_C: Final = Severity.ERROR
_R: Final = Severity.WARNING

RULES: Final[tuple[Rule[DutProfile], ...]] = (
    *BUFFER_RULES,
    Rule("ports-beyond-speed", _C, "The ports do not support the breakout or speed.", _ports),
    Rule("ports-beyond-capacity", _R, "All ports together are faster than the device.", _check_capacity),
    Rule(
        "balancing-not-offered", _C, "The balancing mode in use is not one of the device.", _check_balancing
    ),
    Rule(
        "watchdog-within-pause", _C, "The PFC watchdog takes one regular pause for a storm.", _check_watchdog
    ),
    Rule(
        "trimmed-too-far", _C, "A trimmed packet is too short to identify the lost one.", _check_trimmed_size
    ),
    Rule(
        "never-trims",
        _C,
        "Trimming is on, but no packet is larger than the trimmed size.",
        _check_trimming_effect,
    ),
    Rule("counters-not-there", _C, "The counter source does not have these counters.", _counters),
    Rule("measured-otherwise", _C, "Measurement and configuration of the device differ.", _compare_measured),
    Rule("other-than-declared", _R, "The datasheet declares another value.", _compare_declared),
    *MAP_RULES,
    *NIC_RULES,
)
