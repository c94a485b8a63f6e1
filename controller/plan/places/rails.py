"""The sets of ports of the rig that can carry one host: a single port, or with rails one port for each of the host's NICs.

NIC k of every host is on a port of rail k. The rig names the rail of each port (`rail: k`), or else the ports of an agent are
numbered through the rails in their order. All NICs of a host belong to one agent, because the engine's scale-up model joins
them.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from etloop.contract.base.errors import PlanError, Problem

if TYPE_CHECKING:
    from etloop.controller.inputs.rig import Rig, RigAgent
    from etloop.controller.inputs.scenario.mapping import Mapping

PortSet = tuple[int, ...]
"""Ports that carry a host, by NIC; a port is its position in the rig, agent by agent."""


def port_sets(rig: Rig, mapping: Mapping) -> tuple[PortSet, ...]:
    """Return the sets of ports that can carry a host, in the order of the rig.

    Raises `PlanError` with every agent whose ports do not make up whole hosts.
    """
    if not mapping.rails:
        return tuple((port,) for port in range(len(rig.ports)))
    nics = _nics_per_host(rig, mapping)
    sets: list[PortSet] = []
    problems: list[Problem] = []
    first_port = 0
    for agent in rig.agents:
        rails = [port.rail for port in agent.ports]
        if any(rail is not None for rail in rails):
            problems += _label_problems(agent, nics)
            ports = [
                [first_port + index for index, rail in enumerate(rails) if rail == nic] for nic in range(nics)
            ]
        else:
            problems += _count_problems(agent, nics)
            ports = [list(range(first_port + nic, first_port + len(rails), nics)) for nic in range(nics)]
        sets += zip(*ports, strict=False)
        first_port += len(rails)
    if problems:
        raise PlanError(*problems)
    return tuple(sets)


def _nics_per_host(rig: Rig, mapping: Mapping) -> int:
    if mapping.nics_per_host is not None:
        return mapping.nics_per_host
    rails = {port.rail for port in rig.ports.values() if port.rail is not None}
    if not rails:
        problem = "rails are requested, but neither the mapping nor the rig states their number"
        raise PlanError(
            Problem("mapping.rails", problem, "write nics_per_host, or rail: 0, 1, ... at the rig's ports")
        )
    return max(rails) + 1


def _label_problems(agent: RigAgent, nics: int) -> list[Problem]:
    where = f"agent {agent.name}"
    unlabelled_ports = [port.name for port in agent.ports if port.rail is None]
    if unlabelled_ports:
        return [
            Problem(
                where,
                f"port {unlabelled_ports[0]} has no rail, but other ports have one",
                "write rail: at every port",
            )
        ]
    out_of_range = [port for port in agent.ports if port.rail is not None and port.rail >= nics]
    if out_of_range:
        problem = f"port {out_of_range[0].name} has rail {out_of_range[0].rail}, but hosts have {nics} NICs (0 to {nics - 1})"
        return [Problem(where, problem, "correct the rail, or mapping.nics_per_host")]
    ports_by_rail = Counter(port.rail for port in agent.ports)
    if len({ports_by_rail[rail] for rail in range(nics)}) > 1:
        counts = ", ".join(f"{ports_by_rail[rail]} of rail {rail}" for rail in range(nics))
        remedy = "give it the same number of each: one agent carries all NICs of a host"
        return [Problem(where, f"its ports do not make up hosts of {nics} NICs: {counts}", remedy)]
    return []


def _count_problems(agent: RigAgent, nics: int) -> list[Problem]:
    if len(agent.ports) % nics == 0:
        return []
    port_count = f"{len(agent.ports)} port{'s' if len(agent.ports) > 1 else ''}"
    problem = f"it has {port_count}, which do not make up hosts of {nics} NICs"
    remedy = f"give it a multiple of {nics}: one agent carries all NICs of a host"
    return [Problem(f"agent {agent.name}", problem, remedy)]
