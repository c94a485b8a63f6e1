"""Plans the lab of a topology: its namespaces, interfaces and addresses, and the rig file of its agents. Pure.

Decides names, addresses and how much load the soft switch would have to carry. `setup` creates it, `capacity` measures what the
host can carry.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, collapse_addresses, ip_address, ip_network
from typing import Final

from etloop.contract.base.errors import ConfigError, PlanError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import format_rate
from etloop.contract.model.topology import Attachment, Topology

MOST_LAB_PORTS: Final = 64
MOST_LAB_SWITCHES: Final = 64
MOST_ADDRESSES: Final = 250
"""Per port to which the lab gives addresses."""
_ADDRESSES_KEPT: Final = 1024
DEFAULT_ADDRESSES: Final = 8
DEFAULT_MTU_BYTES: Final = 4200
"""Path MTU 4096 with its headers."""
LEAST_MTU_BYTES: Final = 1280
MOST_MTU_BYTES: Final = 9000
DEFAULT_BIND: Final = "tcp://127.0.0.1:7420"
LINE_OVERHEAD_BYTES: Final = 14 + 4 + 20
"""In addition to an IP packet on the line: Ethernet header, FCS, preamble and gap."""
AGENTS_SHARE: Final = 0.5
"""The share of the measured forwarding rate that a lab may use: the agents need the rest of the host."""
LAB_PROFILE: Final = "soft-switch"
SHORTEST_INTERVAL_MS: Final = 20
LONGEST_INTERVAL_MS: Final = 100
INTERVAL_MS_PER_PORT: Final = 5
"""Time between two readings of a lab's counters: a reading takes about 0.3 ms of CPU time for each switch port."""
_MAC: Final = "02:e7:00:00:{:02x}:{:02x}"
LONGEST_INTERFACE: Final = 15
"""IFNAMSIZ without the terminating zero."""


@dataclass(frozen=True, slots=True)
class LabPort:
    """One planned attachment: a veth pair between an agent's namespace and the switch's."""

    attachment: int
    port: str
    """Name in the rig file."""
    interface: str
    """Interface at the agent's end."""
    switch_interface: str
    """Interface at the switch's end."""
    mac: str
    addresses: tuple[str, ...]
    rate_bps: int
    rail: int | None
    end: str
    """The switch port that it attaches to, as "leaf0/3"."""


@dataclass(frozen=True, slots=True)
class LabAgent:
    """One namespace and its ports."""

    name: str
    ports: tuple[LabPort, ...]


@dataclass(frozen=True, slots=True)
class LabPlan:
    """A whole lab before it is created."""

    agents: tuple[LabAgent, ...]
    mtu_bytes: int
    bind: str
    """Address at which the controller listens on the host; agents reach it at the same address."""

    @property
    def ports(self) -> tuple[LabPort, ...]:
        """Return all ports, in the order of the topology's attachments."""
        return tuple(
            sorted((port for agent in self.agents for port in agent.ports), key=lambda port: port.attachment)
        )

    @property
    def rate_bps(self) -> int:
        """Return the sum of the rates of all ports."""
        return sum(port.rate_bps for port in self.ports)


def peer_networks(plan: LabPlan) -> tuple[str, ...]:
    """Return the fewest networks that hold exactly the addresses of all ports."""
    ipv4_networks: list[IPv4Network] = []
    ipv6_networks: list[IPv6Network] = []
    for port in plan.ports:
        for address in port.addresses:
            network = ip_network(address)
            ipv4_networks.append(network) if isinstance(network, IPv4Network) else ipv6_networks.append(
                network
            )
    return tuple(
        str(network) for network in (*collapse_addresses(ipv4_networks), *collapse_addresses(ipv6_networks))
    )


@dataclass(frozen=True, slots=True)
class Capacity:
    """The measured forwarding rate of this host's soft switch, with frames as long as the MTU allows."""

    frames_per_s: int
    mtu_bytes: int

    @property
    def held_bps(self) -> int:
        """Return the rate that this host sustains, as the sum of the rates of all attachments, all of them receiving."""
        return round(self.frames_per_s * AGENTS_SHARE) * line_bits(self.mtu_bytes)


