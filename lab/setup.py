"""Makes a planned lab on this host: namespaces, veth pairs, addresses, routes and neighbours. Nothing of it has a name.

Decides how a host's stack is set up so that every packet between ports crosses the switch, and so that no packet crosses it
that nobody sent: neighbours are known from the start, and nothing is announced.
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

from etloop.contract.base.errors import Problem, RigError
from etloop.contract.base.late_dataclass import dataclass
from etloop.lab.namespaces import inside, new_namespace, set_in_proc
from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

if TYPE_CHECKING:
    from etloop.lab.plan import LabAgent, LabPlan, LabPort

SCOPE_LINK: Final = 253
FIRST_TABLE: Final = 1000
_RULE_PRIORITY: Final = 1000
_NO_ADDRESS_OF_ITS_OWN: Final = {"attrs": [("AF_INET6", {"attrs": [("IFLA_INET6_ADDR_GEN_MODE", 1)]})]}
"""IN6_ADDR_GEN_MODE_NONE: without a link-local address the kernel asks for no neighbours and no routers."""
_NO_DUPLICATES: Final = 0x02
"""IFA_F_NODAD."""
_NEVER_MS: Final = str(2**31 - 1)
"""Between repetitions of what the kernel says of its multicast groups; the first goes before the switch listens."""
_SIOCETHTOOL: Final = 0x8946
_ETHTOOL_STSO: Final = 0x0000001F


@dataclass(frozen=True, slots=True)
class LabPlace:
    """The namespaces of a lab, by descriptors of this process. It is gone when they are closed."""

    switch: int
    agents: dict[str, int]


@contextlib.contextmanager
def lab_place(plan: LabPlan) -> Iterator[LabPlace]:
    """A lab's place for as long as the block lasts. Raises `RigError` where the kernel refuses a part of it."""
    with contextlib.ExitStack() as stack:

        def namespace() -> int:
            made = new_namespace()
            stack.callback(os.close, made)
            return made

        switch = namespace()
        agents = {agent.name: namespace() for agent in plan.agents}
        place = LabPlace(switch, agents)
        try:
            inside(switch, partial(_make_cables, plan, place))
            for agent in plan.agents:
                inside(agents[agent.name], partial(_settle, agent, plan))
        except (NetlinkError, OSError) as error:
            reason = error.args[1] if isinstance(error, NetlinkError) else error.strerror
            remedy = "look at the kernel's log; it needs veth, and policy routing for agents of several ports"
            raise RigError(Problem("lab", f"the kernel refused a part of it: {reason}", remedy)) from None
        yield place


def _make_cables(plan: LabPlan, place: LabPlace) -> None:
    for which in ("all", "default"):
        set_in_proc(f"ipv6/conf/{which}/disable_ipv6", "1")  # the switch's ends say nothing of their own
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


def _settle(agent: LabAgent, plan: LabPlan) -> None:
    speaks_ipv6 = any(
        family_of(address) == socket.AF_INET6 for port in agent.ports for address in port.addresses
    )
    for which in ("all", "default"):
        set_in_proc(f"ipv4/conf/{which}/rp_filter", "0")
        if not speaks_ipv6:
            set_in_proc(f"ipv6/conf/{which}/disable_ipv6", "1")
    with IPRoute() as kernel:
        kernel.link("set", index=index_of(kernel, "lo"), state="up")
        for number, port in enumerate(agent.ports):
            no_tcp_offload(port.interface)
            index = index_of(kernel, port.interface)
            if speaks_ipv6:
                disable_ipv6_autoconf(kernel, index)
                set_in_proc(f"ipv6/conf/{port.interface}/mldv2_unsolicited_report_interval", _NEVER_MS)
            for address in port.addresses:
                add_address(kernel, index, address)
            kernel.link("set", index=index, state="up")
            _route(kernel, port, index, FIRST_TABLE + number, several=len(agent.ports) > 1)
            for other in plan.ports:
                if other.attachment == port.attachment:
                    continue
                for address in other.addresses:
                    add_neighbour(kernel, index, address, other.mac)


def _route(kernel: Any, port: LabPort, index: int, table: int, *, several: bool) -> None:
    """What is sent from a port's addresses leaves by it, whatever the destination."""
    families = {family_of(address) for address in port.addresses}
    for family in families:
        anywhere = "0.0.0.0/0" if family == socket.AF_INET else "::/0"
        routes: list[dict[str, int]] = [{"table": table}] if several else []
        # Of several ports the first carries what has no source address yet.
        routes.append({"priority": table})
        for keys in routes:
            kernel.route("add", family=family, dst=anywhere, oif=index, scope=SCOPE_LINK, **keys)
    if several:
        add_rules(kernel, port, table)


def add_rules(kernel: Any, port: LabPort, table: int) -> None:
    """Have what is sent from a port's addresses look its way up in a table of its own."""
    for address in port.addresses:
        source = f"{address}/{bits_of(address)}"
        kernel.rule("add", family=family_of(address), src=source, table=table, priority=_RULE_PRIORITY)


def add_neighbour(kernel: Any, index: int, address: str, mac: str) -> None:
    """Tell an interface for good whose an address is."""
    family = family_of(address)
    kernel.neigh("add", family=family, dst=address, lladdr=mac, ifindex=index, state="permanent")


def disable_ipv6_autoconf(kernel: Any, index: int) -> None:
    """Keeps an interface that is not up yet from asking for neighbours and routers by IPv6."""
    if Path("/proc/sys/net/ipv6").exists():
        kernel.link("set", index=index, IFLA_AF_SPEC=_NO_ADDRESS_OF_ITS_OWN)


def add_address(kernel: Any, index: int, address: str, bits: int = 0) -> None:
    """Gives an interface one address, at work at once: nobody else has it. `bits` are those of its network; 0: its own."""
    family = family_of(address)
    flags = {"flags": _NO_DUPLICATES} if family == socket.AF_INET6 else {}
    prefix = bits or bits_of(address)
    kernel.addr("add", index=index, family=family, address=address, prefixlen=prefix, **flags)


def family_of(address: str) -> int:
    """AF_INET or AF_INET6."""
    return socket.AF_INET if ip_address(address).version == 4 else socket.AF_INET6


def bits_of(address: str) -> int:
    """Length of the prefix that is the address alone."""
    return ip_address(address).max_prefixlen


def index_of(kernel: Any, interface: str) -> int:
    """Of an interface that is there, in the namespace that `kernel` speaks to."""
    found: int = kernel.link_lookup(ifname=interface)[0]
    return found


def no_tcp_offload(interface: str) -> None:
    """Joined TCP segments cannot be cut by the switch; the host's stack cuts them before the link (ethtool -K tso off)."""
    ethtool(interface, _ETHTOOL_STSO, 0)


def ethtool(interface: str, command: int, value: int) -> int:
    """Give a command with a value to an interface's driver; return the value that it leaves. Raises OSError."""
    cell = array("I", [command, value])
    request = struct.pack("16sP16x", interface.encode(), cell.buffer_info()[0])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        fcntl.ioctl(asked, _SIOCETHTOOL, request)
    return cell[1]
