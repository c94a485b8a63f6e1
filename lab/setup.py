"""Makes a planned lab on this host: namespaces, veth pairs, addresses, routes and neighbours. The namespaces have no names.

Decides how to configure a host's stack so that every packet between ports crosses the switch, and no packet that an agent did
not send: neighbours are static, and the kernel announces no addresses.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct
from array import array
from collections.abc import Iterator
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from etloop.contract.base.errors import Problem, RigError
from etloop.contract.base.late_dataclass import dataclass
from etloop.lab.namespaces import inside, new_namespace, set_in_proc

if TYPE_CHECKING:
    from etloop.lab.plan import LabAgent, LabPlan, LabPort

SCOPE_LINK: Final = 253
FIRST_TABLE: Final = 1000
_RULE_PRIORITY: Final = 1000
_NO_ADDRESS_OF_ITS_OWN: Final = {"attrs": [("AF_INET6", {"attrs": [("IFLA_INET6_ADDR_GEN_MODE", 1)]})]}
"""IN6_ADDR_GEN_MODE_NONE: without a link-local address the kernel solicits neither neighbours nor routers."""
_NO_DUPLICATES: Final = 0x02
"""IFA_F_NODAD: no duplicate address detection."""
_NEVER_MS: Final = str(2**31 - 1)
"""Interval of the kernel's repeated multicast membership reports; the first goes out before the switch listens."""
_SIOCETHTOOL: Final = 0x8946
_ETHTOOL_STSO: Final = 0x0000001F


@dataclass(frozen=True, slots=True)
class LabPlace:
    """The namespaces of a lab, as descriptors of this process. They vanish when these are closed."""

    switch: int
    agents: dict[str, int]


@contextlib.contextmanager
def lab_place(plan: LabPlan) -> Iterator[LabPlace]:
    """Make a lab's namespaces and cables for the duration of the block. Raise `RigError` if the kernel refuses a part of it."""
    with contextlib.ExitStack() as stack:

        def namespace() -> int:
            descriptor = new_namespace()
            stack.callback(os.close, descriptor)
            return descriptor

        switch = namespace()
        agents = {agent.name: namespace() for agent in plan.agents}
        place = LabPlace(switch, agents)
        try:
            inside(switch, partial(_make_cables, plan, place))
            for agent in plan.agents:
                inside(agents[agent.name], partial(_configure_agent, agent, plan))
        except (NetlinkError, OSError) as error:
            reason = error.args[1] if isinstance(error, NetlinkError) else error.strerror
            remedy = (
                "see the kernel's log; the lab needs veth, and policy routing for agents with several ports"
            )
            raise RigError(
                Problem("lab", f"the kernel rejected part of the setup: {reason}", remedy)
            ) from None
        yield place


def _make_cables(plan: LabPlan, place: LabPlace) -> None:
    for scope in ("all", "default"):
        set_in_proc(f"ipv6/conf/{scope}/disable_ipv6", "1")  # the switch's ends send no packets of their own
    with IPRoute() as kernel:
        for agent in plan.agents:
            for port in agent.ports:
                peer = {
                    "ifname": port.interface,
                    "net_ns_fd": place.agents[agent.name],
                    "address": port.mac,
                    "mtu": plan.mtu_bytes,
                }
                kernel.link("add", ifname=port.switch_interface, kind="veth", mtu=plan.mtu_bytes, peer=peer)
                kernel.link("set", index=index_of(kernel, port.switch_interface), state="up")


