"""Which transport each port of a plan speaks: that of the jobs whose ranks are on it. Pure.

Refuses ports that jobs of unlike transports share: what carries the queue pairs of a port carries all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from etloop.contract.base.errors import PlanError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.controller.inputs.scenario.faults import kind_has

if TYPE_CHECKING:
    from etloop.contract.model.transport import FaultRule
    from etloop.controller.inputs.scenario.scenario import Scenario
    from etloop.controller.inputs.scenario.transport import Transport
    from etloop.controller.plan.job_set import JobPart, JobSet
    from etloop.controller.plan.places.placement import Placement
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class PortTransports:
    """The transports of a plan, and which of them each port of its placement speaks."""

    transports: tuple[Transport, ...]
    """Each that some port speaks."""
    of_port: tuple[int, ...]
    """By port of the placement, a number of these."""
    jobs: tuple[tuple[str, ...], ...]
    """By transport, the jobs that have it; of a plan of one job, a name that is empty."""

    @property
    def are_several(self) -> bool:
        """Whether ports speak unlike transports."""
        return len(self.transports) > 1

    def transport_of(self, port: int) -> Transport:
        """Return what a port of the placement speaks."""
        return self.transports[self.of_port[port]]

    def ports_of(self, number: int) -> frozenset[int]:
        """Return the ports of the placement that speak one of the transports."""
        return frozenset(port for port, spoken in enumerate(self.of_port) if spoken == number)

    def labels_on(self, udp_port: int, placement: Placement) -> frozenset[str]:
        """Return the ports whose packets of transports that spray go to a UDP port."""
        return frozenset(
            place.label
            for transport, ports in self.with_ports(placement)
            if transport.sprays and transport.endpoint.udp_port == udp_port
            for place in ports.ports
        )

    def with_ports(self, placement: Placement) -> Iterator[tuple[Transport, Placement]]:
        """Each transport with a placement of its ports alone, for those who look at ports and at no rank."""
        for number, transport in enumerate(self.transports):
            ports = tuple(
                place for place, spoken in zip(placement.ports, self.of_port, strict=True) if spoken == number
            )
            yield transport, replace(placement, ports=ports)

    def have_rule(self, rule: FaultRule, src_port: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Return which connections, by their sender's port, are of a transport that can do what a rule says."""
        able = np.array([kind_has(each, rule) for each in self.transports], np.bool_)
        found: NDArray[np.bool_] = able[np.array(self.of_port, np.int32)[src_port]]
        return found


def port_transports(scenario: Scenario, jobs: JobSet, placement: Placement) -> PortTransports:
    """Return what each port speaks. Raises `PlanError` with every port that jobs of unlike transports share."""
    part_of_rank = jobs.part_of_rank().tolist()
    spoken: list[int] = []
    problems: list[Problem] = []
    for place in placement.ports:
        if place.plane:
            spoken.append(spoken[-1])
            continue
        parts = [jobs.parts[part] for part in dict.fromkeys(part_of_rank[rank] for rank in place.ranks)]
        spoken.append(parts[0].transport if parts else 0)
        other = next((part for part in parts if part.transport != spoken[-1]), None)
        if other is not None:
            problems.append(_shared(place.label, scenario, parts[0], other))
    if problems:
        raise PlanError(*problems)
    used = sorted(set(spoken))
    names = tuple(tuple(part.name for part in jobs.parts if part.transport == number) for number in used)
    return PortTransports(
        tuple(scenario.transports[number] for number in used),
        tuple(used.index(number) for number in spoken),
        names,
    )


def _shared(label: str, scenario: Scenario, one: JobPart, other: JobPart) -> Problem:
    kinds = [scenario.transports[part.transport].kind_name for part in (one, other)]
    unlike = (
        f"{one.name} goes by {kinds[0]} and {other.name} by {kinds[1]}"
        if kinds[0] != kinds[1]
        else f"{one.name} and {other.name} go by {kinds[0]} with unlike settings"
    )
    return Problem(
        f"port {label}",
        f"a port speaks one transport; job {unlike}",
        "give each of them ports of its own: mapping: {ports: [...]} in the job",
    )


def transport_notes(scenario: Scenario) -> tuple[str, ...]:
    """What is allowed and remarkable of the transports in use, each once."""
    return tuple(dict.fromkeys(note for each in scenario.used_transports for note in each.notes))
