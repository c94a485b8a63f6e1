"""Decides whether this agent may send what a run assigns to it: destinations, UDP ports, rates and TTL.

The limits are set where the agent runs, so that a controller's key alone cannot start a flood. By default the agent
sends only to the networks that its ports' own addresses are in. Pure; the engine itself also enforces the limits of
rate and TTL (`traffic.send_limits`).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import Final

import numpy as np

from etloop.contract.base.errors import ConfigError, Mistakes, Problem
from etloop.contract.base.ip_address import ip_text
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import QuantityError, parse_at, parse_rate_bps
from etloop.contract.model.assignment import Assignment, Path, PortBackend, UdpStream
from etloop.contract.model.capabilities import Capabilities
from etloop.contract.model.frame_streams import FrameWork
from etloop.traffic.send_limits import UNLIMITED, SendLimits

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_NAMED: Final = 8
"""Addresses reported by name: with a wrong rig hundreds are wrong for one reason."""
_MOST_ENTRIES: Final = 4096
"""Longest list that an option accepts."""
_MOST_PACKETS_PER_S: Final = 10**12
_UDP_PORTS: Final = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")
USUAL_UDP_PORTS: Final = ((1024, 65_535),)
"""Default range: RoCEv2's 4791 and other ports a rig may use, but no port of a well-known service."""


@dataclass(frozen=True, slots=True)
class Guard:
    """Limits on the traffic of an agent."""

    networks: tuple[Network, ...] | None = None
    """Allowed destinations; None: the networks of its ports' own addresses."""
    udp_ports: tuple[tuple[int, int], ...] = USUAL_UDP_PORTS
    """Allowed destination UDP ports, as ranges of first and last."""
    limits: SendLimits = field(default=UNLIMITED)
    raw_frames: bool = False
    """Frames may be sent and captured as the controller lays them out."""


def read_guard(
    allow_peers: str | None,
    allow_udp_ports: str | None,
    most_rate: str | None,
    most_packet_rate: str | None,
    ttl: int | None,
    *,
    raw_frames: bool = False,
) -> Guard:
    """Return the limits given by options of `etloop-agent run`; None: not given. Raises `ConfigError` with all mistakes."""
    mistakes = Mistakes()

    def parse_option(option: str, text: str | None, parse: Callable[[str], object]) -> object:
        return None if text is None else mistakes.of(partial(parse_at, option, parse, text))

    networks = parse_option("--allow-peers", allow_peers, _parse_networks)
    ports = parse_option("--allow-udp-ports", allow_udp_ports, _parse_udp_ports)
    bps = parse_option("--most-rate", most_rate, parse_rate_bps)
    packets = parse_option("--most-packet-rate", most_packet_rate, _parse_packet_rate)
    if ttl is not None and not 1 <= ttl <= 255:
        mistakes.problems.append(
            Problem("--ttl", f"expected a TTL from 1 to 255, got {ttl}", "give a number from 1 to 255")
        )
    mistakes.refuse(ConfigError)
    assert networks is None or isinstance(networks, tuple)
    assert ports is None or isinstance(ports, tuple)
    assert bps is None or isinstance(bps, int)
    assert packets is None or isinstance(packets, int)
    return Guard(networks, ports or USUAL_UDP_PORTS, SendLimits(bps or 0, packets or 0, ttl or 0), raw_frames)


def forbidden_parts(
    assignment: Assignment, guard: Guard, host: Capabilities, prefixes: Mapping[str, int], host_name: str
) -> tuple[Problem, ...]:
    """Return a problem for each part of an assignment that the guard forbids; `prefixes` maps the host's own addresses
    to lengths.
    """
    return (
        *_target_problems(assignment, guard, host, prefixes, host_name),
        *_udp_port_problems(assignment, guard, host_name),
        *_rate_problems(assignment, guard.limits, host_name),
        *_frame_problems(assignment, guard, host_name),
    )


def own_networks(
    addresses: Sequence[str], host: Capabilities, prefixes: Mapping[str, int]
) -> tuple[Network, ...]:
    """Return the networks that contain the given own addresses of a host; an address with unknown prefix counts alone."""
    local = [ipaddress.ip_network(network_text) for network_text in host.local_networks]
    networks: dict[Network, None] = {}
    for text in addresses:
        address = ipaddress.ip_address(text)
        network = ipaddress.ip_network((address, prefixes.get(text, address.max_prefixlen)), strict=False)
        wider = [block for block in local if block.version == address.version and address in block]
        networks.update(dict.fromkeys([network, *wider]))
    return tuple(networks)


def _target_problems(
    assignment: Assignment, guard: Guard, host: Capabilities, prefixes: Mapping[str, int], host_name: str
) -> Iterator[Problem]:
    own_addresses = {address for port in assignment.ports for address in port.addresses}
    allowed = (
        own_networks(sorted(own_addresses), host, prefixes) if guard.networks is None else guard.networks
    )
    outside: dict[str, str] = {}
    for address, source in _targets(assignment):
        if address not in own_addresses and not _is_within(address, allowed):
            outside.setdefault(address, source)
    if not outside:
        return
    sends = ", ".join(map(str, allowed[:_NAMED])) + (
        f" and {len(allowed) - _NAMED} more" if len(allowed) > _NAMED else ""
    )
    for address, source in list(outside.items())[:_NAMED]:
        problem = f"requests traffic to {address}; this agent sends only to {sends or 'its own addresses'}"
        remedy = (
            f"if this is intended: on {host_name}, start etloop-agent run with "
            f"--allow-peers and a network that contains {address}"
        )
        yield Problem(source, problem, remedy)
    if len(outside) > _NAMED:
        yield Problem(
            "the run",
            f"requests traffic to {len(outside) - _NAMED} more addresses outside the allowed networks",
            "correct the rig or --allow-peers",
        )


