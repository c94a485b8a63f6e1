"""Networks described by a few numbers: one switch, leaves and spines, a fat tree, rails, a dumbbell, a parking lot.

This module declares the keys of each in `topology.yaml`, and decides the switches, links and attachments that result.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from typing import ClassVar, Final

from etloop.contract.base.errors import Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.setting import group, groups, list_setting, required_setting, setting, setting_like
from etloop.contract.base.units import (
    NS_PER_S,
    format_duration,
    format_rate,
    parse_duration_ns,
    parse_port_label,
    parse_rate_bps,
)
from etloop.contract.base.value_parsers import integer, with_bounds
from etloop.contract.base.yaml_reader import Section
from etloop.contract.model.topology import MOST_RAILS, MOST_SWITCH_PORTS, MOST_SWITCHES
from etloop.traffic.topology.draft import Draft, has_number
from etloop.traffic.topology.switch_keys import SwitchKeys

DEFAULT_DELAY_NS: Final = 100
"""Delay of twenty metres of cable."""
_rate: Final = with_bounds(parse_rate_bps, 1_000_000, 3_200_000_000_000, format_rate)
_delay: Final = with_bounds(parse_duration_ns, 0, NS_PER_S // 10, format_duration)
_LIST_PORTS: Final = 'list the rig\'s ports on it, as "agent/port"'


@dataclass(frozen=True, slots=True)
class LinkKeys:
    """Rate and delay of links."""

    rate_bps: int = required_setting("rate", _rate, 1, 'write the speed of the link, such as "100Gbps"')
    """Rate of the link."""
    delay_ns: int = setting("delay", _delay, DEFAULT_DELAY_NS)
    """One-way propagation delay of the link."""


@dataclass(frozen=True, slots=True)
class PortKeys:
    """Ports on one switch of a row or tier."""

    ports: tuple[str, ...] = list_setting("ports", parse_port_label, remedy=_LIST_PORTS, stand_in="")
    """The rig's ports on the switch."""


@dataclass(frozen=True, slots=True)
class PlaneKeys(LinkKeys, ABC):
    """Networks that may have copies, one for each port of a card."""

    planes: int = setting("planes", integer(1, MOST_RAILS), 1)
    """Number of copies of this network, one for each port of a card (docs/mrc.md); the listed ports are those of plane 0,
    and plane 1 has the ports whose number is one higher: a0/p1 for a0/p0. Switches are named plane0.leaf0 and so on."""

    @property
    @abstractmethod
    def own_ports(self) -> tuple[str, ...]:
        """Return the rig's ports on plane 0."""

    @property
    @abstractmethod
    def own_switches(self) -> int:
        """Return the number of switches of a plane."""

    @property
    def built_planes(self) -> int:
        """Return `planes`, or 1 if they cannot be built."""
        fits = self.planes * self.own_switches <= MOST_SWITCHES
        return self.planes if fits and all(map(has_number, self.own_ports)) else 1

    def broken_rules(self, _: Collection[str]) -> Iterator[Problem]:
        """Yield ports that have no counterpart on another plane, and more switches than there may be."""
        unnumbered = [port for port in self.own_ports if not has_number(port)]
        if self.planes > 1 and unnumbered:
            problem = f"port {unnumbered[0]} has no number at its end, so that plane 1 has no port for it"
            yield Problem("planes", problem, "name the ports by number, such as a0/p0")
        if self.planes > 1 and self.planes * self.own_switches > MOST_SWITCHES:
            problem = f"{self.planes} planes of {self.own_switches} switches"
            yield Problem("planes", problem, f"keep them within {MOST_SWITCHES} switches")


