"""One switch of a topology file: its keys, on top of a preset or of a device's profile. Parsing only.

This module decides the keys of a switch and their ranges. Defaults come from `contract.model.switch_presets`, for the
ports that the switch has, or from a device model; `topology_file` decides the ports.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Final, Protocol

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.units import (
    NS_PER_S,
    QuantityError,
    format_bytes,
    format_duration,
    parse_bytes,
    parse_duration_ns,
    parse_factor,
    parse_share_per_million,
)
from etloop.contract.base.value_form import ValueForm, formed
from etloop.contract.base.value_parsers import bounded, integer, one_of, words, yes_or_no
from etloop.contract.base.yaml_reader import Section
from etloop.contract.model.switch_presets import lossless_group, marking, preset, shared_bytes
from etloop.contract.model.topology import (
    DSCPS,
    FOREVER_NS,
    PRIORITIES,
    Marking,
    PriorityGroup,
    SettingsOrigin,
    SwitchFault,
    SwitchPort,
    SwitchQueue,
    SwitchSettings,
    Trimming,
    Watchdog,
    WatchdogAction,
)
from etloop.traffic.topology.ways_file import read_ways

MOST_ALPHA_LOG2: Final = 8
MOST_BUFFER_BYTES: Final = 1 << 40
LARGEST_TRIMMED_BYTES: Final = 9216
_PRESETS: Final = {"lossless": True, "lossy": False}
_ACTIONS: Final = {action.name.lower(): action for action in WatchdogAction}
_MOMENTS: Final = {"dequeue": True, "enqueue": False}
_NOT_OF_THE_DEVICE: Final = frozenset({"name", "device", "seed", "faults"})
"""Keys that a profile does not set."""
_size = bounded(parse_bytes, 0, MOST_BUFFER_BYTES, format_bytes)
_time = bounded(parse_duration_ns, 0, 3600 * NS_PER_S, format_duration)
_priority = integer(0, PRIORITIES - 1)
_dscp = integer(0, DSCPS - 1)


class DeviceModel(Protocol):
    """A device as settings of the switch model, for any set of ports."""

    @property
    def origin(self) -> SettingsOrigin:
        """Return the profile of the device, and which of its values are modelled."""

    def settings(self, name: str, ports: tuple[SwitchPort, ...]) -> SwitchSettings:
        """Return the settings of a switch with this name and these ports."""


def no_devices(name: str) -> DeviceModel:
    """Reject any device; used if no profiles are available. Raises `ConfigError`."""
    raise ConfigError(
        Problem(f'profile "{name[:64]}"', "is not known here", "write preset: lossless or lossy")
    )


@dataclass(slots=True)
class Devices:
    """Device models for a topology's switches."""

    find: Callable[[str], DeviceModel] = no_devices
    """Returns the model of a profile by name or path. Raises `ConfigError`."""
    everywhere: DeviceModel | None = None
    """Model of every switch that names neither a device nor a preset."""
    _found: dict[str, DeviceModel] = field(default_factory=dict)

    def model(self, name: str) -> DeviceModel:
        """Return the model of a device, loaded once. Raises `ConfigError`."""
        if name not in self._found:
            self._found[name] = self.find(name)
        return self._found[name]


def read_device(section: Section, devices: Devices) -> DeviceModel | None:
    """Return the device that `section` names; None if it names none, or after a mistake."""
    if not section.has("device"):
        return None
    name = section.optional("device", words, "")
    try:
        return devices.model(name) if name else None
    except ConfigError as error:
        for problem in error.problems:
            section.mistake("device", f"{problem.where}: {problem.what}", problem.remedy)
        return None


