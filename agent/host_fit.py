"""Decides whether this host, as it is now, can carry what a run assigns to it. host_reading.py reads the host.

An agent checks this right before it opens its sockets: the capabilities that it reported when it joined, or last
updated, may be out of date.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from etloop.agent.preflight import ROCE_UDP_PORT, steering_remedy
from etloop.contract.base.errors import Problem
from etloop.contract.model.assignment import Assignment, PortBackend, PortSettings
from etloop.contract.model.capabilities import (
    OUTER_HEADER_BYTES,
    Capabilities,
    Interface,
    packet_overhead_bytes,
)
from etloop.contract.model.transport import TransportSettings

_NAMED_ADDRESSES: Final = 8
"""Addresses reported per port: with a wrong interface hundreds of addresses are wrong for one reason."""


def misfits(assignment: Assignment, host: Capabilities, host_name: str) -> tuple[Problem, ...]:
    """Return a problem for each requirement of the assignment that the host, by its capabilities, cannot meet."""
    transports = assignment.transports
    return tuple(
        problem
        for port in assignment.ports
        for problem in _port_misfits(port, transports[port.transport], host, host_name)
    )


def _port_misfits(
    port: PortSettings, transport: TransportSettings, host: Capabilities, host_name: str
) -> Iterator[Problem]:
    place, path_mtu_bytes = f"port {port.name}", transport.path_mtu_bytes
    yield from _absent_addresses(port, host, host_name)
    interfaces_by_name = {
        local.name: local for address in port.addresses if (local := host.interface_of(address)) is not None
    }
    for interface in interfaces_by_name.values():
        if not interface.up:
            remedy = f"on {host_name}: ip link set dev {interface.name} up"
            yield Problem(place, f"interface {interface.name} is down", remedy)
            continue
        needed_bytes = path_mtu_bytes + _overhead_bytes(port, transport, interface)
        if 0 < interface.mtu_bytes < needed_bytes:
            short = f"interface {interface.name} has an MTU of {interface.mtu_bytes}"
            problem = f"{short}; a path MTU of {path_mtu_bytes} needs {needed_bytes}"
            remedy = f"on {host_name}: ip link set dev {interface.name} mtu {needed_bytes}; or lower transport.path_mtu"
            yield Problem(place, problem, remedy)
        yield from _steering_misfits(place, port, interface, host, host_name)


def absent_addresses(assignment: Assignment, host: Capabilities, host_name: str) -> tuple[Problem, ...]:
    """Return a problem for each port of the assignment of which the host lacks addresses: a fault of the host or the rig."""
    return tuple(problem for port in assignment.ports for problem in _absent_addresses(port, host, host_name))


def _absent_addresses(port: PortSettings, host: Capabilities, host_name: str) -> Iterator[Problem]:
    if strangers := [address for address in port.addresses if not host.has_address(address)]:
        problem = f"{_addresses_text(strangers)} not on {host_name}, which has {_interfaces_text(host)}"
        remedy = (
            f"ip address add {strangers[0]}/24 dev INTERFACE{', and so on' if len(strangers) > 1 else ''}"
        )
        yield Problem(
            f"port {port.name}",
            problem,
            f"on {host_name}: {remedy}; or correct the port's addresses in the rig",
        )


def _overhead_bytes(port: PortSettings, transport: TransportSettings, interface: Interface) -> int:
    """Return the bytes of the longest headers that a packet of the port has on the interface, on top of its payload."""
    ipv6 = any(":" in address for address in port.addresses if address in interface.addresses)
    asks_for_credit = transport.multipath.uet.credit.granted
    outer_bytes = OUTER_HEADER_BYTES if port.segments is not None else 0
    return packet_overhead_bytes(transport.kind, asks_for_credit=asks_for_credit, ipv6=ipv6) + outer_bytes


def _steering_misfits(
    where: str, port: PortSettings, interface: Interface, host: Capabilities, host_name: str
) -> Iterator[Problem]:
    """Yield a problem if an RDMA device takes the port's RoCEv2 packets in hardware, so that sockets and programs never
    see them.
    """
    if port.backend is PortBackend.VERBS or port.udp_port != ROCE_UDP_PORT:
        return
    for device in host.roce_devices:
        if device.interface == interface.name and device.driver:
            problem = f"{device.name} receives UDP port {ROCE_UDP_PORT} of {interface.name} in hardware"
            remedy = f"on {host_name}: {steering_remedy(device)}; or `backend: verbs`, which uses it"
            yield Problem(where, f"{problem}, so the port would receive no packets", remedy)


def _addresses_text(addresses: list[str]) -> str:
    if len(addresses) == 1:
        return f"address {addresses[0]} is"
    more = len(addresses) - _NAMED_ADDRESSES
    names = ", ".join(addresses[:_NAMED_ADDRESSES])
    return f"addresses {names} and {more} more are" if more > 0 else f"addresses {names} are"


def _interfaces_text(host: Capabilities) -> str:
    addresses = [
        f"{address} on {interface.name}" for interface in host.interfaces for address in interface.addresses
    ][:8]
    return ", ".join(addresses) or "no addresses"