@dataclass(frozen=True, slots=True)
class SingleKeys(PlaneKeys):
    """One switch with the rig's ports on it."""

    ports: tuple[str, ...] = list_setting(
        "ports", parse_port_label, remedy='list the rig\'s ports on the switch, as "agent/port"', stand_in=""
    )
    """The rig's ports on the switch."""
    switch: SwitchKeys = group(SwitchKeys, "switch")
    """Settings of the switch."""

    def build(self, draft: Draft, place: Section) -> None:
        """Add the switch to the draft."""
        switch = draft.add_switch("switch", self.switch, place.section("switch"))
        for port in self.ports:
            draft.attach(switch, port, self.rate_bps, self.delay_ns)

    @property
    def own_ports(self) -> tuple[str, ...]:
        """Return the ports on the switch."""
        return self.ports

    @property
    def own_switches(self) -> int:
        """Return 1."""
        return 1


@dataclass(frozen=True, slots=True)
class TierKeys(PlaneKeys):
    """Switches with the rig's ports on them, and spines that connect them all."""

    TIER: ClassVar[str]
    SWITCH: ClassVar[str]
    uplink_rate_bps: int = setting_like("uplink_rate", _rate, "rate_bps")
    """Rate of the links to spines; `rate` if left out."""
    uplink_delay_ns: int = setting_like("uplink_delay", _delay, "delay_ns")
    """One-way propagation delay of each of them; `delay` if left out."""
    uplinks: int = setting("uplinks", integer(1, MOST_SWITCH_PORTS), 1)
    """Links from each of the switches to each spine."""
    spines: int = 0
    tier: tuple[PortKeys, ...] = ()
    lower: SwitchKeys = SwitchKeys()
    spine: SwitchKeys = group(SwitchKeys, "spine")
    """Settings of every spine."""

    def broken_rules(self, keys: Collection[str]) -> Iterator[Problem]:
        """Yield more switches or links than there may be."""
        if self.TIER == "rails" and len(self.tier) * self.planes > MOST_RAILS:
            in_planes = f" in {self.planes} planes" if self.planes > 1 else ""
            yield Problem(
                "rails", f"{len(self.tier)} rails{in_planes}", f"write at most {MOST_RAILS // self.planes}"
            )
        if self.has_too_many_spines:
            problem = f"{self.spines} spines with {self.uplinks} links to each"
            remedy = f"keep their product within the {MOST_SWITCH_PORTS} ports of a switch"
            yield Problem("spines", problem, remedy)
        if self.has_too_many_switches:
            problem = f"a spine would have {len(self.tier) * self.uplinks} ports"
            yield Problem(self.TIER, problem, f"keep them within {MOST_SWITCH_PORTS}")
        yield from PlaneKeys.broken_rules(self, keys)
        if self.spines == 0 and "spine" in keys:
            yield Problem("spine", "there are no spines", "write spines: 1 or more, or remove the key")

    @property
    def own_ports(self) -> tuple[str, ...]:
        """Return the ports of all switches of the tier."""
        return tuple(port for entry in self.tier for port in entry.ports)

    @property
    def own_switches(self) -> int:
        """Return the switches of the tier and the spines."""
        return len(self.tier) + self.spines

    @property
    def has_too_many_spines(self) -> bool:
        """Return whether a switch of the tier, or all of them, would need too many ports."""
        links = self.spines * self.uplinks
        return links > MOST_SWITCH_PORTS or len(self.tier) * links > MOST_SWITCHES * MOST_SWITCH_PORTS

    @property
    def has_too_many_switches(self) -> bool:
        """Return whether a spine would need too many ports."""
        return len(self.tier) * self.uplinks > MOST_SWITCH_PORTS

    def build(self, draft: Draft, place: Section) -> None:
        """Add the switches to the draft."""
        lower = []
        for index, entry in enumerate(self.tier):
            switch = draft.add_switch(f"{self.SWITCH}{index}", self.lower, place.section(self.SWITCH))
            lower.append(switch)
            rail = index if self.TIER == "rails" else None
            for port in entry.ports:
                draft.attach(switch, port, self.rate_bps, self.delay_ns, rail)
        refused = self.has_too_many_spines or self.has_too_many_switches
        for index in range(0 if refused else self.spines):
            spine = draft.add_switch(f"spine{index}", self.spine, place.section("spine"))
            for switch in lower:
                for _ in range(self.uplinks):
                    draft.link(switch, spine, self.uplink_rate_bps, self.uplink_delay_ns)


