"""One switch of a topology file: its keys, on top of a preset or of a device's profile. Pure.

This module decides what follows from the keys of a switch (`switch_keys`) for the ports that it has. Defaults come from
`contract.model.switch_presets`, or from a device model; `topology_file` decides the ports.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Protocol

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.settings_reader import blame
from etloop.contract.base.units import format_bytes
from etloop.contract.base.yaml_reader import Section
from etloop.contract.model.switch_presets import lossless_group, marking, preset, shared_bytes
from etloop.contract.model.topology import (
    LoadBalancing,
    Marking,
    PortRules,
    PriorityGroup,
    SettingsOrigin,
    SwitchFault,
    SwitchPort,
    SwitchQueue,
    SwitchSettings,
    Trimming,
    Watchdog,
)
from etloop.traffic.topology.switch_keys import (
    MOST_WEIGHT,
    UDP_PORT_BITS,
    GroupKeys,
    MapKeys,
    QueueKeys,
    SwitchKeys,
    set_fields,
)

_SCALARS: Final = ("balancing", "hash_fields", "flowlet_gap_ns", "latency_ns", "headroom_pool_bytes")
"""Fields of `SwitchSettings` that a key sets as it is."""
_NOT_OF_THE_DEVICE: Final = frozenset({"name", "device", "seed", "faults"})
"""Keys that a profile does not set."""


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

    def model(self, name: str, place: Section) -> DeviceModel | None:
        """Return the model of a device, loaded once; None for "", or after a mistake about the key `device` of `place`."""
        try:
            if name and name not in self._found:
                self._found[name] = self.find(name)
        except ConfigError as error:
            for problem in error.problems:
                place.mistake("device", f"{problem.where}: {problem.what}", problem.remedy)
        return self._found.get(name)


def switch_of(
    keys: SwitchKeys,
    place: Section,
    name: str,
    ports: tuple[SwitchPort, ...],
    seed: int,
    known_as: Mapping[str, int],
    devices: Devices,
) -> SwitchSettings:
    """Return the switch of these keys; those left out are as in its preset or device.

    `place` is the section of the keys, for mistakes. `seed` is the default seed. `known_as` maps the port names that the keys
    may use to port numbers.
    """
    base = _base(keys, place, name, ports, devices)
    pfc = base.pfc if keys.pfc.enabled is None else keys.pfc.enabled
    settings = replace(
        base,
        **set_fields(keys, *_SCALARS),  # type: ignore[arg-type]
        **_maps(base, keys.maps),
        entropy_shift=base.entropy_shift if keys.entropy.shift is None else keys.entropy.shift,
        entropy_bits=base.entropy_bits if keys.entropy.bits is None else keys.entropy.bits,
        ports=_ports(keys, place, ports, known_as),
        groups=tuple(
            _group(keys.priority_groups.get(str(number), GroupKeys()), place, number, group, ports)
            for number, group in enumerate(base.groups)
        ),
        queues=tuple(
            _queue(keys.queues.get(str(number), QueueKeys()), place, number, queue, ports)
            for number, queue in enumerate(base.queues)
        ),
        pfc=pfc,
        pause_quanta=keys.pfc.pause_quanta or base.pause_quanta,
        watchdog=Watchdog(**set_fields(keys.pfc.watchdog)) if keys.pfc.watchdog else base.watchdog,  # type: ignore[arg-type]
        trimming=Trimming(**set_fields(keys.trimming)) if keys.trimming else base.trimming,  # type: ignore[arg-type]
        seed=seed if keys.seed is None else keys.seed,
        faults=tuple(_fault(keys, place, index, known_as) for index in range(len(keys.faults))),
    )
    settings, alike = _with_port_rules(settings, keys, place, known_as), settings
    for problem in _broken_rules(keys, place, settings):
        blame(place, problem)
    usual_bytes = settings.set_aside_bytes + shared_bytes(ports)
    if base.origin:
        # Reserves and headroom of single ports do not change the shared part.
        usual_bytes = base.buffer_bytes + settings.set_aside_bytes - alike.set_aside_bytes
    buffer_bytes = usual_bytes if keys.buffer_bytes is None else keys.buffer_bytes
    if buffer_bytes < settings.set_aside_bytes:
        problem_text = (
            f"{format_bytes(buffer_bytes)} is less than the {format_bytes(settings.set_aside_bytes)} that the reserves and "
            f"headroom of all {len(ports)} ports need"
        )
        place.mistake("buffer", problem_text, "write more, or smaller reserves and headroom under groups")
    return replace(settings, buffer_bytes=buffer_bytes)


def _base(
    keys: SwitchKeys, place: Section, name: str, ports: tuple[SwitchPort, ...], devices: Devices
) -> SwitchSettings:
    """Return the settings of the switch's preset or device, before the keys of the file are applied."""
    device = devices.model(keys.device, place)
    if device is None and not keys.device and keys.preset is None:
        device = devices.everywhere
    if device is None:
        return preset(name, ports, lossless=keys.preset is not False)
    overridden = tuple(key for key in place.entry_names() if key not in _NOT_OF_THE_DEVICE)
    return replace(device.settings(name, ports), origin=replace(device.origin, overridden=overridden))


