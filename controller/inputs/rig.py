"""`rig.yaml`: the agents, the ports they own, and how they reach the controller.

Declares the keys of a rig file, and decides the rules between them. The agent finds out whether an address exists when it opens
its ports; `placement` decides which rank uses which port.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from etloop.contract.base.clock import NS_PER_US
from etloop.contract.base.errors import Problem
from etloop.contract.base.ip_address import MOST_ADDRESSES, parse_addresses
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.setting import (
    group,
    groups,
    list_setting,
    optional_group,
    required_setting,
    setting,
    setting_like,
)
from etloop.contract.base.settings_reader import read_file
from etloop.contract.base.units import (
    QuantityError,
    format_duration,
    format_rate,
    parse_duration_ns,
    parse_name,
    parse_rate_bps,
)
from etloop.contract.base.value_form import DURATION, TEXT, pattern_form, with_form, with_limits
from etloop.contract.base.value_parsers import file_name, integer, one_of, with_bounds, words, yes_or_no
from etloop.contract.model.assignment import PortBackend
from etloop.contract.model.topology import MOST_RAILS
from etloop.controller.inputs.file_kinds import refuse_other_kind
from etloop.counters.settings import MOST_SOURCES, SourceSettings
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
_link_rate: Final = with_bounds(parse_rate_bps, 1_000_000, 3_200_000_000_000, format_rate)
_poll: Final = with_bounds(parse_duration_ns, NS_PER_US, 1000 * NS_PER_US, format_duration)


@with_form(with_limits(DURATION, "1us to 1ms"))
def _poll_us(text: str) -> int:
    return _poll(text) // NS_PER_US


@with_form(pattern_form("name of an interface", "[!-.0-9;-~]{1,15}"))
def _interface(text: str) -> str:
    # Names that the kernel accepts (Linux: dev_valid_name), restricted to printable ASCII.
    if not re.fullmatch(r"[!-.0-~]{1,15}", text) or text in (".", "..") or ":" in text:
        raise QuantityError(
            f'"{text[:64]}" is not the name of an interface', "write it as `ip link` lists it"
        )
    return text


@with_form(pattern_form("endpoint", _ENDPOINT))
def _endpoint(text: str) -> str:
    match = re.fullmatch(_ENDPOINT, text)
    if match is None or not 0 <= int(match[2]) <= 65535:
        remedy = f'write transport, address and port, such as "{DEFAULT_BIND}"'
        raise QuantityError(f'"{text[:64]}" is not an endpoint', remedy)
    return text


@with_form(TEXT)
def _profile(text: str) -> str | Path:
    """Parse the name of a shipped profile, or the path of a file."""
    return Path(words(text)) if is_path(text) else words(text)


@dataclass(frozen=True, slots=True)
class RigPort:
    """One interface towards the device under test and the addresses that ranks may use on it."""

    name: str = required_setting("name", parse_name, "?", "name the port, such as p0")
    """Name of the port in results."""
    link_bps: int = required_setting("link", _link_rate, 1, 'write the speed of the link, such as "100Gbps"')
    """Rate of the link."""
    addresses: tuple[str, ...] = list_setting(
        "addresses",
        parse_addresses,
        remedy='list the addresses of the port, or a range such as "10.0.1.1-10.0.1.8"',
        is_flat=True,
    )
    """Addresses that ranks may use, one per rank, as a range or a list."""
    udp_port: int = setting("udp_port", integer(1, 65535), ROCE_UDP_PORT)
    """UDP port that packets are sent to."""
    segmentation_offload: bool = setting("segmentation_offload", yes_or_no, True)
    """Let the kernel segment large sends (UDP GSO); the same for all ports of an agent."""
    rail: int | None = setting("rail", integer(0, MOST_RAILS - 1), None)
    """Index of the NIC of a host that the port represents, where ranks are mapped to rails."""
    backend: PortBackend = setting("backend", one_of(_BACKENDS), PortBackend.UDP)
    """How packets are sent and received; see docs/ports.md."""
    interface: str = setting("interface", _interface, "")
    """Network interface; found by the addresses if left out."""
    queues: int = setting("queues", integer(1, MOST_QUEUES), 1)
    """Engine threads of the port; an xdp port uses as many receive queues of its interface, which must be all of them."""
    busy_poll_us: int = setting("busy_poll", _poll_us, 0)
    """Busy poll time of an xdp port; interrupts drive its interface if left out."""
    receive_ring: bool = setting("receive_ring", yes_or_no, False)
    """Receive frames of a packet port through a ring in memory shared with the kernel; see docs/ports.md."""
    device: str = setting("device", _interface, "")
    """RDMA device of a verbs port, as `rdma link` lists it."""
    gid_index: int = setting("gid_index", integer(0, 255), -1)
    """Index into the GID table of a verbs port's device; found by address if left out."""
    card: str = setting("card", parse_name, "")
    """Network card of the port: ports of an agent with the same card are its planes, in their order; see docs/mrc.md."""

    @property
    def most_threads(self) -> int:
        """Return the number of engine threads of the port once it has ranks."""
        return 1 if self.backend is PortBackend.VERBS else self.queues

    @property
    def ip_family(self) -> str:
        """Return "IPv4" or "IPv6"."""
        return "IPv6" if any(":" in address for address in self.addresses) else "IPv4"

    def broken_rules(self, keys: Collection[str]) -> Iterator[Problem]:
        """Yield keys that the backend of the port does not have or needs."""
        verbs = self.backend is PortBackend.VERBS
        if len(self.addresses) > MOST_ADDRESSES:
            yield Problem("addresses", f"{len(self.addresses)} addresses", f"give at most {MOST_ADDRESSES}")
        if verbs and not self.device:
            remedy = "name the RDMA device as `rdma link` lists it, such as mlx5_0"
            yield Problem("device", "is missing: a verbs port needs an RDMA device", remedy)
        for key in sorted({"device", "gid_index"} & set(keys)):
            if not verbs:
                yield Problem(
                    key, "only a verbs port has an RDMA device", "remove it, or write backend: verbs"
                )
        if verbs and self.interface:
            remedy = "remove it; the device's interface is the one that has the addresses"
            yield Problem("interface", "a verbs port is named by its device", remedy)
        if verbs and self.udp_port != ROCE_UDP_PORT:
            yield Problem("udp_port", "a network card uses port 4791 and no other", "remove it")
        if verbs and self.queues > 1:
            yield Problem(
                "queues",
                "the network card executes the queue pairs of a verbs port, and one thread polls its completions",
                "remove it, or write another backend",
            )
        if self.gid_index >= 0 and len(self.addresses) > 1:
            yield Problem(
                "gid_index",
                f"one GID for {len(self.addresses)} addresses",
                "remove it (each address then uses its own GID), or give one address",
            )
        if self.busy_poll_us and self.backend is not PortBackend.XDP:
            remedy = "remove it, or write backend: xdp"
            yield Problem("busy_poll", "only an xdp port polls its interface", remedy)
        if self.receive_ring and self.backend is not PortBackend.PACKET:
            yield Problem(
                "receive_ring", "only a packet port has a ring", "remove it, or write backend: packet"
            )

    def broken_rules_of_planes(self, first: RigPort) -> Iterator[Problem]:
        """Yield what makes the port unfit as a plane of its card, or different from the `first` plane."""
        name = f"port {self.name} of card {self.card}"
        if self.backend not in _FRAMING:
            detail = f"{name} is a {self.backend.name.lower()} port, whose packets have one source port a queue pair"
            yield Problem("ports", detail, "write backend: packet or xdp, or remove card")
        if self.queues > 1:
            yield Problem("ports", f"{name} has queues; planes of a card have none", "remove queues, or card")
        for detail, first_value, value in (
            ("link", format_rate(first.link_bps), format_rate(self.link_bps)),
            ("backend", first.backend.name.lower(), self.backend.name.lower()),
            ("udp_port", str(first.udp_port), str(self.udp_port)),
            ("number of addresses", str(len(first.addresses)), str(len(self.addresses))),
            ("family of addresses", first.ip_family, self.ip_family),
        ):
            if value != first_value:
                difference = f"{name} has {detail} {value}, its plane {first.name} has {first_value}"
                remedy = "give all planes of a card the same, or write another card"
                yield Problem("ports", difference, remedy)


