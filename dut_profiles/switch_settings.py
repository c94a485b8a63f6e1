"""Converts a switch's profile into settings of the switch model, for the twin and the soft switch.

Decides which values of a profile the model supports, and refuses the rest by name. Where a profile states no value, the model's
simplest behaviour is used and reported. The topology decides the ports; they share the buffer that the device shares.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Final, TypeVar

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.switch_presets import FLOWLET_GAP_NS, LATENCY_NS, PAUSE_QUANTA, SEED
from etloop.contract.model.topology import (
    FIVE_TUPLE,
    PRIORITIES,
    HashField,
    LoadBalancing,
    Marking,
    PriorityGroup,
    SettingsOrigin,
    SwitchPort,
    SwitchQueue,
    SwitchSettings,
    Trimming,
    Watchdog,
    WatchdogAction,
)
from etloop.dut_profiles.model.findings import where
from etloop.dut_profiles.model.profile import (
    BalancingMode,
    DutKind,
    DutProfile,
    ForwardingMode,
    MarkingPoint,
    Pool,
    Scheduler,
)
from etloop.dut_profiles.model.profile import PriorityGroup as StatedGroup
from etloop.dut_profiles.model.profile import Queue as StatedQueue
from etloop.dut_profiles.model.profile import WatchdogAction as StatedAction
from etloop.dut_profiles.model.stated import Stated, stated_values
from etloop.dut_profiles.model.stated_text import value_text
from etloop.dut_profiles.reading.catalogue import find_profile, is_path

T = TypeVar("T")

_BALANCING: Final = {
    BalancingMode.ECMP: LoadBalancing.ECMP,
    BalancingMode.SPRAY: LoadBalancing.SPRAY,
    BalancingMode.FLOWLET: LoadBalancing.FLOWLET,
    BalancingMode.ADAPTIVE: LoadBalancing.ADAPTIVE,
}
_INGRESS: Final = "ingress"
"""Prefix of the names of pools that account for arriving packets (SONiC's `ingress_lossless_pool`)."""
_LOSSLESS: Final = "lossless"
_OF_PORTS: Final = ("groups[", "queues[", "maps.", "pfc.")
"""Values that a profile states for some ports only; all ports of a modelled switch share those of the device."""


@dataclass(frozen=True, slots=True)
class ModelledSwitch:
    """The model of a profile's switch, for any set of its ports."""

    origin: SettingsOrigin
    _settings: SwitchSettings
    """Without name, ports and buffer size."""
    _memory: _Memory

    def settings(self, name: str, ports: tuple[SwitchPort, ...]) -> SwitchSettings:
        """Return the settings of a switch with these ports (at least one), and with the pools that the device has."""
        named_settings = replace(self._settings, name=name, ports=ports)
        shared_bytes = self._memory.shared_bytes(len(ports))
        return replace(named_settings, buffer_bytes=max(shared_bytes, 0) + named_settings.set_aside_bytes)


@dataclass(frozen=True, slots=True)
class _Memory:
    """The division of the buffer. A pool holds reserves and the shared part (SAI_BUFFER_POOL_ATTR_SHARED_SIZE)."""

    pool_bytes: int
    reserved_bytes: int
    """Per port."""
    own_headroom_bytes: int
    """Per port, where it is taken from the pool."""
    device_ports: int
    """Ports as the device is configured, without further breakouts; 0 if not stated."""

    def shared_bytes(self, ports: int) -> int:
        """Return the shared part: the pool less reserves and headroom, also those of device ports that the topology leaves
        unused."""
        return self.pool_bytes - max(ports, self.device_ports) * (
            self.reserved_bytes + self.own_headroom_bytes
        )


class _StatedValues:
    """Reads values of a profile for the model and records which are stated, missing, replaced by a default or left out."""

    def __init__(self, profile: DutProfile) -> None:
        self.profile = profile
        self.problems: list[Problem] = []
        self.stated: list[str] = []
        self.defaults: list[str] = []
        self.left_out: list[str] = []

    def require(self, path: str, stated: Stated[T], stand_in: T) -> T:
        """Return the stated value; if there is none, record a problem and return `stand_in`."""
        value = self._note_stated(path, stated)
        if value is None:
            self.problems.append(
                Problem(f"{self.profile.name}: {path}", "is not stated", "state it; the model needs it")
            )
            return stand_in
        return value

    def or_default(self, path: str, stated: Stated[T], otherwise: T) -> T:
        """Return the stated value; if there is none, record and return the default `otherwise`."""
        value = self._note_stated(path, stated)
        if value is None:
            self.defaults.append(f"{_yaml_key(path)}: {value_text(path, otherwise)}")
            return otherwise
        return value

    def optional(self, path: str, stated: Stated[T]) -> T | None:
        """Return the stated value, or None: the model works without it."""
        return self._note_stated(path, stated)

    def leave_out(self, path: str, stated: Stated[T]) -> None:
        """Record a stated value that the model does not support."""
        if stated.value is not None:
            self.left_out.append(f"{_yaml_key(path)}: {value_text(path, stated.value)}")

    def refuse(self, path: str, stated: Stated[T], problem: str, remedy: str) -> None:
        """Record a problem with a value that the model cannot represent."""
        self.problems.append(
            Problem(where(stated, f"{self.profile.name}: {_yaml_key(path)}"), problem, remedy)
        )

    def alpha_log2(self, path: str, stated: Stated[Fraction]) -> int:
        """Return log2 of alpha, 0 if it is not stated; record a problem if alpha is not a power of two."""
        alpha = self._note_stated(path, stated)
        if alpha is None:
            self.defaults.append(f"{path}: 1")
            return 0
        log2 = alpha.numerator.bit_length() - alpha.denominator.bit_length()
        power_of_two = alpha == (1 << log2 if log2 >= 0 else 1) and log2 >= 0
        if not power_of_two and not (log2 < 0 and alpha.numerator == 1 and alpha.denominator == 1 << -log2):
            self.refuse(
                path, stated, f"alpha {alpha} is not a power of two", "the model takes 1/8, 1/4, ... 128"
            )
        return log2

    def _note_stated(self, path: str, stated: Stated[T]) -> T | None:
        if stated.value is not None:
            self.stated.append(f"{_yaml_key(path)}: {value_text(path, stated.value)}")
        return stated.value


def device_finder(directory: Path) -> Callable[[str], ModelledSwitch]:
    """Return a finder of modelled switches by the name or path of a profile; paths are relative to `directory`."""

    def find(name_or_path: str) -> ModelledSwitch:
        profile_name = str(directory / name_or_path) if is_path(name_or_path) else name_or_path
        return modelled_switch(find_profile(profile_name))

    return find


def modelled_switch(profile: DutProfile) -> ModelledSwitch:
    """Return the model of a switch.

    Raise `ConfigError` with every value that the model needs and the profile lacks, or that the model cannot represent.
    """
    if profile.kind is not DutKind.SWITCH:
        raise ConfigError(Problem(profile.name, "is not a switch", "name the profile of a switch"))
    values = _StatedValues(profile)
    maps = profile.maps
    identity = tuple(range(PRIORITIES))
    mode = values.or_default("balancing.mode", profile.balancing.mode, BalancingMode.ECMP)
    gap_ns = FLOWLET_GAP_NS
    if mode is BalancingMode.FLOWLET:
        gap_ns = values.or_default(
            "balancing.flowlet_gap_ns", profile.balancing.flowlet_gap_ns, FLOWLET_GAP_NS
        )
    settings = SwitchSettings(
        name=profile.name,
        ports=(),
        buffer_bytes=0,
        dscp_to_class=_within(values, "maps.dscp_to_class", maps.dscp_to_class, (0,) * 64),
        class_to_queue=_within(values, "maps.class_to_queue", maps.class_to_queue, identity),
        class_to_group=_within(values, "maps.class_to_group", maps.class_to_group, identity),
        group_to_priority=_within(values, "maps.group_to_priority", maps.group_to_priority, identity),
        priority_to_queue=_within(values, "maps.priority_to_queue", maps.priority_to_queue, identity),
        groups=tuple(_group(profile.group(number), values) for number in range(PRIORITIES)),
        queues=tuple(_queue(profile.queue(number), values) for number in range(PRIORITIES)),
        pfc=bool(values.require("pfc.priorities", profile.pfc.priorities, ())),
        pause_quanta=PAUSE_QUANTA,
        watchdog=_watchdog(profile, values),
        latency_ns=values.or_default("latency.port_to_port_ns", profile.latency.port_to_port_ns, LATENCY_NS),
        balancing=_BALANCING[mode],
        flowlet_gap_ns=gap_ns,
        trimming=_trimming(profile, values),
        seed=SEED,
        hash_fields=_hash_fields(profile, values),
    )
    if profile.latency.mode.value is ForwardingMode.CUT_THROUGH:
        values.leave_out("latency.mode", profile.latency.mode)
    for ports in profile.ports:
        for path, stated in stated_values((ports,), "ports"):
            if path.partition("].")[2].startswith(_OF_PORTS):
                values.leave_out(path, stated)
    pool = _ingress_pool(profile, values)
    headroom_pool_bytes = _headroom_pool(profile, pool, values)
    settings = replace(settings, headroom_pool_bytes=headroom_pool_bytes)
    memory = _memory(profile, settings, pool, values)
    if not values.problems and memory.shared_bytes(1) <= 0:
        problem = "reserves and headroom of all ports leave no shared buffer"
        values.refuse(
            "buffer.total", profile.buffer.total_bytes, problem, "describe fewer ports, or less headroom"
        )
    if values.problems:
        raise ConfigError(*values.problems)
    origin = SettingsOrigin(
        profile.name,
        tuple(values.stated),
        tuple(values.defaults),
        tuple(values.left_out),
        (),
        _most_ports(profile),
    )
    return ModelledSwitch(origin, replace(settings, origin=origin), memory)


def _most_ports(profile: DutProfile) -> int | None:
    """Return the number of ports, with every port split as far as possible; None if no count is stated."""
    counts = [
        (ports.count.value or 0)
        * max((breakout.count for breakout in ports.breakouts.value or ()), default=1)
        for ports in profile.ports
    ]
    return sum(counts) or None


def _ingress_pool(profile: DutProfile, values: _StatedValues) -> Pool | None:
    """Return the pool that the model represents: of the ingress pools the one for lossless traffic, else the first; None
    without size."""
    ingress_pools = [pool for pool in profile.buffer.pools if pool.name.startswith(_INGRESS)]
    modelled_pool = next(
        (pool for pool in ingress_pools if _LOSSLESS in pool.name),
        ingress_pools[0] if ingress_pools else None,
    )
    if modelled_pool is not None and modelled_pool.size_bytes.value is None:
        modelled_pool = None
    for pool in profile.buffer.pools:
        if pool is not modelled_pool:
            values.leave_out(f"buffer.pools[{pool.name}].size_bytes", pool.size_bytes)
    return modelled_pool


def _headroom_pool(profile: DutProfile, pool: Pool | None, values: _StatedValues) -> int | None:
    if pool is not None and pool.headroom_bytes.value is not None:
        return values.optional(f"buffer.pools[{pool.name}].headroom_bytes", pool.headroom_bytes)
    return values.optional("buffer.headroom_bytes", profile.buffer.headroom_bytes)


def _memory(
    profile: DutProfile, settings: SwitchSettings, pool: Pool | None, values: _StatedValues
) -> _Memory:
    reserved_bytes = sum(group.reserved_bytes for group in settings.groups)
    headroom_bytes = sum(group.headroom_bytes for group in settings.groups if group.lossless)
    device_ports = sum(ports.count.value or 0 for ports in profile.ports)
    if pool is not None:
        size_bytes = values.require(f"buffer.pools[{pool.name}].size_bytes", pool.size_bytes, 0)
        return _Memory(size_bytes, reserved_bytes, 0, device_ports)
    total_bytes = values.require("buffer.total_bytes", profile.buffer.total_bytes, 0)
    if settings.headroom_pool_bytes is not None:
        return _Memory(total_bytes - settings.headroom_pool_bytes, reserved_bytes, 0, device_ports)
    return _Memory(total_bytes, reserved_bytes, headroom_bytes, device_ports)


def _within(
    values: _StatedValues, path: str, stated: Stated[tuple[int, ...]], stand_in: tuple[int, ...]
) -> tuple[int, ...]:
    entries = values.require(path, stated, stand_in)
    if len(entries) > len(stand_in) or max(entries) >= PRIORITIES:
        problem = f"a number exceeds the model's {PRIORITIES} classes, groups and queues"
        values.refuse(path, stated, problem, f"describe {PRIORITIES} of them")
    return entries


def _group(group: StatedGroup, values: _StatedValues) -> PriorityGroup:
    path = f"groups[{group.group}]"
    lossless = values.or_default(f"{path}.lossless", group.lossless, False)
    if group.xoff_bytes.best is not None and group.alpha.best is None:
        problem = "a fixed xoff cannot be modelled"
        values.refuse(
            f"{path}.xoff", group.xoff_bytes, problem, "state alpha: the model's thresholds are dynamic"
        )
    values.leave_out(f"{path}.xon_bytes", group.xon_bytes)
    headroom_bytes = resume_offset_bytes = 0
    if lossless:
        headroom_bytes = values.require(f"{path}.headroom_bytes", group.headroom_bytes, 0)
        resume_offset_bytes = values.or_default(f"{path}.xon_offset_bytes", group.xon_offset_bytes, 0)
    return PriorityGroup(
        lossless=lossless,
        reserved_bytes=values.or_default(f"{path}.reserved_bytes", group.reserved_bytes, 0),
        alpha_log2=values.alpha_log2(f"{path}.alpha", group.alpha),
        headroom_bytes=headroom_bytes,
        resume_offset_bytes=resume_offset_bytes,
    )


def _queue(queue: StatedQueue, values: _StatedValues) -> SwitchQueue:
    path, ecn = f"queues[{queue.queue}]", queue.ecn
    marking = None
    if values.or_default(f"{path}.ecn.enabled", ecn.enabled, False):
        marking = Marking(
            kmin_bytes=values.require(f"{path}.ecn.kmin_bytes", ecn.kmin_bytes, 0),
            kmax_bytes=values.require(f"{path}.ecn.kmax_bytes", ecn.kmax_bytes, 0),
            pmax_per_million=values.require(f"{path}.ecn.pmax_per_million", ecn.pmax_per_million, 0),
            at_dequeue=values.or_default(f"{path}.ecn.at", ecn.at, MarkingPoint.DEQUEUE)
            is MarkingPoint.DEQUEUE,
        )
    strict = values.or_default(f"{path}.scheduler", queue.scheduler, Scheduler.DWRR) is Scheduler.STRICT
    return SwitchQueue(
        strict=strict,
        weight=1 if strict else values.or_default(f"{path}.weight", queue.weight, 1),
        alpha_log2=values.alpha_log2(f"{path}.alpha", queue.alpha),
        reserved_bytes=values.or_default(f"{path}.reserved_bytes", queue.reserved_bytes, 0),
        marking=marking,
    )


def _watchdog(profile: DutProfile, values: _StatedValues) -> Watchdog | None:
    pfc = profile.pfc
    detect_ns = values.optional("pfc.watchdog_detect_ns", pfc.watchdog_detect_ns)
    if not detect_ns:
        return None
    action = values.or_default("pfc.watchdog_action", pfc.watchdog_action, StatedAction.DROP)
    if action is StatedAction.ALERT:
        return None
    restore_ns = values.or_default("pfc.watchdog_restore_ns", pfc.watchdog_restore_ns, detect_ns)
    modelled_action = WatchdogAction.FORWARD if action is StatedAction.FORWARD else WatchdogAction.DROP
    return Watchdog(detect_ns, restore_ns, modelled_action)


def _trimming(profile: DutProfile, values: _StatedValues) -> Trimming | None:
    trimming = profile.trimming
    if not values.or_default("trimming.enabled", trimming.enabled, False):
        return None
    queue = values.optional("trimming.queue", trimming.queue)
    if queue is not None and queue >= PRIORITIES:
        problem = f"queue {queue} is beyond the model's {PRIORITIES}"
        values.refuse("trimming.queue", trimming.queue, problem, "leave it out to use the queue of the DSCP")
    return Trimming(
        frame_bytes=values.require("trimming.size_bytes", trimming.size_bytes, 0),
        dscp=values.require("trimming.dscp", trimming.dscp, 0),
        last_hop_dscp=values.optional("trimming.last_hop_dscp", trimming.last_hop_dscp),
        queue=queue,
    )


def _hash_fields(profile: DutProfile, values: _StatedValues) -> tuple[HashField, ...]:
    fields = profile.balancing.hash_fields
    hash_fields = values.or_default("balancing.hash_fields", fields, FIVE_TUPLE)
    if not hash_fields:
        values.refuse(
            "balancing.hash_fields",
            fields,
            "the list of hash fields is empty",
            "name a field, or leave the key out",
        )
    return hash_fields


def _yaml_key(path: str) -> str:
    """Return a path of fields as a profile's YAML writes it: without the unit at its end."""
    for unit in ("_bytes", "_ns", "_per_million"):
        path = path.removesuffix(unit)
    return path
