"""A switch's profile -> settings of the switch model, for the twin and the soft switch.

Decides what of a profile the model can stand for, and refuses the rest by name. Where a profile is silent, the model's
plainest behaviour is taken and said. Which ports are attached to what is the topology's business.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.model.topology import (
    PRIORITIES,
    LoadBalancing,
    Marking,
    PriorityGroup,
    SwitchPort,
    SwitchQueue,
    SwitchSettings,
    Trimming,
    Watchdog,
    WatchdogAction,
)
from etloop.dut_profiles.model.findings import where
from etloop.dut_profiles.model.profile import BalancingMode, DutKind, MarkingPoint, Scheduler
from etloop.dut_profiles.model.profile import WatchdogAction as StatedAction
from etloop.dut_profiles.rules.buffers import CABLE_NS_PER_METRE
from etloop.dut_profiles.rules.contradictions import LONGEST_PAUSE_QUANTA

if TYPE_CHECKING:
    from fractions import Fraction

    from etloop.dut_profiles.model.profile import DutProfile
    from etloop.dut_profiles.model.profile import PriorityGroup as StatedGroup
    from etloop.dut_profiles.model.profile import Queue as StatedQueue
    from etloop.dut_profiles.model.stated import Stated

T = TypeVar("T")

_BALANCING: Final = {
    BalancingMode.ECMP: LoadBalancing.ECMP,
    BalancingMode.SPRAY: LoadBalancing.SPRAY,
    BalancingMode.FLOWLET: LoadBalancing.FLOWLET,
}
DEFAULT_FLOWLET_GAP_NS: Final = 10_000


@dataclass(frozen=True, slots=True)
class ModelledSwitch:
    """Settings, and what had to be assumed for them."""

    settings: SwitchSettings
    assumed: tuple[str, ...]
    """Paths of values that the profile does not state, with what was taken."""


class _Taking:
    """Takes values out of a profile, and keeps what is missing and what was assumed."""

    def __init__(self, profile: DutProfile) -> None:
        self.profile = profile
        self.problems: list[Problem] = []
        self.assumed: list[str] = []

    def needed(self, path: str, stated: Stated[T], stand_in: T) -> T:
        value = stated.value
        if value is None:
            self.problems.append(
                Problem(f"{self.profile.name}: {path}", "is not stated", "state it; the model needs it")
            )
            return stand_in
        return value

    def given(self, path: str, stated: Stated[T], otherwise: T) -> T:
        value = stated.value
        if value is None:
            self.assumed.append(f"{path}: {otherwise}")
            return otherwise
        return value

    def refuse(self, path: str, stated: Stated[T], what: str, remedy: str) -> None:
        self.problems.append(Problem(where(stated, f"{self.profile.name}: {path}"), what, remedy))

    def alpha_log2(self, path: str, stated: Stated[Fraction]) -> int:
        alpha = stated.value
        if alpha is None:
            self.assumed.append(f"{path}: 1")
            return 0
        log2 = alpha.numerator.bit_length() - alpha.denominator.bit_length()
        power_of_two = alpha == (1 << log2 if log2 >= 0 else 1) and log2 >= 0
        if not power_of_two and not (log2 < 0 and alpha.numerator == 1 and alpha.denominator == 1 << -log2):
            self.refuse(
                path, stated, f"alpha {alpha} is no power of two", "the model takes 1/8, 1/4, ... 128"
            )
        return log2


def switch_settings(profile: DutProfile, seed: int = 1) -> ModelledSwitch:
    """The model of a switch; its first group of ports is what it has, without breakouts.

    Raises `ConfigError` with every value that the model needs and the profile lacks, or that it cannot stand for.
    """
    if profile.kind is not DutKind.SWITCH or not profile.ports:
        what = "is no switch" if profile.kind is not DutKind.SWITCH else "states no ports"
        raise ConfigError(Problem(profile.name, what, "name the profile of a switch with its ports"))
    taking = _Taking(profile)
    maps = profile.maps
    identity = tuple(range(PRIORITIES))
    mode = taking.given("balancing.mode", profile.balancing.mode, BalancingMode.ECMP)
    if mode not in _BALANCING:
        taking.refuse(
            "balancing.mode", profile.balancing.mode, f"{mode} cannot be modelled", "model spray instead"
        )
    settings = SwitchSettings(
        name=profile.name,
        ports=_ports(profile, taking),
        buffer_bytes=taking.needed("buffer.total", profile.buffer.total_bytes, 0),
        dscp_to_class=_within(taking, "maps.dscp_to_class", maps.dscp_to_class, (0,) * 64),
        class_to_queue=_within(taking, "maps.class_to_queue", maps.class_to_queue, identity),
        class_to_group=_within(taking, "maps.class_to_group", maps.class_to_group, identity),
        group_to_priority=_within(taking, "maps.group_to_priority", maps.group_to_priority, identity),
        priority_to_queue=_within(taking, "maps.priority_to_queue", maps.priority_to_queue, identity),
        groups=tuple(_group(profile.group(number), taking) for number in range(PRIORITIES)),
        queues=tuple(_queue(profile.queue(number), taking) for number in range(PRIORITIES)),
        pfc=bool(taking.needed("pfc.priorities", profile.pfc.priorities, ())),
        pause_quanta=LONGEST_PAUSE_QUANTA,
        watchdog=_watchdog(profile, taking),
        latency_ns=taking.given("latency.port_to_port", profile.latency.port_to_port_ns, 0),
        balancing=_BALANCING.get(mode, LoadBalancing.ECMP),
        flowlet_gap_ns=profile.balancing.flowlet_gap_ns.value or DEFAULT_FLOWLET_GAP_NS,
        trimming=_trimming(profile, taking),
        seed=seed,
    )
    if not taking.problems and settings.set_aside_bytes >= settings.buffer_bytes:
        what = "reserves and headroom of all ports leave nothing of the buffer to share"
        taking.refuse(
            "buffer.total", profile.buffer.total_bytes, what, "describe fewer ports, or less headroom"
        )
    if taking.problems:
        raise ConfigError(*taking.problems)
    if profile.buffer.headroom_bytes.best is not None:
        taking.assumed.append("buffer.headroom: set aside for every port, not shared between ports")
    return ModelledSwitch(settings, tuple(taking.assumed))


def _ports(profile: DutProfile, taking: _Taking) -> tuple[SwitchPort, ...]:
    ports = profile.ports[0]
    path = f"ports[{ports.name}]"
    count = taking.needed(f"{path}.count", ports.count, 1)
    speed_bps = taking.needed(f"{path}.speed", ports.speed_bps, 1)
    delay_ns = CABLE_NS_PER_METRE * taking.given(f"{path}.cable_metres", ports.cable_metres, 0)
    return tuple(SwitchPort(f"{ports.name}{number}", speed_bps, delay_ns) for number in range(count))


def _within(
    taking: _Taking, path: str, stated: Stated[tuple[int, ...]], stand_in: tuple[int, ...]
) -> tuple[int, ...]:
    mapped = taking.needed(path, stated, stand_in)
    if len(mapped) > len(stand_in) or max(mapped) >= PRIORITIES:
        what = f"it goes beyond the model's {PRIORITIES} classes, groups and queues"
        taking.refuse(path, stated, what, f"describe {PRIORITIES} of them")
    return mapped


def _group(group: StatedGroup, taking: _Taking) -> PriorityGroup:
    path = f"groups[{group.group}]"
    lossless = taking.given(f"{path}.lossless", group.lossless, False)
    if group.xoff_bytes.best is not None and group.alpha.best is None:
        what = "a fixed xoff cannot be modelled"
        taking.refuse(
            f"{path}.xoff", group.xoff_bytes, what, "state alpha: the model's thresholds are dynamic"
        )
    return PriorityGroup(
        lossless=lossless,
        reserved_bytes=taking.given(f"{path}.reserved", group.reserved_bytes, 0),
        alpha_log2=taking.alpha_log2(f"{path}.alpha", group.alpha),
        headroom_bytes=taking.needed(f"{path}.headroom", group.headroom_bytes, 0) if lossless else 0,
        resume_offset_bytes=taking.given(f"{path}.xon_offset", group.xon_offset_bytes, 0) if lossless else 0,
    )


def _queue(queue: StatedQueue, taking: _Taking) -> SwitchQueue:
    path, ecn = f"queues[{queue.queue}]", queue.ecn
    marking = None
    if taking.given(f"{path}.ecn.enabled", ecn.enabled, False):
        marking = Marking(
            kmin_bytes=taking.needed(f"{path}.ecn.kmin", ecn.kmin_bytes, 0),
            kmax_bytes=taking.needed(f"{path}.ecn.kmax", ecn.kmax_bytes, 0),
            pmax_per_million=taking.needed(f"{path}.ecn.pmax", ecn.pmax_per_million, 0),
            at_dequeue=taking.given(f"{path}.ecn.at", ecn.at, MarkingPoint.DEQUEUE) is MarkingPoint.DEQUEUE,
        )
    strict = taking.given(f"{path}.scheduler", queue.scheduler, Scheduler.DWRR) is Scheduler.STRICT
    return SwitchQueue(
        strict=strict,
        weight=1 if strict else taking.given(f"{path}.weight", queue.weight, 1),
        alpha_log2=taking.alpha_log2(f"{path}.alpha", queue.alpha),
        reserved_bytes=taking.given(f"{path}.reserved", queue.reserved_bytes, 0),
        marking=marking,
    )


def _watchdog(profile: DutProfile, taking: _Taking) -> Watchdog | None:
    pfc = profile.pfc
    if not pfc.watchdog_detect_ns.value:
        return None
    action = taking.given("pfc.watchdog_action", pfc.watchdog_action, StatedAction.DROP)
    if action is StatedAction.ALERT:
        return None
    restore_ns = taking.given("pfc.watchdog_restore", pfc.watchdog_restore_ns, pfc.watchdog_detect_ns.value)
    modelled = WatchdogAction.FORWARD if action is StatedAction.FORWARD else WatchdogAction.DROP
    return Watchdog(pfc.watchdog_detect_ns.value, restore_ns, modelled)


def _trimming(profile: DutProfile, taking: _Taking) -> Trimming | None:
    trimming = profile.trimming
    if not taking.given("trimming.enabled", trimming.enabled, False):
        return None
    frame_bytes = taking.needed("trimming.size", trimming.size_bytes, 0)
    return Trimming(frame_bytes, taking.needed("trimming.dscp", trimming.dscp, 0))