@dataclass(frozen=True, slots=True)
class LeafSpineKeys(TierKeys):
    """Leaves with the rig's ports on them, and spines."""

    TIER: ClassVar[str] = "leaves"
    SWITCH: ClassVar[str] = "leaf"
    spines: int = setting("spines", integer(1, MOST_SWITCHES), 1)
    """Number of spines."""
    tier: tuple[PortKeys, ...] = groups(PortKeys, "leaves", remedy="list the leaves, each with its ports")
    """The leaves."""
    lower: SwitchKeys = group(SwitchKeys, "leaf")
    """Settings of every leaf."""


@dataclass(frozen=True, slots=True)
class FatTreeKeys(PlaneKeys):
    """Three tiers: pods of leaves and spines, and cores, each of which has a link to one spine of every pod."""

    uplink_rate_bps: int = setting_like("uplink_rate", _rate, "rate_bps")
    """Rate of the links between leaves and spines; `rate` if left out."""
    uplink_delay_ns: int = setting_like("uplink_delay", _delay, "delay_ns")
    """One-way propagation delay of each of them; `delay` if left out."""
    core_rate_bps: int = setting_like("core_rate", _rate, "uplink_rate_bps")
    """Rate of the links between spines and cores; `uplink_rate` if left out."""
    core_delay_ns: int = setting_like("core_delay", _delay, "uplink_delay_ns")
    """One-way propagation delay of each of them; `uplink_delay` if left out."""
    pods: int = setting("pods", integer(2, MOST_SWITCH_PORTS), 2)
    """Number of pods, which have equal shares of the leaves."""
    leaves: tuple[PortKeys, ...] = groups(
        PortKeys, "leaves", remedy="list the leaves pod by pod, each with its ports"
    )
    """The leaves, pod by pod."""
    spines: int = setting("spines", integer(1, MOST_SWITCH_PORTS), 1)
    """Spines of a pod; each leaf has a link to each of them."""
    cores: int = setting("cores", integer(1, MOST_SWITCH_PORTS), 1)
    """Cores above each spine; spines of the same number in all pods have the same cores."""
    leaf: SwitchKeys = group(SwitchKeys, "leaf")
    """Settings of every leaf."""
    spine: SwitchKeys = group(SwitchKeys, "spine")
    """Settings of every spine."""
    core: SwitchKeys = group(SwitchKeys, "core")
    """Settings of every core."""

    def broken_rules(self, keys: Collection[str]) -> Iterator[Problem]:
        """Yield pods of different sizes, and more switches or links than there may be."""
        yield from PlaneKeys.broken_rules(self, keys)
        if len(self.leaves) % self.pods:
            yield Problem(
                "pods", f"{len(self.leaves)} leaves in {self.pods} pods", "give all pods as many leaves"
            )
        if self.is_too_large:
            problem = f"{self.own_switches} switches, and {len(self.leaves) // self.pods + self.cores} links of a spine"
            remedy = f"keep them within {MOST_SWITCHES} switches of {MOST_SWITCH_PORTS} ports"
            yield Problem("spines", problem, remedy)

    @property
    def own_ports(self) -> tuple[str, ...]:
        """Return the ports of all leaves."""
        return tuple(port for leaf in self.leaves for port in leaf.ports)

    @property
    def own_switches(self) -> int:
        """Return the leaves, spines and cores."""
        return len(self.leaves) + self.spines * (self.pods + self.cores)

    @property
    def is_too_large(self) -> bool:
        """Return whether there are too many switches, or too many ports of a spine."""
        links = len(self.leaves) // self.pods + self.cores
        return self.own_switches > MOST_SWITCHES or links > MOST_SWITCH_PORTS

    def build(self, draft: Draft, place: Section) -> None:
        """Add the switches to the draft."""
        leaves = []
        for index, entry in enumerate(self.leaves):
            leaves.append(draft.add_switch(f"leaf{index}", self.leaf, place.section("leaf")))
            for port in entry.ports:
                draft.attach(leaves[-1], port, self.rate_bps, self.delay_ns)
        if self.is_too_large:
            return
        of_pod = max(len(self.leaves) // self.pods, 1)
        spines: list[list[int]] = [[] for _ in range(self.spines)]
        for pod, number in itertools.product(range(self.pods), range(self.spines)):
            spine = draft.add_switch(f"spine{pod}.{number}", self.spine, place.section("spine"))
            spines[number].append(spine)
            for leaf in leaves[pod * of_pod : (pod + 1) * of_pod]:
                draft.link(leaf, spine, self.uplink_rate_bps, self.uplink_delay_ns)
        for number, below in enumerate(spines):
            for index in range(self.cores):
                name = f"core{number * self.cores + index}"
                core = draft.add_switch(name, self.core, place.section("core"))
                for spine in below:
                    draft.link(spine, core, self.core_rate_bps, self.core_delay_ns)


@dataclass(frozen=True, slots=True)
class RailKeys(TierKeys):
    """A switch for every rail, and spines if there are any."""

    TIER: ClassVar[str] = "rails"
    SWITCH: ClassVar[str] = "rail"
    spines: int = setting("spines", integer(0, MOST_SWITCHES), 0)
    """Number of spines."""
    tier: tuple[PortKeys, ...] = groups(PortKeys, "rails", remedy="list the rails, each with its ports")
    """The rails."""
    lower: SwitchKeys = group(SwitchKeys, "rail")
    """Settings of every switch of a rail."""


@dataclass(frozen=True, slots=True)
class ChainKeys(LinkKeys):
    """Switches in a row."""

    trunk_rate_bps: int = setting_like("trunk_rate", _rate, "rate_bps")
    """Rate of the links between neighbours; `rate` if left out."""
    trunk_delay_ns: int = setting_like("trunk_delay", _delay, "delay_ns")
    """One-way propagation delay of each of them; `delay` if left out."""
    trunks: int = setting("trunks", integer(1, MOST_SWITCH_PORTS // 2), 1)
    """Links between two neighbours."""
    switch: SwitchKeys = group(SwitchKeys, "switch")
    """Settings of every switch."""

    @property
    def row(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Return the switches in their order: name, and the rig's ports on it."""
        raise NotImplementedError

    def build(self, draft: Draft, place: Section) -> None:
        """Add the switches to the draft."""
        row = []
        for name, ports in self.row:
            row.append(draft.add_switch(name, self.switch, place.section("switch")))
            for port in ports:
                draft.attach(row[-1], port, self.rate_bps, self.delay_ns)
        for left, right in itertools.pairwise(row):
            for _ in range(self.trunks):
                draft.link(left, right, self.trunk_rate_bps, self.trunk_delay_ns)


@dataclass(frozen=True, slots=True)
class DumbbellKeys(ChainKeys):
    """Two switches joined by a trunk, which all flows from one side to the other share."""

    left: tuple[str, ...] = list_setting("left", parse_port_label, remedy=_LIST_PORTS, stand_in="")
    """The rig's ports on the left switch."""
    right: tuple[str, ...] = list_setting("right", parse_port_label, remedy=_LIST_PORTS, stand_in="")
    """The rig's ports on the right switch."""

    @property
    def row(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Return both switches."""
        return (("left", self.left), ("right", self.right))


@dataclass(frozen=True, slots=True)
class ParkingLotKeys(ChainKeys):
    """Switches in a row: a flow from the first to the last meets other flows on every trunk."""

    hops: tuple[PortKeys, ...] = groups(
        PortKeys, "hops", remedy="list the switches in their order, each with its ports"
    )
    """The switches in their order."""

    @property
    def row(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Return the switches: hop0, hop1 and so on."""
        return tuple((f"hop{index}", hop.ports) for index, hop in enumerate(self.hops))

    def broken_rules(self, _: Collection[str]) -> Iterator[Problem]:
        """Yield a row that is too short."""
        if len(self.hops) < 2:
            yield Problem("hops", f"{len(self.hops)} switches", "list two or more, each with its ports")
