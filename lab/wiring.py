"""Which interface of this host stands at which attachment of a topology, for a switch that brings no namespaces. Pure.

Two kinds of ends: cables that `etloop lab plug` made, whose names and hosts the plan knows; and interfaces that were there
before, behind which anybody may be. Opening them is left to `lab_attach`, making cables to `lab_plug`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.topology import Topology
from etloop.lab.plan import LONGEST_INTERFACE, LabAgent, LabPlan
from etloop.traffic.soft_switch import SoftPort

_NOT_KNOWN: Final = bytes(6)


@dataclass(frozen=True, slots=True)
class Wiring:
    """A planned lab with an interface of this host at every attachment."""

    plan: LabPlan
    """Its ports' `switch_interface` are those interfaces."""
    ports: tuple[SoftPort, ...]
    """By attachment, as the switch opens them."""
    learns: bool
    """Whether it is found out who is behind them."""

    @property
    def interfaces(self) -> tuple[str, ...]:
        """By attachment."""
        return tuple(port.interface for port in self.ports)


def cables(plan: LabPlan) -> Wiring:
    """The switch's ends of the cables that `lab plug` makes: who is behind them is known, so nothing is learned."""
    ports = tuple(
        SoftPort(port.switch_interface, bytes.fromhex(port.mac.replace(":", "")), port.addresses)
        for port in plan.ports
    )
    return Wiring(plan, ports, learns=False)


def wire(topology: Topology, plan: LabPlan, words: Sequence[str]) -> Wiring:
    """Interfaces as the command line names them, "agent/port=interface" for every attachment.

    Addresses that the topology file states are believed; who else is behind the ports is learned.
    Raises `ConfigError` with everything that is wrong.
    """
    problems: list[Problem] = []
    named: dict[str, str] = {}
    known = {attachment.rig_port for attachment in topology.attachments}
    for word in words:
        port, equals, interface = word.partition("=")
        if not equals or not interface or len(interface) > LONGEST_INTERFACE:
            remedy = (
                f"write agent/port=interface; names of interfaces have 1 to {LONGEST_INTERFACE} characters"
            )
            problems.append(Problem("--port", f'"{word[:80]}" names no interface of a port', remedy))
        elif port not in known:
            remedy = f"name one of {', '.join(sorted(known)[:8])}"
            problems.append(Problem("--port", f'the topology attaches no "{port[:64]}"', remedy))
        elif port in named:
            problems.append(Problem("--port", f"{port} is named twice", "give every port one interface"))
        elif interface in named.values():
            problems.append(
                Problem("--port", f"{interface} is named twice", "give every port its own interface")
            )
        else:
            named[port] = interface
    absent = [] if problems else sorted(known - named.keys())
    if absent:
        remedy = "name the interface of every port, or of none for cables that etloop lab plug makes"
        problems.append(Problem("--port", f"no interface is named for {', '.join(absent[:8])}", remedy))
    if problems:
        raise ConfigError(*problems)
    ports = tuple(
        SoftPort(named[attachment.rig_port], _NOT_KNOWN, attachment.addresses)
        for attachment in topology.attachments
    )
    return Wiring(_with_interfaces(plan, named), ports, learns=True)


def _with_interfaces(plan: LabPlan, named: dict[str, str]) -> LabPlan:
    return replace(
        plan,
        agents=tuple(
            replace(
                agent,
                ports=tuple(
                    replace(port, switch_interface=found, interface=found)
                    for port in agent.ports
                    for found in (named[f"{agent.name}/{port.port}"],)
                ),
            )
            for agent in plan.agents
        ),
    )


def agent_named(plan: LabPlan, name: str) -> LabAgent:
    """The agent of that name. Raises `ConfigError` if the topology has none."""
    for agent in plan.agents:
        if agent.name == name:
            return agent
    known = ", ".join(agent.name for agent in plan.agents[:8])
    raise ConfigError(Problem("lab plug", f'the topology has no agent "{name[:64]}"', f"name one of {known}"))


def others(plan: LabPlan, agent: LabAgent) -> tuple[tuple[str, str], ...]:
    """Address and MAC of every port of other agents."""
    return tuple(
        (address, port.mac)
        for other in plan.agents
        if other.name != agent.name
        for port in other.ports
        for address in port.addresses
    )