@dataclass(frozen=True, slots=True)
class RigAgent:
    """One agent process. Agents with the same `host` share a machine and therefore its cores."""

    name: str = required_setting("name", parse_name, "?", "write the --name of the agent's etloop-agent")
    """Name of the agent, as `etloop-agent --name` gives it."""
    host: str = setting_like("host", parse_name, "name")
    """Machine of the agent: agents of one host share its cores. The agent's name if left out."""
    ports: tuple[RigPort, ...] = groups(RigPort, "ports", remedy="list the ports of the agent")
    """Ports of the agent towards the device."""

    def broken_rules(self, _: Collection[str]) -> Iterator[Problem]:
        """Yield what differs or repeats between the ports of the agent."""
        if len({port.name for port in self.ports}) < len(self.ports):
            remedy = "give every port of the agent its own name"
            yield Problem("ports", "two ports have the same name", remedy)
        if len({port.segmentation_offload for port in self.ports}) > 1:
            problem = "segmentation_offload differs between the ports of one agent"
            yield Problem("ports", problem, "set it alike on all of them, or give each port its own agent")
        first_plane: dict[str, RigPort] = {}
        for port in self.ports:
            if port.card:
                yield from port.broken_rules_of_planes(first_plane.setdefault(port.card, port))


@dataclass(frozen=True, slots=True)
class Curve:
    """Keys of CURVE."""

    server_key: Path = required_setting(
        "server_key", file_name, Path(), "name the controller's secret key file"
    )
    """File of the controller's secret key."""
    authorised_keys: Path = required_setting(
        "authorised_keys", file_name, Path(), "name the directory with the agents' public key files"
    )
    """Directory of the public keys of agents that may connect."""