def read_switch(
    section: Section,
    name: str,
    ports: tuple[SwitchPort, ...],
    seed: int,
    known_as: Mapping[str, int],
    devices: Devices,
) -> SwitchSettings:
    """Read the switch that `section` describes; keys left out are as in its preset or device.

    `seed` is the default seed. `known_as` maps the port names that faults may use to port numbers. Mistakes are added
    to the section's file.
    """
    settings = _base(section, name, ports, devices)
    maps = section.section("maps")
    pfc = section.section("pfc")
    settings = replace(
        read_ways(section, settings, known_as),
        dscp_to_class=_map(maps, "dscp_to_class", settings.dscp_to_class),
        class_to_queue=_map(maps, "class_to_queue", settings.class_to_queue),
        class_to_group=_map(maps, "class_to_group", settings.class_to_group),
        group_to_priority=_map(maps, "group_to_priority", settings.group_to_priority),
        priority_to_queue=_map(maps, "priority_to_queue", settings.priority_to_queue),
        groups=_groups(section.section("groups"), settings),
        queues=_queues(section.section("queues"), settings),
        pfc=pfc.optional("enabled", yes_or_no, settings.pfc),
        pause_quanta=pfc.optional("pause_quanta", integer(1, 65535), settings.pause_quanta),
        watchdog=_watchdog(pfc.section("watchdog")) if pfc.has("watchdog") else settings.watchdog,
        latency_ns=section.optional("latency", _time, settings.latency_ns),
        trimming=_trimming(section.section("trimming")) if section.has("trimming") else settings.trimming,
        headroom_pool_bytes=section.optional("headroom_pool", _size, settings.headroom_pool_bytes),
        seed=section.optional("seed", integer(0, 2**63 - 1), seed),
        faults=_faults(section, known_as),
    )
    if pfc.has("enabled") and settings.pfc and not any(group.lossless for group in settings.groups):
        remedy = "write preset: lossless, or lossless: true for a group under groups"
        pfc.mistake("enabled", "no group is lossless, so no sender would ever be paused", remedy)
    if not settings.pfc and not pfc.has("enabled"):
        for key in ("watchdog", "pause_quanta"):
            if pfc.has(key):
                remedy = "remove it, or write preset: lossless, or enabled: false if that is intended"
                pfc.mistake(key, "a switch without pauses does not use it", remedy)
    if section.has("headroom_pool") and not any(group.lossless for group in settings.groups):
        section.mistake("headroom_pool", "only lossless groups have headroom", "remove it")
    usual_bytes = settings.buffer_bytes if settings.origin else settings.set_aside_bytes + shared_bytes(ports)
    buffer_bytes = section.optional("buffer", _size, usual_bytes)
    if buffer_bytes < settings.set_aside_bytes:
        problem = (
            f"{format_bytes(buffer_bytes)} is less than the {format_bytes(settings.set_aside_bytes)} that the reserves and "
            f"headroom of all {len(ports)} ports set aside"
        )
        section.mistake("buffer", problem, "write more, or smaller reserves and headroom under groups")
    for part in (maps, pfc, section):
        part.close()
    return replace(settings, buffer_bytes=buffer_bytes)


def _base(section: Section, name: str, ports: tuple[SwitchPort, ...], devices: Devices) -> SwitchSettings:
    """Return the settings of the switch's preset or device, before the keys of the file are applied."""
    lossless = section.optional("preset", one_of(_PRESETS), True)
    device = read_device(section, devices)
    if section.has("device") and section.has("preset"):
        section.mistake("device", "device and preset exclude each other", "remove one of the two")
    if device is None and not section.has("device") and not section.has("preset"):
        device = devices.everywhere
    if device is None:
        return preset(name, ports, lossless=lossless)
    overridden = tuple(key for key in section.entry_names() if key not in _NOT_OF_THE_DEVICE)
    return replace(device.settings(name, ports), origin=replace(device.origin, overridden=overridden))


def _map(maps: Section, key: str, default: tuple[int, ...]) -> tuple[int, ...]:
    """Return a map with the rows that the file sets; other rows keep their default."""
    rows = maps.section(key)
    values = tuple(rows.optional(str(row), _priority, value) for row, value in enumerate(default))
    rows.close()
    return values


def _groups(section: Section, settings: SwitchSettings) -> tuple[PriorityGroup, ...]:
    """Read the priority groups. Closes `section`."""
    groups = []
    for number, default in enumerate(settings.groups):
        group_section = section.section(str(number))
        lossless = group_section.optional("lossless", yes_or_no, default.lossless)
        if lossless and not default.lossless:
            default = lossless_group(settings.ports)  # noqa: PLW2901 - its defaults are those of its kind
        groups.append(
            PriorityGroup(
                lossless=lossless,
                reserved_bytes=group_section.optional("reserved", _size, default.reserved_bytes),
                alpha_log2=group_section.optional("alpha", _alpha_log2, default.alpha_log2),
                headroom_bytes=group_section.optional(
                    "headroom", _size, default.headroom_bytes if lossless else 0
                ),
                resume_offset_bytes=group_section.optional(
                    "resume_offset", _size, default.resume_offset_bytes if lossless else 0
                ),
            )
        )
        if not lossless:
            for key in ("headroom", "resume_offset"):
                if group_section.has(key):
                    group_section.mistake(
                        key, "only a lossless group pauses its senders", "remove it, or write lossless: true"
                    )
        group_section.close()
    section.close()
    return tuple(groups)


def _queues(section: Section, settings: SwitchSettings) -> tuple[SwitchQueue, ...]:
    """Read the queues. Closes `section`."""
    queues = []
    for number, default in enumerate(settings.queues):
        queue_section = section.section(str(number))
        strict = queue_section.optional("strict", yes_or_no, default.strict)
        queues.append(
            SwitchQueue(
                strict=strict,
                weight=queue_section.optional("weight", integer(1, 1_000_000), default.weight),
                alpha_log2=queue_section.optional("alpha", _alpha_log2, default.alpha_log2),
                reserved_bytes=queue_section.optional("reserved", _size, default.reserved_bytes),
                marking=_marking(queue_section, default.marking, settings.ports),
                trims=queue_section.optional("trim", yes_or_no, default.trims),
            )
        )
        if strict and queue_section.has("weight"):
            queue_section.mistake("weight", "a strict queue has no weight", "remove one of the two")
        queue_section.close()
    section.close()
    return tuple(queues)


