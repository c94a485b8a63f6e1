"""`rig.yaml`: the agents, the ports they own, and how they reach the controller.

Decides the keys of a rig file and their defaults. The agent finds out whether an address exists when it opens its ports;
`placement` decides which rank uses which port.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from etloop.contract.base.clock import NS_PER_US
from etloop.contract.base.ip_address import MOST_ADDRESSES, parse_addresses
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import (
    QuantityError,
    format_duration,
    format_rate,
    parse_duration_ns,
    parse_name,
    parse_rate_bps,
)
from etloop.contract.base.value_form import formed, pattern_form
from etloop.contract.base.value_parsers import bounded, integer, one_of, words, yes_or_no
from etloop.contract.base.yaml_reader import ConfigFile, Section, read_document
from etloop.contract.model.assignment import PortBackend
from etloop.contract.model.topology import MOST_RAILS
from etloop.controller.inputs.rig_counters import read_counters
from etloop.counters.settings import SourceSettings
from etloop.dut_profiles.reading.catalogue import is_path

ROCE_UDP_PORT: Final = 4791
DEFAULT_BIND: Final = "tcp://127.0.0.1:7420"
MOST_QUEUES: Final = 64
_ENDPOINT: Final = r"tcp://(\*|[A-Za-z0-9._-]+|\[[0-9A-Fa-f:]+\]):([0-9]{1,5})"
_BACKENDS: Final = {
    "udp": PortBackend.UDP,
    "packet": PortBackend.PACKET,
    "xdp": PortBackend.XDP,
    "verbs": PortBackend.VERBS,
}
_FRAMING: Final = (PortBackend.PACKET, PortBackend.XDP)
"""Backends that can set the UDP source port of every packet."""


@dataclass(frozen=True, slots=True)
class RigPort:
    """One interface towards the device under test and the addresses that ranks may use on it."""

    name: str
    addresses: tuple[str, ...]
    link_bps: int
    udp_port: int
    segmentation_offload: bool
    rail: int | None = None
    """Index of the NIC of a host that the port represents if ranks are mapped to rails."""
    backend: PortBackend = PortBackend.UDP
    interface: str = ""
    queues: int = 1
    """Number of engine threads of the port; an xdp port uses as many receive queues of its interface."""
    busy_poll_us: int = 0
    """Busy poll time of an xdp port; 0 if interrupts drive its interface."""
    receive_ring: bool = False
    """Whether a packet port receives through a ring in memory shared with the kernel."""
    device: str = ""
    """RDMA device of a verbs port, as `rdma link` lists it."""
    gid_index: int = -1
    """Index into the GID table of a verbs port's device; -1 to find the entry by address."""
    card: str = ""
    """Name of the network card whose planes are the ports of the agent with this name, in their order; "" without a card."""

    @property
    def most_threads(self) -> int:
        """Return the number of engine threads of the port once it has ranks."""
        return 1 if self.backend is PortBackend.VERBS else self.queues


@dataclass(frozen=True, slots=True)
class RigAgent:
    """One agent process. Agents with the same `host` share a machine and therefore its cores."""

    name: str
    host: str
    ports: tuple[RigPort, ...]


@dataclass(frozen=True, slots=True)
class Security:
    """Admission of agents: `insecure`, or CURVE with the controller's secret key and the agents' public keys.

    Neither is needed as long as the controller binds a loopback address.
    """

    insecure: bool
    server_key: Path | None
    authorised_keys: Path | None


@dataclass(frozen=True, slots=True)
class RigDut:
    """The device under test that the ports are connected to."""

    profile: str
    """Name of a shipped profile, or path of a file (`dut_profiles.reading.catalogue`)."""
    counters: tuple[SourceSettings, ...] = ()
    """Sources that its counters are read from."""


@dataclass(frozen=True, slots=True)
class Rig:
    """The contents of `rig.yaml`."""

    bind: str
    agents: tuple[RigAgent, ...]
    security: Security
    dut: RigDut | None = None
    topology: Path | None = None
    """Topology file that the ports are attached to, if there is one."""
    lab: str = ""
    """Name of the lab that is used as the device; "" without one."""

    @property
    def ports(self) -> dict[str, RigPort]:
        """Return every port by its label, "agent/port", in the order of the file."""
        return {f"{agent.name}/{port.name}": port for agent in self.agents for port in agent.ports}

    def only(self, labels: Collection[str]) -> Rig:
        """Return the rig with these ports, and the agents that have any of them."""
        agents = (
            replace(agent, ports=tuple(port for port in agent.ports if f"{agent.name}/{port.name}" in labels))
            for agent in self.agents
        )
        return replace(self, agents=tuple(agent for agent in agents if agent.ports))