@dataclass(frozen=True, slots=True)
class Security:
    """Admission of agents. Neither key is needed as long as the controller binds a loopback address."""

    insecure: bool = setting("insecure", yes_or_no, False)
    """Admit any agent; for closed networks."""
    curve: Curve | None = optional_group(Curve, "curve")
    """Admit agents by their keys (CURVE)."""

    def broken_rules(self, _: Collection[str]) -> Iterator[Problem]:
        """Yield a contradiction."""
        if self.insecure and self.curve is not None:
            yield Problem(
                "insecure", "insecure is true although curve keys are given", "remove one of the two"
            )


@dataclass(frozen=True, slots=True)
class RigDut:
    """The device under test that the ports are connected to."""

    stated_profile: str | Path = required_setting(
        "profile", _profile, "", "name a shipped profile (etloop dut list) or a file that ends in .yaml"
    )
    """Profile of the device: the name of a shipped one (`etloop dut list`), or a file that ends in .yaml."""
    counters: tuple[SourceSettings, ...] = groups(SourceSettings, "counters", most=MOST_SOURCES)
    """Sources of the device's counters."""

    @property
    def profile(self) -> str:
        """Return the name of a shipped profile, or the path of a file (`dut_profiles.reading.catalogue`)."""
        return str(self.stated_profile)

    def broken_rules(self, _: Collection[str]) -> Iterator[Problem]:
        """Yield names of sources and ports of the device that are used twice."""
        for name, uses in Counter(source.name for source in self.counters).items():
            if uses > 1:
                yield Problem(
                    "counters", f'{uses} sources are called "{name}"', "give each a name of its own"
                )
        for source in self.counters:
            for port, uses in Counter(source.ports.values()).items():
                if uses > 1:
                    problem = f"{source.name}: {uses} ports of the rig are connected to {port}"
                    remedy = "give each rig port its own port of the device"
                    yield Problem("counters", problem, remedy)


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """Where agents reach the controller."""

    bind: str = setting("bind", _endpoint, DEFAULT_BIND)
    """Endpoint that agents connect to; `*` is any address of the host."""


@dataclass(frozen=True, slots=True)
class Rig:
    """The contents of `rig.yaml`."""

    controller: ControllerSettings = group(ControllerSettings, "controller")
    """Where agents reach the controller."""
    security: Security = group(Security, "security")
    """How agents are admitted; not needed on a loopback address."""
    agents: tuple[RigAgent, ...] = groups(RigAgent, "agents", remedy="list the agents with their ports")
    """The agent processes."""
    dut: RigDut | None = optional_group(RigDut, "dut")
    """The device under test."""
    topology: Path | None = setting("topology", file_name, None)
    """Topology file that the ports are attached to."""
    lab: str = setting("lab", parse_name, "")
    """Name of the lab that is used as the device."""

    @property
    def bind(self) -> str:
        """Return the endpoint that agents connect to."""
        return self.controller.bind

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

    def broken_rules(self, _: Collection[str]) -> Iterator[Problem]:
        """Yield names and addresses that are used twice, and ports of sources that no agent has."""
        names: set[str] = set()
        owner: dict[str, str] = {}
        for agent in self.agents:
            if agent.name in names:
                yield Problem(
                    "agents", f'two agents are called "{agent.name}"', "give every agent its own name"
                )
            names.add(agent.name)
            for port in agent.ports:
                label = f"{agent.name}/{port.name}"
                if duplicates := [address for address in port.addresses if address in owner]:
                    problem = f"address {duplicates[0]} is given to {owner[duplicates[0]]} and to {label}"
                    more = f" (and {len(duplicates) - 1} more)" if len(duplicates) > 1 else ""
                    yield Problem("agents", problem + more, "give every address to one port, once")
                owner.update((address, label) for address in port.addresses)
                if repeats := len(port.addresses) - len(set(port.addresses)):
                    problem = f"{label} lists {repeats} addresses twice"
                    yield Problem("agents", problem, "list every address once")
        for source in self.dut.counters if self.dut is not None else ():
            for label in sorted(source.ports.keys() - self.ports.keys()):
                problem = f'{source.name} names port "{label[:64]}", which no agent of the rig has'
                yield Problem("dut.counters", problem, "write AGENT/PORT as the rig names them")


def parse_rig(text: bytes, source: str, directory: Path) -> Rig:
    """Parse the YAML text of a rig. `source` names the file in messages; files are relative to `directory`.

    Raises `ConfigError` with all mistakes of the file.
    """
    refuse_other_kind(text, source, "rig")
    return read_file(Rig, text, source, directory)