def _configure_agent(agent: LabAgent, plan: LabPlan) -> None:
    has_ipv6 = any(
        family_of(address) == socket.AF_INET6 for port in agent.ports for address in port.addresses
    )
    for scope in ("all", "default"):
        set_in_proc(f"ipv4/conf/{scope}/rp_filter", "0")
        if not has_ipv6:
            set_in_proc(f"ipv6/conf/{scope}/disable_ipv6", "1")
    with IPRoute() as kernel:
        kernel.link("set", index=index_of(kernel, "lo"), state="up")
        for number, port in enumerate(agent.ports):
            no_tcp_offload(port.interface)
            index = index_of(kernel, port.interface)
            if has_ipv6:
                disable_ipv6_autoconf(kernel, index)
                set_in_proc(f"ipv6/conf/{port.interface}/mldv2_unsolicited_report_interval", _NEVER_MS)
            for address in port.addresses:
                add_address(kernel, index, address)
            kernel.link("set", index=index, state="up")
            _add_routes(kernel, port, index, FIRST_TABLE + number, several=len(agent.ports) > 1)
            for other_port in plan.ports:
                if other_port.attachment == port.attachment:
                    continue
                for address in other_port.addresses:
                    add_neighbour(kernel, index, address, other_port.mac)


def _add_routes(kernel: Any, port: LabPort, index: int, table: int, *, several: bool) -> None:
    """Add the routes by which packets from a port's addresses leave through it, whatever their destination."""
    families = {family_of(address) for address in port.addresses}
    for family in families:
        default_destination = "0.0.0.0/0" if family == socket.AF_INET else "::/0"
        routes: list[dict[str, int]] = [{"table": table}] if several else []
        # With several ports, the first carries packets that have no source address yet.
        routes.append({"priority": table})
        for keys in routes:
            kernel.route("add", family=family, dst=default_destination, oif=index, scope=SCOPE_LINK, **keys)
    if several:
        add_rules(kernel, port, table)


def add_rules(kernel: Any, port: LabPort, table: int) -> None:
    """Add the rules by which packets from a port's addresses are routed by the port's own table."""
    for address in port.addresses:
        source = f"{address}/{bits_of(address)}"
        kernel.rule("add", family=family_of(address), src=source, table=table, priority=_RULE_PRIORITY)


def add_neighbour(kernel: Any, index: int, address: str, mac: str) -> None:
    """Add a permanent neighbour entry to an interface: the MAC of an address."""
    family = family_of(address)
    kernel.neigh("add", family=family, dst=address, lladdr=mac, ifindex=index, state="permanent")


def disable_ipv6_autoconf(kernel: Any, index: int) -> None:
    """Keep an interface that is not up yet from soliciting neighbours and routers by IPv6."""
    if Path("/proc/sys/net/ipv6").exists():
        kernel.link("set", index=index, IFLA_AF_SPEC=_NO_ADDRESS_OF_ITS_OWN)


def add_address(kernel: Any, index: int, address: str, bits: int = 0) -> None:
    """Give an interface one address, usable at once because duplicates are not checked for.

    `bits` is the prefix length; 0: that of the address alone (/32 or /128).
    """
    family = family_of(address)
    flags = {"flags": _NO_DUPLICATES} if family == socket.AF_INET6 else {}
    prefix = bits or bits_of(address)
    kernel.addr("add", index=index, family=family, address=address, prefixlen=prefix, **flags)


def family_of(address: str) -> int:
    """Return AF_INET or AF_INET6."""
    return socket.AF_INET if ip_address(address).version == 4 else socket.AF_INET6


def bits_of(address: str) -> int:
    """Return the prefix length of the address alone: 32 or 128."""
    return ip_address(address).max_prefixlen


def index_of(kernel: Any, interface: str) -> int:
    """Return the index of an existing interface in the namespace of `kernel`."""
    index: int = kernel.link_lookup(ifname=interface)[0]
    return index


def no_tcp_offload(interface: str) -> None:
    """Turn off TSO (ethtool -K tso off), so that the stack cuts TCP segments before the link: the switch cannot."""
    ethtool(interface, _ETHTOOL_STSO, 0)


def ethtool(interface: str, command: int, value: int) -> int:
    """Send a command with a value to an interface's driver; return the value that the driver leaves. Raise OSError."""
    command_and_value = array("I", [command, value])
    request = struct.pack("16sP16x", interface.encode(), command_and_value.buffer_info()[0])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control_socket:
        fcntl.ioctl(control_socket, _SIOCETHTOOL, request)
    return command_and_value[1]
