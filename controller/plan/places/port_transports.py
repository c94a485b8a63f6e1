"""The transport that each port of a plan speaks: that of the jobs whose ranks are on it. Pure.

Refuses ports shared by jobs with different transports: one transport carries all queue pairs of a port.
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
    from numpy.typing import NDArray

    from etloop.contract.model.fault_rules import FaultRule
    from etloop.controller.inputs.scenario.scenario import Scenario
    from etloop.controller.inputs.scenario.transport import Transport
    from etloop.controller.plan.job_set import JobPart, JobSet
    from etloop.controller.plan.places.placement import Placement


@dataclass(frozen=True, slots=True, eq=False)
class PortTransports:
    """The transports of a plan, and which of them each port of its placement speaks."""

    transports: tuple[Transport, ...]
    """The transports that are in use."""
    of_port: tuple[int, ...]
    """Index into `transports` of each port of the placement."""
    jobs: tuple[tuple[str, ...], ...]
    """Names of the jobs that use each transport; the name is empty in a plan of one job."""

    @property
    def are_several(self) -> bool:
        """Return whether ports speak different transports."""
        return len(self.transports) > 1

    def transport_of(self, port: int) -> Transport:
        """Return the transport of a port of the placement."""
        return self.transports[self.of_port[port]]

    def ports_of(self, number: int) -> frozenset[int]:
        """Return the ports of the placement (indices) that speak transport `number`."""
        return frozenset(port for port, spoken in enumerate(self.of_port) if spoken == number)

    def labels_on(self, udp_port: int, placement: Placement) -> frozenset[str]:
        """Return the labels of the ports that speak a spraying transport with destination UDP port `udp_port`."""
        return frozenset(
            place.label
            for transport, ports in self.with_ports(placement)
            if transport.sprays and transport.endpoint.udp_port == udp_port
            for place in ports.ports
        )

    def with_ports(self, placement: Placement) -> Iterator[tuple[Transport, Placement]]:
        """Yield each transport with a placement reduced to the ports that speak it.

        Only `ports` of such a placement is valid: its rows by rank still have the numbers of the full placement.
        """
        for number, transport in enumerate(self.transports):
            ports = tuple(
                place for place, spoken in zip(placement.ports, self.of_port, strict=True) if spoken == number
            )
            yield transport, replace(placement, ports=ports)

    def have_rule(self, rule: FaultRule, src_port: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Return per connection whether its sender's transport can carry out a fault rule. `src_port`: int32 indices of
        ports, result: bool."""
        is_able = np.array([kind_has(transport, rule) for transport in self.transports], np.bool_)
        result: NDArray[np.bool_] = is_able[np.array(self.of_port, np.int32)[src_port]]
        return result


def port_transports(scenario: Scenario, jobs: JobSet, placement: Placement) -> PortTransports:
    """Return the transport of each port. Raises `PlanError` with every port that jobs of different transports share."""
    part_of_rank = jobs.part_of_rank().tolist()
    number_of_port: list[int] = []
    problems: list[Problem] = []
    for place in placement.ports:
        if place.plane:
            number_of_port.append(number_of_port[-1])
            continue
        parts = [jobs.parts[part] for part in dict.fromkeys(part_of_rank[rank] for rank in place.ranks)]
        number_of_port.append(parts[0].transport if parts else 0)
        other = next((part for part in parts if part.transport != number_of_port[-1]), None)
        if other is not None:
            problems.append(_shared_port_problem(place.label, scenario, parts[0], other))
    if problems:
        raise PlanError(*problems)
    used_numbers = sorted(set(number_of_port))
    names = tuple(
        tuple(part.name for part in jobs.parts if part.transport == number) for number in used_numbers
    )
    return PortTransports(
        tuple(scenario.transports[number] for number in used_numbers),
        tuple(used_numbers.index(number) for number in number_of_port),
        names,
    )


def _shared_port_problem(label: str, scenario: Scenario, first: JobPart, second: JobPart) -> Problem:
    kinds = [scenario.transports[part.transport].kind_name for part in (first, second)]
    difference = (
        f"{first.name} uses {kinds[0]} and {second.name} {kinds[1]}"
        if kinds[0] != kinds[1]
        else f"{first.name} and {second.name} use {kinds[0]} with different settings"
    )
    return Problem(
        f"port {label}",
        f"a port supports one transport; job {difference}",
        "give each job separate ports: mapping: {ports: [...]} in the job",
    )


def transport_notes(scenario: Scenario) -> tuple[str, ...]:
    """Return the notes of the transports in use, without duplicates."""
    return tuple(dict.fromkeys(note for transport in scenario.used_transports for note in transport.notes))