def parse_rig(text: bytes, source: str, directory: Path) -> Rig:
    """Parse the YAML text of a rig. `source` names the file in messages; key files are relative to `directory`.

    Raises `ConfigError` with all mistakes of the file.
    """
    file = ConfigFile(source)
    top = read_document(text, file)
    controller = top.section("controller")
    bind = controller.optional("bind", _endpoint, DEFAULT_BIND)
    controller.close()
    security = _read_security(top.section("security"), directory)
    agents = tuple(_read_agent(agent) for agent in top.sections("agents", "list the agents with their ports"))
    _refuse_repetitions(top, agents)
    dut = _read_dut(top.section("dut"), directory, agents) if top.has("dut") else None
    topology = top.optional("topology", words, "")
    lab = top.optional("lab", parse_name, "")
    top.close()
    file.refuse_mistakes()
    return Rig(bind, agents, security, dut, directory / topology if topology else None, lab)


def _read_dut(section: Section, directory: Path, agents: tuple[RigAgent, ...]) -> RigDut:
    remedy = "name a shipped profile (etloop dut list) or a file that ends in .yaml"
    profile = section.required("profile", words, "", remedy)
    ports = {f"{agent.name}/{port.name}" for agent in agents for port in agent.ports}
    counters = read_counters(section, directory, ports)
    section.close()
    return RigDut(str(directory / profile) if is_path(profile) else profile, counters)


def _read_security(section: Section, directory: Path) -> Security:
    insecure = section.optional("insecure", yes_or_no, False)
    curve = section.section("curve")
    keys: list[Path | None] = []
    for key, remedy in (
        ("server_key", "name the controller's secret key file"),
        ("authorised_keys", "name the directory with the agents' public key files"),
    ):
        has_curve = section.has("curve")
        file_name = curve.required(key, words, "", remedy) if has_curve else curve.optional(key, words, "")
        keys.append(directory / file_name if file_name else None)
    curve.close()
    if insecure and section.has("curve"):
        section.mistake("insecure", "insecure is true although curve keys are given", "remove one of the two")
    section.close()
    return Security(insecure, keys[0], keys[1])


def _read_agent(section: Section) -> RigAgent:
    agent_name = section.required("name", parse_name, "?", "write the --name of the agent's etloop-agent")
    agent = RigAgent(
        name=agent_name,
        host=section.optional("host", parse_name, agent_name),
        ports=tuple(_read_port(port) for port in section.sections("ports", "list the ports of the agent")),
    )
    if len({port.name for port in agent.ports}) < len(agent.ports):
        section.mistake("ports", "two ports have the same name", "give every port of the agent its own name")
    if len({port.segmentation_offload for port in agent.ports}) > 1:
        problem = "segmentation_offload differs between the ports of one agent"
        section.mistake("ports", problem, "set it alike on all of them, or give each port its own agent")
    _check_cards(section, agent.ports)
    section.close()
    return agent


def _read_port(section: Section) -> RigPort:
    port_name = section.required("name", parse_name, "?", "name the port, such as p0")
    remedy = 'list the addresses of the port, or a range such as "10.0.1.1-10.0.1.8"'
    if not section.has("addresses"):
        section.mistake("addresses", "is missing", remedy)
    no_addresses: tuple[str, ...] = ()
    ranges = section.texts("addresses", parse_addresses, no_addresses)
    addresses = tuple(address for addresses in ranges for address in addresses)
    if len(addresses) > MOST_ADDRESSES:
        section.mistake("addresses", f"{len(addresses)} addresses", f"give at most {MOST_ADDRESSES}")
    if section.has("addresses") and not ranges:
        section.mistake("addresses", "the list is empty", remedy)
    rate = bounded(parse_rate_bps, 1_000_000, 3_200_000_000_000, format_rate)
    poll = bounded(parse_duration_ns, NS_PER_US, 1000 * NS_PER_US, format_duration)
    port = RigPort(
        name=port_name,
        addresses=addresses,
        link_bps=section.required("link", rate, 1, 'write the speed of the link, such as "100Gbps"'),
        udp_port=section.optional("udp_port", integer(1, 65535), ROCE_UDP_PORT),
        segmentation_offload=section.optional("segmentation_offload", yes_or_no, True),
        rail=section.optional("rail", integer(0, MOST_RAILS - 1), None),
        backend=section.optional("backend", one_of(_BACKENDS), PortBackend.UDP),
        interface=section.optional("interface", _interface, ""),
        queues=section.optional("queues", integer(1, MOST_QUEUES), 1),
        busy_poll_us=section.optional("busy_poll", poll, 0) // NS_PER_US,
        receive_ring=section.optional("receive_ring", yes_or_no, False),
        device=section.optional("device", _interface, ""),
        gid_index=section.optional("gid_index", integer(0, 255), -1),
        card=section.optional("card", parse_name, ""),
    )
    _check_device(section, port)
    _check_queues(section, port)
    if port.busy_poll_us and port.backend is not PortBackend.XDP:
        section.mistake(
            "busy_poll", "only an xdp port polls its interface", "remove it, or write backend: xdp"
        )
    if port.receive_ring and port.backend is not PortBackend.PACKET:
        section.mistake(
            "receive_ring", "only a packet port has a ring", "remove it, or write backend: packet"
        )
    section.close()
    return port


