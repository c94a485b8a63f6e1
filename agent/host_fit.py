"""Judges whether this host, as it is now, can carry what a run assigns to it. Reading the host is host_reading.py's part.

An agent asks this in the moment in which it is about to open its sockets: what it told when it joined, or its controller
heard last, may be old.
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
"""Of one port: with a wrong interface hundreds of addresses are wrong for one reason."""


def misfits(assignment: Assignment, host: Capabilities, host_name: str) -> tuple[Problem, ...]:
    """What the host cannot do that the assignment asks of it, as far as the host tells what it can."""
    transports = assignment.transports
    return tuple(
        problem
        for port in assignment.ports
        for problem in _of_port(port, transports[port.transport], host, host_name)
    )


def _of_port(
    port: PortSettings, transport: TransportSettings, host: Capabilities, host_name: str
) -> Iterator[Problem]:
    where, path_mtu_bytes = f"port {port.name}", transport.path_mtu_bytes
    if strangers := [address for address in port.addresses if not host.has_address(address)]:
        what = f"{_addresses_text(strangers)} not on {host_name}, which has {_interfaces_text(host)}"
        remedy = (
            f"ip address add {strangers[0]}/24 dev INTERFACE{', and so on' if len(strangers) > 1 else ''}"
        )
        yield Problem(where, what, f"on {host_name}: {remedy}; or correct the port's addresses in the rig")
    used = {each.name: each for address in port.addresses if (each := host.interface_of(address)) is not None}
    for interface in used.values():
        if not interface.up:
            remedy = f"on {host_name}: ip link set dev {interface.name} up"
            yield Problem(where, f"interface {interface.name} is down", remedy)
            continue
        needed_bytes = path_mtu_bytes + _overhead_bytes(port, transport, interface)
        if 0 < interface.mtu_bytes < needed_bytes:
            short = f"interface {interface.name} has an MTU of {interface.mtu_bytes}"
            what = f"{short}; a path MTU of {path_mtu_bytes} needs {needed_bytes}"
            remedy = f"on {host_name}: ip link set dev {interface.name} mtu {needed_bytes}; or lower transport.path_mtu"
            yield Problem(where, what, remedy)
        yield from _steering_misfits(where, port, interface, host, host_name)


def _overhead_bytes(port: PortSettings, transport: TransportSettings, interface: Interface) -> int:
    """Of the longest header that a packet of the port has there."""
    ipv6 = any(":" in address for address in port.addresses if address in interface.addresses)
    asks = transport.multipath.uet.credit.granted
    led_by_bytes = OUTER_HEADER_BYTES if port.segments is not None else 0
    return packet_overhead_bytes(transport.kind, asks_for_credit=asks, ipv6=ipv6) + led_by_bytes


def _steering_misfits(
    where: str, port: PortSettings, interface: Interface, host: Capabilities, host_name: str
) -> Iterator[Problem]:
    """A network card that takes RoCEv2 packets for itself lets neither sockets nor programs see them."""
    if port.backend is PortBackend.VERBS or port.udp_port != ROCE_UDP_PORT:
        return
    for device in host.roce_devices:
        if device.interface == interface.name and device.driver:
            what = f"{device.name} takes UDP {ROCE_UDP_PORT} of {interface.name} in hardware"
            remedy = f"on {host_name}: {steering_remedy(device)}; or `backend: verbs`, which uses it"
            yield Problem(where, f"{what}, so that the port would receive nothing", remedy)


def _addresses_text(addresses: list[str]) -> str:
    if len(addresses) == 1:
        return f"address {addresses[0]} is"
    more = len(addresses) - _NAMED_ADDRESSES
    named = ", ".join(addresses[:_NAMED_ADDRESSES])
    return f"addresses {named} and {more} more are" if more > 0 else f"addresses {named} are"


def _interfaces_text(host: Capabilities) -> str:
    some = [f"{address} on {each.name}" for each in host.interfaces for address in each.addresses][:8]
    return ", ".join(some) or "no addresses"