def line_bits(mtu_bytes: int) -> int:
    """Return the bits that the longest frame takes on the line."""
    return 8 * (mtu_bytes + LINE_OVERHEAD_BYTES)


def plan_lab(
    topology: Topology,
    *,
    mtu_bytes: int = DEFAULT_MTU_BYTES,
    addresses: int = DEFAULT_ADDRESSES,
    bind: str = DEFAULT_BIND,
) -> LabPlan:
    """Return the lab of a topology; ports without addresses in its file get `addresses` of them each.

    Raise `PlanError` for a topology that is too large for one host, `ConfigError` for addresses that clash.
    """
    problems = _too_large(topology)
    if problems:
        raise PlanError(*problems)
    if not 1 <= addresses <= MOST_ADDRESSES:
        remedy = f"choose 1 to {MOST_ADDRESSES}"
        raise ConfigError(Problem("--addresses", f"{addresses} addresses of a port", remedy))
    if not LEAST_MTU_BYTES <= mtu_bytes <= MOST_MTU_BYTES:
        remedy = f"write {LEAST_MTU_BYTES} to {MOST_MTU_BYTES}"
        raise ConfigError(Problem("--mtu", f"{mtu_bytes} bytes", remedy))
    by_agent: dict[str, list[LabPort]] = {}
    for number, attachment in enumerate(topology.attachments):
        agent, _, port = attachment.rig_port.partition("/")
        agent_ports = by_agent.setdefault(agent, [])
        agent_ports.append(
            LabPort(
                attachment=number,
                port=port,
                interface=port
                if len(port) <= LONGEST_INTERFACE and port != "lo"
                else f"port{len(agent_ports)}",
                switch_interface=f"sw{number}",
                mac=_MAC.format(number >> 8, number & 255),
                addresses=attachment.addresses
                or _addresses(number, addresses, six=topology.segments is not None),
                rate_bps=topology.port_of(attachment.end).rate_bps,
                rail=attachment.rail,
                end=topology.port_name(attachment.end),
            )
        )
    _refuse_clashes(topology.attachments, by_agent)
    agents = tuple(LabAgent(name, tuple(ports)) for name, ports in by_agent.items())
    return LabPlan(agents, mtu_bytes, bind)


def check_capacity(plan: LabPlan, capacity: Capacity) -> None:
    """Raise `PlanError` if the rates of the topology exceed what this host was measured to hold."""
    if plan.rate_bps <= capacity.held_bps:
        return
    each_bps = capacity.held_bps // max(len(plan.ports), 1)
    problem = (
        f"its {len(plan.ports)} attachments need {format_rate(plan.rate_bps)} in total; this host sustains "
        f"{about_rate(capacity.held_bps)} in frames of {plan.mtu_bytes} bytes (measured just now)"
    )
    remedy = (
        f"lower the rates to about {about_rate(each_bps)} each, or give --allow-overcommit to start it anyway"
    )
    raise PlanError(Problem("topology", problem, remedy))


