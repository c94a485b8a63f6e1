"""Which ports of the rig together carry one host: a port by itself, or with rails one port for each of the host's NICs.

NIC k of every host sits on a port of rail k. Ports say their rail (`rail: k`), or the ports of an agent count through the
rails in their order. All NICs of a host belong to one agent, because the scale-up model that joins them is the engine's.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from etloop.contract.base.errors import PlanError, Problem

if TYPE_CHECKING:
    from etloop.controller.inputs.rig import Rig, RigAgent
    from etloop.controller.inputs.scenario.mapping import Mapping

PortSet = tuple[int, ...]
"""Ports that carry a host, by NIC; numbered as the rig lists its ports, agent by agent."""


def port_sets(rig: Rig, mapping: Mapping) -> tuple[PortSet, ...]:
    """What hosts can be put on, in the order of the rig.

    Raises `PlanError` with every agent whose ports do not make up whole hosts.
    """
    if not mapping.rails:
        return tuple((port,) for port in range(len(rig.ports)))
    nics = _nics_per_host(rig, mapping)
    sets: list[PortSet] = []
    problems: list[Problem] = []
    first = 0
    for agent in rig.agents:
        rails = [port.rail for port in agent.ports]
        if any(rail is not None for rail in rails):
            problems += _label_problems(agent, nics)
            ports = [[first + at for at, rail in enumerate(rails) if rail == nic] for nic in range(nics)]
        else:
            problems += _count_problems(agent, nics)
            ports = [list(range(first + nic, first + len(rails), nics)) for nic in range(nics)]
        sets += zip(*ports, strict=False)
        first += len(rails)
    if problems:
        raise PlanError(*problems)
    return tuple(sets)


def _nics_per_host(rig: Rig, mapping: Mapping) -> int:
    if mapping.nics_per_host is not None:
        return mapping.nics_per_host
    rails = {port.rail for port in rig.ports.values() if port.rail is not None}
    if not rails:
        what = "rails are asked for, but neither the mapping nor the rig says how many there are"
        raise PlanError(
            Problem("mapping.rails", what, "write nics_per_host, or rail: 0, 1, ... at the rig's ports")
        )
    return max(rails) + 1


def _label_problems(agent: RigAgent, nics: int) -> list[Problem]:
    where = f"agent {agent.name}"
    unnamed = [port.name for port in agent.ports if port.rail is None]
    if unnamed:
        return [Problem(where, f"port {unnamed[0]} has no rail, others have", "write rail: at every port")]
    beyond = [port for port in agent.ports if port.rail is not None and port.rail >= nics]
    if beyond:
        what = (
            f"port {beyond[0].name} is of rail {beyond[0].rail}, and hosts have {nics} NICs (0 to {nics - 1})"
        )
        return [Problem(where, what, "correct the rail, or mapping.nics_per_host")]
    count = Counter(port.rail for port in agent.ports)
    if len({count[rail] for rail in range(nics)}) > 1:
        found = ", ".join(f"{count[rail]} of rail {rail}" for rail in range(nics))
        remedy = "give it equally many of each: one agent carries all NICs of a host"
        return [Problem(where, f"its ports do not make up hosts of {nics} NICs: {found}", remedy)]
    return []


def _count_problems(agent: RigAgent, nics: int) -> list[Problem]:
    if len(agent.ports) % nics == 0:
        return []
    have = f"{len(agent.ports)} port{'s' if len(agent.ports) > 1 else ''}"
    what = f"it has {have}, which do not make up hosts of {nics} NICs"
    remedy = f"give it a multiple of {nics}: one agent carries all NICs of a host"
    return [Problem(f"agent {agent.name}", what, remedy)]