def _marking(queue: Section, default: Marking | None, ports: tuple[SwitchPort, ...]) -> Marking | None:
    """Read the ECN marking of a queue; None if it is disabled."""
    if not queue.has("ecn"):
        return default
    ecn = queue.section("ecn")
    usual = default or marking(ports)
    enabled = ecn.optional("enabled", yes_or_no, True)
    kmin_bytes = ecn.optional("kmin", _size, usual.kmin_bytes)
    read_marking = Marking(
        kmin_bytes=kmin_bytes,
        kmax_bytes=ecn.optional("kmax", _size, max(usual.kmax_bytes, kmin_bytes)),
        pmax_per_million=ecn.optional("pmax", parse_share_per_million, usual.pmax_per_million),
        at_dequeue=ecn.optional("at", one_of(_MOMENTS), usual.at_dequeue),
    )
    if read_marking.kmax_bytes < read_marking.kmin_bytes:
        problem = f"kmin {format_bytes(read_marking.kmin_bytes)} is above kmax {format_bytes(read_marking.kmax_bytes)}"
        ecn.mistake("kmin", problem, "write a kmax of at least kmin")
    ecn.close()
    return read_marking if enabled else None


def _watchdog(section: Section) -> Watchdog:
    """Read the PFC watchdog. Closes `section`."""
    duration = bounded(parse_duration_ns, 1, 3600 * NS_PER_S, format_duration)
    detect_ns = section.required(
        "detect", duration, 1, "write how long a queue may stay paused, such as 200ms"
    )
    watchdog = Watchdog(
        detect_ns=detect_ns,
        restore_ns=section.optional("restore", duration, detect_ns),
        action=section.optional("action", one_of(_ACTIONS), WatchdogAction.DROP),
    )
    section.close()
    return watchdog


def _trimming(section: Section) -> Trimming:
    """Read packet trimming. Closes `section`."""
    size = bounded(parse_bytes, 64, LARGEST_TRIMMED_BYTES, format_bytes)
    trimming = Trimming(
        frame_bytes=section.required("size", size, 64, "write what is left of a frame, such as 128B"),
        dscp=section.required("dscp", _dscp, 0, "write the DSCP of trimmed packets, such as 48"),
        last_hop_dscp=section.optional("last_hop_dscp", _dscp, None),
        queue=section.optional("queue", _priority, None),
        exempt_dscps=section.texts("exempt", _dscp, 0),
    )
    for dscp in {trimming.dscp, trimming.last_hop_dscp} & set(trimming.exempt_dscps):
        problem = f"DSCP {dscp} marks trimmed packets, which are not trimmed again"
        section.mistake("exempt", problem, "remove it from the list")
    section.close()
    return trimming


def _faults(section: Section, known_as: Mapping[str, int]) -> tuple[SwitchFault, ...]:
    """Read the faults of a switch."""
    if not section.has("faults"):
        return ()
    return tuple(
        _fault(fault_section, known_as)
        for fault_section in section.sections(
            "faults", "list what is lost, such as {drop: 0.1%}, or remove the key"
        )
    )


def _fault(section: Section, known_as: Mapping[str, int]) -> SwitchFault:
    """Read one fault. Closes `section`."""
    fault = SwitchFault(
        in_port=_port_named(section, "in", known_as),
        out_port=_port_named(section, "out", known_as),
        per_million=section.optional("chance", parse_share_per_million, 0),
        every=section.optional("every", integer(1, 2**32 - 1), 0),
        from_ns=section.optional("from", _time, 0),
        until_ns=section.optional("until", _time, FOREVER_NS),
        corrupt=section.optional("corrupt", yes_or_no, False),
    )
    if not section.has("chance") and not section.has("every"):
        section.mistake("chance", "matches no packet", "write chance: 0.1%, or every: 1000")
    if fault.until_ns <= fault.from_ns:
        section.mistake("until", "it ends before it begins", "write an until after from")
    section.close()
    return fault


def _port_named(section: Section, key: str, known_as: Mapping[str, int]) -> int:
    """Return the number of the port named under `key`; -1 if the key is missing or names no port."""
    if not section.has(key):
        return -1
    port_name = section.optional(key, words, "")
    if port_name not in known_as:
        remedy = f"write one of {', '.join(list(known_as)[:16])}"
        section.mistake(key, f'the switch has no port "{port_name[:64]}"', remedy)
    return known_as.get(port_name, -1)


@formed(
    ValueForm(
        "power of two",
        {"type": ["string", "number"], "exclusiveMinimum": 0},
        "1/256 to 256",
        lambda power: str(Fraction(2) ** power),
    )
)
def _alpha_log2(text: str) -> int:
    """Parse a power of two; return its exponent. Raises `QuantityError`."""
    factor = parse_factor(text)
    for power in range(-MOST_ALPHA_LOG2, MOST_ALPHA_LOG2 + 1):
        if factor == Fraction(2) ** power:
            return power
    raise QuantityError(
        f'"{text[:64]}" is not a power of two from 1/256 to 256', "write one, such as 1/8, 1 or 2"
    )
