"""Which micro segments lead from one attachment to another, tier by tier: a route that an entropy value completes. Pure.

Decides the tiers of both ways to name a path: by ports (uA), which names every link, and by switches (uN), which leaves it to
each switch which of several links to the next one it takes.
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
"""In a destination of 128 bits behind a block of 32: five tiers, and the host's own."""
_WHERE: Final = "topology: srv6"


class SegmentChoice(StrEnum):
    """What the segments of a route name."""

    ADJACENCY = "adjacency"
    """The port to leave by, at each switch (uA)."""
    NODE = "node"
    """The switch to come to next (uN), and at the last one the host's port."""


Tiers = tuple[tuple[int, ...], ...]


@dataclass(slots=True)
class SegmentRoutes:
    """Routes of a network that has segments. Those between two switches are worked out once."""

    topology: Topology
    choice: SegmentChoice
    _toward: list[list[tuple[int, ...]]] = field(init=False)
    _beyond: dict[SwitchEnd, int] = field(init=False)
    """The switch at the other end of a port's link."""
    _known: dict[tuple[int, int], Tiers] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        """Look for the ways between all switches."""
        topology = self.topology
        self._toward = ways_between(len(topology.switches), topology.links)
        self._beyond = {link.a: link.b.switch for link in topology.links}
        self._beyond |= {link.b: link.a.switch for link in topology.links}

    def tiers(self, source: int, target: int) -> Tiers:
        """Return the tiers between two attachments, the last of which is the port of the host.

        Raises `PlanError` where a switch on the way has no segments, where the ways through a tier are not alike, or where
        there are more tiers than an address holds.
        """
        start, end = (self.topology.attachments[number].end for number in (source, target))
        pair = (start.switch, end.switch)
        if pair not in self._known:
            self._known[pair] = self._between(*pair)
        tiers = (*self._known[pair], (self._usids(end.switch).adjacencies[end.port],))
        if len(tiers) >= MOST_USIDS:
            what = f"{len(tiers)} tiers from {self._port(start)} to {self._port(end)}"
            raise PlanError(
                Problem(_WHERE, what, f"an address holds {MOST_USIDS - 1} of them and the host's own")
            )
        return tiers

    def _between(self, start: int, end: int) -> Tiers:
        tiers: list[tuple[int, ...]] = []
        here = {start}
        while here != {end}:
            choices = {switch: self._choices(switch, end) for switch in sorted(here)}
            offered = set(choices.values())
            if len(offered) > 1:
                self._refuse_unlike(choices, end)
            tiers.append(next(iter(offered)))
            here = {
                self._beyond[SwitchEnd(switch, port)] for switch in here for port in self._toward[end][switch]
            }
        return tuple(tiers)

    def _choices(self, switch: int, end: int) -> tuple[int, ...]:
        usids = self._usids(switch)
        ports = self._toward[end][switch]
        if self.choice is SegmentChoice.ADJACENCY:
            return tuple(usids.adjacencies[port] for port in ports)
        reached = dict.fromkeys(self._beyond[SwitchEnd(switch, port)] for port in ports)
        return tuple(self._usids(there).node for there in reached)

    def _usids(self, switch: int) -> Usids:
        settings = self.topology.switches[switch]
        if settings.usids is None:
            remedy = "leave its usid out, or leave transport srv6 out"
            raise PlanError(Problem(f"switch {settings.name}", "has no micro segments (usid: none)", remedy))
        return settings.usids

    def _refuse_unlike(self, choices: dict[int, tuple[int, ...]], end: int) -> None:
        (one, first), (other, second) = next(
            (a, b) for a in choices.items() for b in choices.items() if a[1] != b[1]
        )
        switches = self.topology.switches
        what = (
            f"on the way to {switches[end].name}, {switches[one].name} offers {_texts(first)} and "
            f"{switches[other].name} {_texts(second)}: one entropy value names both"
        )
        raise PlanError(Problem(_WHERE, what, "give ports that do the same the same number under usids"))

    def _port(self, end: SwitchEnd) -> str:
        return self.topology.port_name(end)


def ways_of(tiers: Tiers) -> int:
    """Return how many paths the tiers name."""
    return prod(len(tier) for tier in tiers)


def _texts(usids: Iterable[int]) -> str:
    return ", ".join(f"{usid:#06x}" for usid in usids)