def about_rate(rate_bps: int) -> str:
    """Format a rate rounded down to two significant digits."""
    unit = 10 ** max(len(str(rate_bps)) - 2, 0)
    return format_rate(max(rate_bps // unit * unit, 1))


def rig_text(plan: LabPlan, *, backend: str = "udp", topology: str = "", lab: str = "") -> str:
    """Return a rig file for the agents of the lab; `topology` is the path of its topology file from there, for the twin.

    With `lab`, the lab's name, the file also names the lab that applies link events and whose switches' counters are read.
    """
    lines = [
        "# Written by etloop lab up. The agents run in namespaces of this host and reach the controller through it.",
        f"controller: {{bind: '{plan.bind}'}}",
        *([f"topology: {json.dumps(topology)}"] if topology else []),
        *([f"lab: {lab}"] if lab else []),
        *(_dut_lines(plan, lab) if lab else []),
        "agents:",
    ]
    for agent in plan.agents:
        lines += [f"  - name: {agent.name}", "    host: here", "    ports:"]
        for port in agent.ports:
            keys = [
                f"name: {port.port}",
                f"addresses: [{', '.join(_address_ranges(port.addresses))}]",
                f"link: {_rate(port.rate_bps)}",
            ]
            if backend != "udp":
                keys += [f"backend: {backend}", f"interface: {port.interface}"]
            if port.rail is not None:
                keys.append(f"rail: {port.rail}")
            lines.append(f"      - {{{', '.join(keys)}}}")
    return "\n".join(lines) + "\n"


def _dut_lines(plan: LabPlan, lab: str) -> list[str]:
    ports = [
        f"        {json.dumps(f'{agent.name}/{port.port}')}: {json.dumps(port.end)}"
        for agent in plan.agents
        for port in agent.ports
    ]
    return [
        "dut:",
        f"  profile: {LAB_PROFILE}",
        "  counters:",
        "    - reader: soft_switch",
        f"      lab: {lab}",
        f"      interval: {_interval_ms(len(plan.ports))}ms",
        "      ports:",
        *ports,
    ]


def _interval_ms(ports: int) -> int:
    """Return the time between two readings of a lab with that many attachments."""
    return min(LONGEST_INTERVAL_MS, max(SHORTEST_INTERVAL_MS, INTERVAL_MS_PER_PORT * ports))


def _rate(rate_bps: int) -> str:
    return f"{rate_bps // 1_000_000}Mbps" if rate_bps % 1_000_000 == 0 else f"{rate_bps}bps"


def runs_of(addresses: Sequence[str]) -> list[tuple[str, str]]:
    """Return the first and last address of every run of consecutive addresses, in their order."""
    runs: list[tuple[str, str]] = []
    for address in addresses:
        if runs and ip_address(runs[-1][1]) + 1 == ip_address(address):
            runs[-1] = (runs[-1][0], address)
        else:
            runs.append((address, address))
    return runs


# Cached because the labs of a sweep's points have the same addresses.
@lru_cache(maxsize=MOST_LAB_PORTS)
def _address_ranges(addresses: tuple[str, ...]) -> tuple[str, ...]:
    """Return addresses as rig files write them, runs of consecutive ones as ranges."""
    return tuple(f'"{first}"' if first == last else f'"{first}-{last}"' for first, last in runs_of(addresses))


@lru_cache(maxsize=_ADDRESSES_KEPT)
def _stays_on_host(address: str) -> bool:
    parsed = ip_address(address)
    return parsed.is_loopback or parsed.is_link_local


def _addresses(attachment: int, count: int, *, six: bool) -> tuple[str, ...]:
    """Return addresses of a port; IPv6 where switches forward by segments, which need it."""
    # 198.18.0.0/15 and 2001:2::/48 are reserved for benchmarks of network devices (RFC 2544, RFC 5180).
    if six:
        return tuple(f"2001:2:0:{attachment + 1:x}::{host + 1:x}" for host in range(count))
    return tuple(f"198.18.{attachment + 1}.{host + 1}" for host in range(count))


def _too_large(topology: Topology) -> list[Problem]:
    return [
        Problem(
            "topology",
            f"{count} {objects}",
            f"a lab on one host has at most {most}; make the topology smaller",
        )
        for count, most, objects in (
            (len(topology.attachments), MOST_LAB_PORTS, "attachments"),
            (len(topology.switches), MOST_LAB_SWITCHES, "switches"),
        )
        if count > most
    ]


def _refuse_clashes(attachments: tuple[Attachment, ...], by_agent: dict[str, list[LabPort]]) -> None:
    owner: dict[str, str] = {}
    problems = []
    for agent, ports in by_agent.items():
        for port in ports:
            for address in port.addresses:
                if _stays_on_host(address):
                    problem = f"packets to {address} would not leave their host for the switch"
                    remedy = "give addresses such as 10.0.1.1 or fd00::1, or none to let the lab choose"
                    problems.append(Problem(f"attachment {agent}/{port.port}", problem, remedy))
                if address in owner:
                    problem = f"{address} is also an address of {owner[address]}"
                    remedy = "give every address to one port, or none to let the lab choose"
                    problems.append(Problem(f"attachment {agent}/{port.port}", problem, remedy))
                owner[address] = f"{agent}/{port.port}"
    if problems:
        raise ConfigError(*problems)
