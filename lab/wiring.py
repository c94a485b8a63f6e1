"""Maps the attachments of a topology to interfaces of this host, for a switch that creates no namespaces. Pure.

There are two kinds: cables that `etloop lab plug` made, whose names and hosts the plan knows; and existing interfaces with
unknown hosts behind them. `attach` opens them, `plug` makes cables.
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
    """The plan, with these interfaces as its ports' `switch_interface`."""
    ports: tuple[SoftPort, ...]
    """By attachment, as the switch opens them."""
    learns: bool
    """Whether the switch learns which hosts are behind them."""

    @property
    def interfaces(self) -> tuple[str, ...]:
        """Return the interfaces by attachment."""
        return tuple(port.interface for port in self.ports)


def cables(plan: LabPlan) -> Wiring:
    """Return the switch's ends of the cables that `lab plug` makes: the hosts behind them are known and not learned."""
    ports = tuple(
        SoftPort(port.switch_interface, bytes.fromhex(port.mac.replace(":", "")), port.addresses)
        for port in plan.ports
    )
    return Wiring(plan, ports, learns=False)


def wire(topology: Topology, plan: LabPlan, words: Sequence[str]) -> Wiring:
    """Parse interfaces from the command line, "agent/port=interface" for every attachment.

    Addresses that the topology file states are static; other hosts behind the ports are learned. Raise `ConfigError` with all
    problems.
    """
    problems: list[Problem] = []
    interface_by_port: dict[str, str] = {}
    rig_ports = {attachment.rig_port for attachment in topology.attachments}
    for word in words:
        port, equals, interface = word.partition("=")
        if not equals or not interface or len(interface) > LONGEST_INTERFACE:
            remedy = (
                f"write agent/port=interface; names of interfaces have 1 to {LONGEST_INTERFACE} characters"
            )
            problems.append(Problem("--port", f'"{word[:80]}" is not AGENT/PORT=INTERFACE', remedy))
        elif port not in rig_ports:
            remedy = f"choose one of {', '.join(sorted(rig_ports)[:8])}"
            problems.append(Problem("--port", f'the topology attaches no "{port[:64]}"', remedy))
        elif port in interface_by_port:
            problems.append(Problem("--port", f"{port} is listed twice", "give every port one interface"))
        elif interface in interface_by_port.values():
            problems.append(
                Problem("--port", f"{interface} is listed twice", "give every port its own interface")
            )
        else:
            interface_by_port[port] = interface
    missing = [] if problems else sorted(rig_ports - interface_by_port.keys())
    if missing:
        remedy = "give the interface of every port, or of none if etloop lab plug creates them"
        problems.append(Problem("--port", f"no interface is given for {', '.join(missing[:8])}", remedy))
    if problems:
        raise ConfigError(*problems)
    ports = tuple(
        SoftPort(interface_by_port[attachment.rig_port], _NOT_KNOWN, attachment.addresses)
        for attachment in topology.attachments
    )
    return Wiring(_replace_interfaces(plan, interface_by_port), ports, learns=True)


def _replace_interfaces(plan: LabPlan, named: dict[str, str]) -> LabPlan:
    return replace(
        plan,
        agents=tuple(
            replace(
                agent,
                ports=tuple(
                    replace(port, switch_interface=interface, interface=interface)
                    for port in agent.ports
                    for interface in (named[f"{agent.name}/{port.port}"],)
                ),
            )
            for agent in plan.agents
        ),
    )


def agent_named(plan: LabPlan, name: str) -> LabAgent:
    """Return the agent of that name. Raise `ConfigError` if the topology has none."""
    for agent in plan.agents:
        if agent.name == name:
            return agent
    known_names = ", ".join(agent.name for agent in plan.agents[:8])
    raise ConfigError(
        Problem("lab plug", f'the topology has no agent "{name[:64]}"', f"name one of {known_names}")
    )


def others(plan: LabPlan, agent: LabAgent) -> tuple[tuple[str, str], ...]:
    """Return address and MAC of every port of the other agents, one pair per address."""
    return tuple(
        (address, port.mac)
        for other_agent in plan.agents
        if other_agent.name != agent.name
        for port in other_agent.ports
        for address in port.addresses
    )
