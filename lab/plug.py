"""Plugs the ports of one agent into a switch that runs in another network namespace of this host (`etloop lab attach`).

Decides how an existing namespace, usually a container's, gets a port: a veth pair into the switch's namespace, addresses, and
routes to the other agents' addresses only, so that its other interfaces and routes stay unchanged. Both namespaces are
identified by processes in them; entering them, or the right to, is not needed.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from etloop.contract.base.errors import ConfigError, Problem, RigError
from etloop.lab.setup import (
    FIRST_TABLE,
    SCOPE_LINK,
    add_address,
    add_neighbour,
    add_rules,
    bits_of,
    disable_ipv6_autoconf,
    family_of,
    index_of,
    no_tcp_offload,
)
from etloop.lab.wiring import others

if TYPE_CHECKING:
    from etloop.lab.plan import LabAgent, LabPlan, LabPort


def plug(plan: LabPlan, agent: LabAgent, switch_pid: int) -> tuple[str, ...]:
    """Give this process's network namespace the ports of the agent; return a sentence about each.

    Ports that are plugged already stay unchanged. The switch's ends stay down until the switch opens them, so that the agent's
    ends have a carrier only while it runs. Raise `RigError` if the kernel refuses, `ConfigError` if there is no process
    `switch_pid` or if it is in this very namespace.
    """
    _refuse_same_namespace(switch_pid)
    if len(agent.ports) > 1:
        _refuse_strict_paths()
    messages = []
    for number, port in enumerate(agent.ports):
        port_place = f"port {agent.name}/{port.port}"
        try:
            with IPRoute() as kernel:
                if _is_plugged(kernel, port):
                    messages.append(f"{port_place}: {port.interface} is already plugged in")
                    continue
                _make(kernel, port, plan.mtu_bytes, switch_pid)
                try:
                    _configure(kernel, plan, agent, number)
                except (NetlinkError, OSError):
                    kernel.link("del", index=index_of(kernel, port.interface))
                    raise
        except (NetlinkError, OSError) as error:
            code = error.code if isinstance(error, NetlinkError) else error.errno or 0
            raise RigError(
                Problem(port_place, f"the kernel rejected it: {os.strerror(code)}", _kernel_remedy(code))
            ) from None
        messages.append(
            f"{port_place}: {port.interface}, {len(port.addresses)} addresses from {port.addresses[0]}"
        )
    return tuple(messages)


def _refuse_same_namespace(switch_pid: int) -> None:
    # Namespaces of other users' processes cannot be read; the kernel reports the problem later.
    process_directory = Path("/proc", str(switch_pid))
    if not process_directory.exists():
        remedy = "give the PID of etloop lab attach as seen from here (1 in its container)"
        raise ConfigError(Problem("--into", f"no process {switch_pid} exists", remedy))
    try:
        is_same = (process_directory / "ns/net").readlink() == Path("/proc/thread-self/ns/net").readlink()
    except PermissionError:
        return
    if is_same:
        problem = f"process {switch_pid} is in this network namespace, so traffic to it would not leave the host's stack"
        raise ConfigError(Problem("--into", problem, "run the switch in a network namespace of its own"))


def _refuse_strict_paths() -> None:
    for scope in ("all", "default"):
        try:
            is_strict = Path(f"/proc/sys/net/ipv4/conf/{scope}/rp_filter").read_text().strip() == "1"
        except FileNotFoundError:
            continue  # a kernel without IPv4
        if is_strict:
            problem = (
                "drops packets that arrive at an agent's second port, because the return route uses its first"
            )
            remedy = f"set net.ipv4.conf.{scope}.rp_filter to 0 (sysctls: of the container)"
            raise RigError(Problem(f"net.ipv4.conf.{scope}.rp_filter=1", problem, remedy))


def _is_plugged(kernel: Any, port: LabPort) -> bool:
    for index in kernel.link_lookup(ifname=port.interface):
        (link,) = kernel.get_links(index)
        if link.get("address") == port.mac:
            return True
        problem = f"an interface {port.interface} already exists"
        remedy = "remove it, or rename the port in the topology file"
        raise RigError(Problem(f"interface {port.interface}", problem, remedy))
    return False


def _make(kernel: Any, port: LabPort, mtu_bytes: int, switch_pid: int) -> None:
    kernel.link(
        "add",
        ifname=port.interface,
        kind="veth",
        address=port.mac,
        mtu=mtu_bytes,
        peer={"ifname": port.switch_interface, "net_ns_pid": switch_pid, "mtu": mtu_bytes},
    )


def _configure(kernel: Any, plan: LabPlan, agent: LabAgent, number: int) -> None:
    port = agent.ports[number]
    index = index_of(kernel, port.interface)
    disable_ipv6_autoconf(kernel, index)
    no_tcp_offload(port.interface)
    for address in port.addresses:
        add_address(kernel, index, address)
    kernel.link("set", index=index, state="up")
    has_several_ports = len(agent.ports) > 1
    families = {family_of(address) for address in port.addresses}
    for address, mac in others(plan, agent):
        family = family_of(address)
        if family not in families:
            continue
        add_neighbour(kernel, index, address, mac)
        destination = f"{address}/{bits_of(address)}"
        keys = {"family": family, "dst": destination, "oif": index, "scope": SCOPE_LINK}
        if has_several_ports:
            kernel.route("add", table=FIRST_TABLE + number, **keys)
        # With several ports, the first carries packets that have no source address yet.
        kernel.route("add", priority=FIRST_TABLE + number, **keys)
    if has_several_ports:
        add_rules(kernel, port, FIRST_TABLE + number)


def _kernel_remedy(code: int) -> str:
    match os.strerror(code):
        case "Operation not permitted":
            return "run it with CAP_NET_ADMIN over both network namespaces (cap_add: [NET_ADMIN], and no user namespace between)"
        case "File exists":
            return "the switch already has an interface of that name: another process is plugged in as this agent; stop it first"
        case "Operation not supported":
            return "load the kernel's veth driver (modprobe veth) on the host"
        case _:
            return "see the kernel's log"