def _check_queues(section: Section, port: RigPort) -> None:
    if port.queues > 1 and port.backend is PortBackend.VERBS:
        section.mistake(
            "queues",
            "the network card executes the queue pairs of a verbs port, and one thread polls its completions",
            "remove it, or write another backend",
        )


def _check_device(section: Section, port: RigPort) -> None:
    verbs = port.backend is PortBackend.VERBS
    if verbs and not port.device:
        remedy = "name the RDMA device as `rdma link` lists it, such as mlx5_0"
        section.mistake("device", "is missing: a verbs port needs an RDMA device", remedy)
    for key in ("device", "gid_index"):
        if not verbs and section.has(key):
            section.mistake(key, "only a verbs port has an RDMA device", "remove it, or write backend: verbs")
    if verbs and port.interface:
        remedy = "remove it; the device's interface is the one that has the addresses"
        section.mistake("interface", "a verbs port is named by its device", remedy)
    if verbs and port.udp_port != ROCE_UDP_PORT:
        section.mistake("udp_port", "a network card uses port 4791 and no other", "remove it")
    if port.gid_index >= 0 and len(port.addresses) > 1:
        problem = f"one GID for {len(port.addresses)} addresses"
        section.mistake(
            "gid_index", problem, "remove it (each address then uses its own GID), or give one address"
        )


def _check_cards(section: Section, ports: Sequence[RigPort]) -> None:
    """Report every port that differs from the first one of its card in a value that planes must share."""
    first_plane: dict[str, RigPort] = {}
    for port in ports:
        if port.card:
            _check_plane(section, first_plane.setdefault(port.card, port), port)


def _check_plane(section: Section, first: RigPort, port: RigPort) -> None:
    name = f"port {port.name} of card {port.card}"
    if port.backend not in _FRAMING:
        detail = (
            f"{name} is a {port.backend.name.lower()} port, whose packets have one source port a queue pair"
        )
        section.mistake("ports", detail, "write backend: packet or xdp, or remove card")
    if port.queues > 1:
        section.mistake("ports", f"{name} has queues; planes of a card have none", "remove queues, or card")
    for detail, first_value, value in (
        ("link", format_rate(first.link_bps), format_rate(port.link_bps)),
        ("backend", first.backend.name.lower(), port.backend.name.lower()),
        ("udp_port", str(first.udp_port), str(port.udp_port)),
        ("number of addresses", str(len(first.addresses)), str(len(port.addresses))),
        ("family of addresses", _family(first), _family(port)),
    ):
        if value != first_value:
            remedy = "give all planes of a card the same, or write another card"
            section.mistake(
                "ports", f"{name} has {detail} {value}, its plane {first.name} has {first_value}", remedy
            )


def _family(port: RigPort) -> str:
    return "IPv6" if any(":" in address for address in port.addresses) else "IPv4"


def _refuse_repetitions(top: Section, agents: tuple[RigAgent, ...]) -> None:
    names: set[str] = set()
    owner: dict[str, str] = {}
    for agent in agents:
        if agent.name in names:
            top.mistake("agents", f'two agents are called "{agent.name}"', "give every agent its own name")
        names.add(agent.name)
        for port in agent.ports:
            label = f"{agent.name}/{port.name}"
            duplicates = [address for address in port.addresses if address in owner]
            if duplicates:
                problem = f"address {duplicates[0]} is given to {owner[duplicates[0]]} and to {label}"
                more = f" (and {len(duplicates) - 1} more)" if len(duplicates) > 1 else ""
                top.mistake("agents", problem + more, "give every address to one port, once")
            owner.update((address, label) for address in port.addresses)
            repeats = len(port.addresses) - len(set(port.addresses))
            if repeats:
                top.mistake("agents", f"{label} lists {repeats} addresses twice", "list every address once")


@formed(pattern_form("name of an interface", "[!-.0-9;-~]{1,15}"))
def _interface(text: str) -> str:
    # Names that the kernel accepts (Linux: dev_valid_name), restricted to printable ASCII.
    if not re.fullmatch(r"[!-.0-~]{1,15}", text) or text in (".", "..") or ":" in text:
        raise QuantityError(
            f'"{text[:64]}" is not the name of an interface', "write it as `ip link` lists it"
        )
    return text


@formed(pattern_form("endpoint", _ENDPOINT))
def _endpoint(text: str) -> str:
    match = re.fullmatch(_ENDPOINT, text)
    if match is None or not 0 <= int(match[2]) <= 65535:
        remedy = f'write transport, address and port, such as "{DEFAULT_BIND}"'
        raise QuantityError(f'"{text[:64]}" is not an endpoint', remedy)
    return text
