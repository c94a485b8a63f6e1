"""SRv6 micro segments (uSIDs) from one attachment to another, tier by tier: a route that an entropy value completes.
Pure.

This module computes the tiers for both ways to name a path: by ports (uA), which names every link, and by switches
(uN), which leaves the choice among parallel links to the next switch to each switch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from math import prod
from typing import Final

from etloop.contract.base.errors import PlanError, Problem
from etloop.contract.model.topology import SwitchEnd, Topology, Usids
from etloop.traffic.topology.routes import ways_between

MOST_USIDS: Final = 6
"""uSIDs in a 128-bit destination behind a 32-bit block: five tiers, and the host's own."""
_WHERE: Final = "topology: srv6"


class SegmentChoice(StrEnum):
    """Objects that the segments of a route name."""

    ADJACENCY = "adjacency"
    """The egress port at each switch (uA)."""
    NODE = "node"
    """The next switch (uN), and at the last one the host's port."""


Tiers = tuple[tuple[int, ...], ...]


@dataclass(slots=True)
class SegmentRoutes:
    """Routes through a network with segments. Those between two switches are computed once."""

    topology: Topology
    choice: SegmentChoice
    _toward: list[list[tuple[int, ...]]] = field(init=False)
    _beyond: dict[SwitchEnd, int] = field(init=False)
    """Switch at the other end of a port's link."""
    _known: dict[tuple[int, int], Tiers] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        """Compute the shortest paths between all switches."""
        topology = self.topology
        self._toward = ways_between(len(topology.switches), topology.links)
        self._beyond = {link.a: link.b.switch for link in topology.links}
        self._beyond |= {link.b: link.a.switch for link in topology.links}

    def tiers(self, source: int, target: int) -> Tiers:
        """Return the tiers between two attachments; the last is the port of the host.

        Raises `PlanError` if a switch on the way has no segments, if the switches of a tier offer different choices, or
        if there are more tiers than an address holds.
        """
        start, end = (self.topology.attachments[number].end for number in (source, target))
        pair = (start.switch, end.switch)
        if pair not in self._known:
            self._known[pair] = self._between(*pair)
        tiers = (*self._known[pair], (self._usids(end.switch).adjacencies[end.port],))
        if len(tiers) >= MOST_USIDS:
            problem = f"{len(tiers)} tiers from {self._port(start)} to {self._port(end)}"
            raise PlanError(
                Problem(_WHERE, problem, f"an address holds {MOST_USIDS - 1} of them and the host's own")
            )
        return tiers

    def _between(self, start: int, end: int) -> Tiers:
        """Compute the tiers between two switches, without the host's port."""
        tiers: list[tuple[int, ...]] = []
        tier_switches = {start}
        while tier_switches != {end}:
            choices = {switch: self._choices(switch, end) for switch in sorted(tier_switches)}
            distinct = set(choices.values())
            if len(distinct) > 1:
                self._refuse_unlike(choices, end)
            tiers.append(next(iter(distinct)))
            tier_switches = {
                self._beyond[SwitchEnd(switch, port)]
                for switch in tier_switches
                for port in self._toward[end][switch]
            }
        return tuple(tiers)

    def _choices(self, switch: int, end: int) -> tuple[int, ...]:
        """Return the uSIDs that a switch offers towards switch `end`."""
        usids = self._usids(switch)
        ports = self._toward[end][switch]
        if self.choice is SegmentChoice.ADJACENCY:
            return tuple(usids.adjacencies[port] for port in ports)
        neighbours = dict.fromkeys(self._beyond[SwitchEnd(switch, port)] for port in ports)
        return tuple(self._usids(neighbour).node for neighbour in neighbours)

    def _usids(self, switch: int) -> Usids:
        """Return the uSIDs of a switch. Raises `PlanError` if it has none."""
        settings = self.topology.switches[switch]
        if settings.usids is None:
            remedy = "remove its usid: none, or remove transport srv6"
            raise PlanError(Problem(f"switch {settings.name}", "has no micro segments (usid: none)", remedy))
        return settings.usids

    def _refuse_unlike(self, choices: dict[int, tuple[int, ...]], end: int) -> None:
        """Raise `PlanError` naming two switches of a tier that offer different choices."""
        (switch, first), (other_switch, second) = next(
            (a, b) for a in choices.items() for b in choices.items() if a[1] != b[1]
        )
        switches = self.topology.switches
        problem = (
            f"on the way to {switches[end].name}, {switches[switch].name} offers {_texts(first)} and "
            f"{switches[other_switch].name} {_texts(second)}: one entropy value selects both"
        )
        raise PlanError(Problem(_WHERE, problem, "give ports that do the same the same number under usids"))

    def _port(self, end: SwitchEnd) -> str:
        """Return the name of a port for messages."""
        return self.topology.port_name(end)


def ways_of(tiers: Tiers) -> int:
    """Return the number of paths that the tiers name."""
    return prod(len(tier) for tier in tiers)


def _texts(usids: Iterable[int]) -> str:
    return ", ".join(f"{usid:#06x}" for usid in usids)