def _targets(assignment: Assignment) -> Iterator[tuple[str, str]]:
    """Yield every destination address with its purpose: both ends of each connection (data one way, ACKs the other) and
    streams.
    """
    columns = assignment.connections
    on_wire = np.asarray(columns.path) == Path.WIRE
    for column in (columns.src_ip, columns.dst_ip):
        for raw in np.unique(np.asarray(column)[on_wire]):
            yield ip_text(raw), "a connection"
    for stream in _sending_streams(assignment):
        yield stream.dst_ip, f"background {stream.name}"


def _udp_port_problems(assignment: Assignment, guard: Guard, host_name: str) -> Iterator[Problem]:
    sources_by_udp_port = {port.udp_port: f"port {port.name}" for port in assignment.ports}
    sources_by_udp_port |= {
        stream.udp_port: f"background {stream.name}" for stream in _sending_streams(assignment)
    }
    for number, source in sorted(sources_by_udp_port.items()):
        if not any(first <= number <= last for first, last in guard.udp_ports):
            ranges = ",".join(
                f"{first}-{last}" if last > first else str(first) for first, last in guard.udp_ports
            )
            problem = f"requests traffic to UDP port {number}; this agent sends only to UDP ports {ranges}"
            yield Problem(
                source, problem, f"if this is intended: on {host_name}, --allow-udp-ports {ranges},{number}"
            )


def _rate_problems(assignment: Assignment, limits: SendLimits, host_name: str) -> Iterator[Problem]:
    streams = _sending_streams(assignment)
    bps = sum(stream.rate_bps for stream in streams)
    packets_per_s = sum(-(-stream.rate_bps // (8 * stream.datagram_bytes)) for stream in streams)
    source = f"background {', '.join(stream.name for stream in streams[:_NAMED])}"
    if limits.most_bps and bps > limits.most_bps:
        problem = f"requests {bps} bit/s; this agent sends at most {limits.most_bps} (--most-rate)"
        yield Problem(source, problem, f"lower their rates; or on {host_name}, raise --most-rate")
    if limits.most_packets_per_s and packets_per_s > limits.most_packets_per_s:
        problem = f"requests {packets_per_s} packets/s; this agent sends at most {limits.most_packets_per_s} (--most-packet-rate)"
        yield Problem(source, problem, f"lower their rates; or on {host_name}, raise --most-packet-rate")
    if not limits.limits_rate and not limits.hop_limit:
        return
    for port in assignment.ports:
        if port.backend is PortBackend.VERBS:
            problem = "a network card sends in hardware, where the agent cannot enforce a rate or a TTL"
            remedy = (
                f"use another backend; or on {host_name}, remove --most-rate, --most-packet-rate and --ttl"
            )
            yield Problem(f"port {port.name}", problem, remedy)


def _frame_problems(assignment: Assignment, guard: Guard, host_name: str) -> Iterator[Problem]:
    """Yield a problem if streams of frames or captures need a permission, which no limit of packets is enforced with."""
    if assignment.frames == FrameWork():
        return
    if not guard.raw_frames:
        problem = "requests frames with headers of its own, or captures; this agent does not allow them"
        yield Problem("raw flows", problem, f"on {host_name}, start etloop-agent run with --allow-raw-frames")
    elif guard.limits.limits_rate or guard.limits.hop_limit:
        problem = "cannot be held to a rate or a TTL by this agent"
        yield Problem(
            "raw flows", problem, f"on {host_name}, remove --most-rate, --most-packet-rate and --ttl"
        )


def _sending_streams(assignment: Assignment) -> tuple[UdpStream, ...]:
    return tuple(stream for stream in assignment.streams if stream.sends)


def _is_within(address: str, networks: Sequence[Network]) -> bool:
    destination = ipaddress.ip_address(address)
    return any(network.version == destination.version and destination in network for network in networks)


def _parse_networks(text: str) -> tuple[Network, ...]:
    try:
        networks = tuple(ipaddress.ip_network(entry.strip()) for entry in _entries(text))
    except ValueError as error:
        raise QuantityError(str(error)[:200], "write networks such as 10.0.0.0/16,fd00::/64") from None
    return networks


def _parse_udp_ports(text: str) -> tuple[tuple[int, int], ...]:
    ranges = []
    for entry in _entries(text):
        match = _UDP_PORTS.fullmatch(entry.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if not 1 <= first <= last <= 65_535:
            raise QuantityError(
                f'"{entry[:64]}" is not a range of UDP ports', "write ports such as 4791,20000-20999"
            )
        ranges.append((first, last))
    return tuple(ranges)


def _parse_packet_rate(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 14 and 1 <= int(text) <= _MOST_PACKETS_PER_S):
        raise QuantityError(
            f'"{text[:64]}" is not a number of packets per second', "write a number such as 1000000"
        )
    return int(text)


def _entries(text: str) -> list[str]:
    entries = text.split(",")
    if len(entries) > _MOST_ENTRIES:
        raise QuantityError(
            f"has {len(entries)} entries, the limit is {_MOST_ENTRIES}", f"give at most {_MOST_ENTRIES}"
        )
    return entries