def _maps(base: SwitchSettings, keys: MapKeys) -> dict[str, Any]:
    """Return the maps of `base` with the rows that the file sets."""
    return {
        name: tuple(getattr(keys, name).get(str(row), value) for row, value in enumerate(getattr(base, name)))
        for name in (key.name for key in fields(MapKeys))
    }


def _ports(
    keys: SwitchKeys, place: Section, ports: tuple[SwitchPort, ...], known_as: Mapping[str, int]
) -> tuple[SwitchPort, ...]:
    """Return the ports with the settings of each: its weight (equal, in proportion to its rate, or as listed), and
    whether it honours pauses."""
    weights = _by_rate(ports) if keys.weights_by_rate else [port.weight for port in ports]
    for name, weight in keys.port_weights.items():
        if (number := _port_named(place, f"port_weights.{name}", name, known_as)) >= 0:
            weights[number] = weight
    deaf = {
        _port_named(place, f"pfc.ignored_at[{index}]", name, known_as)
        for index, name in enumerate(keys.pfc.ignored_at)
    }
    return tuple(
        replace(port, weight=weight, honours_pause=number not in deaf)
        for number, (port, weight) in enumerate(zip(ports, weights, strict=True))
    )


def _with_port_rules(
    settings: SwitchSettings, keys: SwitchKeys, place: Section, known_as: Mapping[str, int]
) -> SwitchSettings:
    """Return the settings with the rules of ports that differ. A group or marking that an entry turns on has the defaults for
    the links of its ports."""
    ports, rules = list(settings.ports), list(settings.port_rules)
    owner: dict[int, int] = {}
    for index, entry in enumerate(keys.port_settings):
        where = f"port_settings[{index}]"
        numbers = {
            _port_named(place, f"{where}.ports[{position}]", name, known_as)
            for position, name in enumerate(entry.ports)
        } - {-1}
        for number in sorted(numbers & owner.keys()):
            problem = f"port {settings.ports[number].name} is in port_settings[{owner[number]}] too"
            blame(place, Problem(f"{where}.ports", problem, "list each port once"))
        owner |= dict.fromkeys(numbers, index)
        some_ports = tuple(settings.ports[number] for number in sorted(numbers)) or settings.ports
        rules.append(
            PortRules(
                groups=tuple(
                    _group(
                        entry.priority_groups.get(str(number), GroupKeys()),
                        place,
                        number,
                        base,
                        some_ports,
                        where,
                    )
                    for number, base in enumerate(settings.groups)
                ),
                queues=tuple(
                    _queue(entry.queues.get(str(number), QueueKeys()), place, number, base, some_ports, where)
                    for number, base in enumerate(settings.queues)
                ),
                pfc=settings.pfc if entry.pfc is None else entry.pfc,
            )
        )
        for number in numbers:
            ports[number] = replace(ports[number], rules=len(rules))
    return replace(settings, ports=tuple(ports), port_rules=tuple(rules))


def _by_rate(ports: tuple[SwitchPort, ...]) -> list[int]:
    """Return rates as weights from 1 to `MOST_WEIGHT`, rounded; exact if all are multiples of the slowest rate."""
    slowest_bps = min(port.rate_bps for port in ports)
    fastest_bps = max(port.rate_bps for port in ports)
    unit_bps = max(slowest_bps, -(-fastest_bps // MOST_WEIGHT))
    if any(port.rate_bps % slowest_bps for port in ports):
        unit_bps = -(-fastest_bps // MOST_WEIGHT)
    return [min(max(round(port.rate_bps / unit_bps), 1), MOST_WEIGHT) for port in ports]


def _group(
    keys: GroupKeys,
    place: Section,
    number: int,
    base: PriorityGroup,
    ports: tuple[SwitchPort, ...],
    where: str = "",
) -> PriorityGroup:
    """Return a priority group. One that the file makes lossless or lossy has the defaults of its kind. `where`: path of the
    keys within `place`, "" for the switch itself."""
    if keys.lossless and not base.lossless:
        base = lossless_group(ports)
    settings = replace(base, **set_fields(keys))  # type: ignore[arg-type]
    if settings.lossless:
        return settings
    for key, value in (("headroom", keys.headroom_bytes), ("resume_offset", keys.resume_offset_bytes)):
        if value is not None:
            remedy = "remove it, or write lossless: true"
            problem = "only a lossless group pauses its senders"
            blame(place, Problem(_path(where, f"groups.{number}.{key}"), problem, remedy))
    return replace(
        settings, headroom_bytes=keys.headroom_bytes or 0, resume_offset_bytes=keys.resume_offset_bytes or 0
    )


def _path(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key


def _queue(
    keys: QueueKeys,
    place: Section,
    number: int,
    base: SwitchQueue,
    ports: tuple[SwitchPort, ...],
    where: str = "",
) -> SwitchQueue:
    scalars = set_fields(keys, "strict", "weight", "alpha_log2", "reserved_bytes", "trims")
    queue_marking = _marking(keys, place, _path(where, f"queues.{number}"), base.marking, ports)
    queue = replace(base, **scalars, marking=queue_marking)  # type: ignore[arg-type]
    if queue.strict and keys.weight is not None:
        problem = Problem(
            _path(where, f"queues.{number}.weight"), "a strict queue has no weight", "remove one of the two"
        )
        blame(place, problem)
    return queue


def _marking(
    keys: QueueKeys, place: Section, where: str, base: Marking | None, ports: tuple[SwitchPort, ...]
) -> Marking | None:
    """Return the ECN marking of the queue at `where`; None if it is disabled."""
    if keys.ecn is None:
        return base
    usual = base or marking(ports)
    kmin_bytes = usual.kmin_bytes if keys.ecn.kmin_bytes is None else keys.ecn.kmin_bytes
    usual = replace(usual, kmax_bytes=max(usual.kmax_bytes, kmin_bytes))
    names = ("kmin_bytes", "kmax_bytes", "pmax_per_million", "at_dequeue")
    settings = replace(usual, **set_fields(keys.ecn, *names))  # type: ignore[arg-type]
    if settings.kmax_bytes < settings.kmin_bytes:
        problem = (
            f"kmin {format_bytes(settings.kmin_bytes)} is above kmax {format_bytes(settings.kmax_bytes)}"
        )
        blame(place, Problem(f"{where}.ecn.kmin", problem, "write a kmax of at least kmin"))
    return settings if keys.ecn.enabled else None


def _fault(keys: SwitchKeys, place: Section, index: int, known_as: Mapping[str, int]) -> SwitchFault:
    fault = keys.faults[index]
    return SwitchFault(
        in_port=_port_named(place, f"faults[{index}].in", fault.in_port, known_as),
        out_port=_port_named(place, f"faults[{index}].out", fault.out_port, known_as),
        per_million=fault.per_million or (1_000_000 if fault.longer_than_bytes and not fault.every else 0),
        every=fault.every,
        from_ns=fault.from_ns,
        until_ns=fault.until_ns,
        longer_than_bytes=fault.longer_than_bytes,
        corrupt=fault.corrupt,
    )


def _port_named(place: Section, where: str, name: str, known_as: Mapping[str, int]) -> int:
    """Return the number of a port; -1 for "", or if the switch has no port of this name."""
    if name and name not in known_as:
        remedy = f"write one of {', '.join(list(known_as)[:16])}"
        blame(place, Problem(where, f'the switch has no port "{name[:64]}"', remedy))
    return known_as.get(name, -1)


def _broken_rules(keys: SwitchKeys, place: Section, settings: SwitchSettings) -> list[Problem]:
    """Return keys that have no effect with the other settings of the switch."""
    problems = []
    written = place.keys()
    has_lossless = any(group.lossless for rules in settings.all_rules for group in rules.groups)
    if keys.pfc.enabled and not has_lossless:
        remedy = "write preset: lossless, or lossless: true for a group under groups"
        problems.append(Problem("pfc.enabled", "no group is lossless, so no sender is ever paused", remedy))
    if not any(rules.pfc for rules in settings.all_rules) and keys.pfc.enabled is None:
        for key, value in (("watchdog", keys.pfc.watchdog), ("pause_quanta", keys.pfc.pause_quanta)):
            if value is not None:
                remedy = "remove it, or write preset: lossless, or enabled: false if pauses are not wanted"
                problems.append(Problem(f"pfc.{key}", "a switch without pauses has no use for it", remedy))
    if "headroom_pool" in written and not has_lossless:
        problems.append(Problem("headroom_pool", "only lossless groups have headroom", "remove it"))
    if (end := settings.entropy_shift + settings.entropy_bits) > UDP_PORT_BITS:
        problem = f"bits {settings.entropy_shift} to {end - 1} of a UDP port of {UDP_PORT_BITS} bits"
        remedy = f"keep shift and bits together within {UDP_PORT_BITS}"
        problems.append(Problem("entropy.bits", problem, remedy))
    balancing = settings.balancing
    hashes = balancing is LoadBalancing.ECMP or balancing.has_gap
    for key, is_used, problem, remedy in (
        ("flowlet_gap", balancing.has_gap, "only flowlets have a gap", "flowlet or adaptive_flowlet"),
        ("hash", hashes, "no field is hashed", "ecmp, flowlet or adaptive_flowlet"),
        ("entropy", balancing is LoadBalancing.STRUCTURED, "no bits select a path", "structured"),
    ):
        if key in written and not is_used:
            problems.append(Problem(key, problem, f"remove it, or write balancing: {remedy}"))
    return problems
