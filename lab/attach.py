"""A switch alone, in the foreground, between interfaces of the network namespace it is started in: `etloop lab attach`.

Decides when interfaces are fit for it and what is set on them for as long as it runs. Who is behind them, and how he got
there, is others' part: network cards of this host, or cables that `lab_plug` brings from other namespaces.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import time
from collections.abc import Callable, Iterator
from typing import Final

from etloop.contract.base.errors import ExitCode, Problem, RigError
from etloop.contract.protocol.lab import LabStatus
from etloop.lab.client import lab_taken, release
from etloop.lab.request import LabOrder
from etloop.lab.server import Lab, LabParts, measured, planned
from etloop.lab.setup import disable_ipv6_autoconf, ethtool, index_of
from etloop.lab.wiring import Wiring, cables, wire
from etloop.traffic.soft_switch import SoftLimits, SoftSwitch
from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

LOOK_S: Final = 0.05
"""Between two looks for an interface."""
_ETHTOOL_GGRO: Final = 0x2B
_ETHTOOL_SGRO: Final = 0x2C
_ETHTOOL_GFLAGS: Final = 0x25
_ETHTOOL_SFLAGS: Final = 0x26
_LRO: Final = 1 << 15


def serve_attached(
    order: LabOrder, words: tuple[str, ...], wait_s: float, report: Callable[[LabStatus], None]
) -> LabStatus:
    """Runs the switch until it is told to end, and returns its last status; `report` gets the first.

    `words` are "agent/port=interface" for every attachment, or nothing for the cables of `lab plug`.
    Raises `InputError` where it cannot run, and `RigError` when it cannot go on.
    """
    topology, plan = planned(order)
    wiring = wire(topology, plan, words) if words else cables(plan)
    described = measured(order, wiring.plan)
    directory = lab_taken(order.name)
    try:
        indices = _await(wiring.interfaces, wait_s)
        with _fit(wiring):
            limits = SoftLimits(mtu_bytes=plan.mtu_bytes, learns=wiring.learns)
            try:
                switch = SoftSwitch(topology, wiring.ports, limits)
            except RuntimeError as error:
                raise RigError(
                    Problem("lab attach", str(error), "see docs/lab.md for what it needs")
                ) from None

            def trouble() -> str:
                gone = [name for name, index in indices.items() if _index(name) != index]
                return switch.failure() or (f"{', '.join(gone)} went away" if gone else "")

            try:
                lab = Lab(order, LabParts(topology, wiring.plan, {}, switch, trouble), described)
                ended_by = asyncio.run(lab.serve(directory, report))
            finally:
                switch.stop()
            if ended_by:
                remedy = "start it again when that is fixed; what crossed it since then is not to be believed"
                raise RigError(Problem("lab attach", f"the switch ended: {ended_by}", remedy))
            return lab.status()
    finally:
        release(directory)


def _index(interface: str) -> int:
    """Of an interface; 0 if there is none."""
    try:
        return socket.if_nametoindex(interface)
    except OSError:
        return 0


def _await(interfaces: tuple[str, ...], wait_s: float) -> dict[str, int]:
    """The interfaces' numbers as soon as all are there. Raises `RigError` for those that do not come."""
    until = time.monotonic() + wait_s
    while not all((found := {name: _index(name) for name in interfaces}).values()):
        if time.monotonic() >= until:
            absent = [name for name, index in found.items() if not index]
            waited = f" (waited {wait_s:g} s)" if wait_s else ""
            raise RigError(
                *(
                    Problem(
                        f"interface {name}",
                        f"is not in this network namespace{waited}",
                        "name one that `ip link` shows with --port, or let etloop lab plug bring it",
                    )
                    for name in absent
                )
            )
        time.sleep(LOOK_S)
    return found


@contextlib.contextmanager
def _fit(wiring: Wiring) -> Iterator[None]:
    """Interfaces up, and frames on them single: joined TCP segments cannot be cut by the switch. Undone afterwards.

    Raises `RigError` with everything that is wrong with them.
    """
    with contextlib.ExitStack() as stack:
        problems: list[Problem] = []
        for interface in wiring.interfaces:
            if not _claimed(interface, stack):
                what = "a switch of another lab runs on it, and with two of them every frame would be carried twice"
                remedy = "end that one first (etloop lab down --name NAME), or name another interface"
                problems.append(Problem(f"interface {interface}", what, remedy))
                continue
            try:
                _up(interface, wiring, problems)
                stack.callback(_join, interface, _single(interface))
            except (NetlinkError, OSError) as error:
                code = error.code if isinstance(error, NetlinkError) else error.errno or 0
                remedy = "it needs CAP_NET_ADMIN and CAP_NET_RAW in this network namespace"
                problems.append(
                    Problem(f"interface {interface}", f"cannot be set up: {os.strerror(code)}", remedy)
                )
        if problems:
            raise RigError(*problems)
        yield


def _claimed(interface: str, stack: contextlib.ExitStack) -> bool:
    """Claims an interface for as long as the stack lasts; False if another switch has it.

    The claim is a name without a file, which the kernel keeps by network namespace and takes back from whoever dies.
    """
    claim = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
    try:
        claim.bind(f"\0etloop-switch-{_index(interface)}")
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        return False
    return True


def _up(interface: str, wiring: Wiring, problems: list[Problem]) -> None:
    with IPRoute() as kernel:
        index = index_of(kernel, interface)
        (link,) = kernel.get_links(index)
        mtu_bytes = int(link.get("mtu"))
        if mtu_bytes < wiring.plan.mtu_bytes:
            what = f"carries IP packets of {mtu_bytes} bytes, and the lab is to carry {wiring.plan.mtu_bytes}"
            remedy = f"ip link set {interface} mtu {wiring.plan.mtu_bytes}, or --mtu {mtu_bytes}B"
            problems.append(Problem(f"interface {interface}", what, remedy))
            return
        if not wiring.learns:
            disable_ipv6_autoconf(kernel, index)  # a cable's end says nothing of its own
        kernel.link("set", index=index, state="up")


def _single(interface: str) -> tuple[int, int]:
    """Has the kernel and the card join nothing; returns what they did before."""
    joins, flags = ethtool(interface, _ETHTOOL_GGRO, 0), ethtool(interface, _ETHTOOL_GFLAGS, 0)
    _join(interface, (0, flags & ~_LRO))
    return joins, flags


def _join(interface: str, before: tuple[int, int]) -> None:
    with contextlib.suppress(OSError):  # cards that cannot, and interfaces that are gone
        ethtool(interface, _ETHTOOL_SGRO, before[0])
    with contextlib.suppress(OSError):
        ethtool(interface, _ETHTOOL_SFLAGS, before[1])


def last_words(status: LabStatus, text: Callable[[LabStatus], str]) -> tuple[str, ExitCode]:
    """What is printed at the end, and the exit code: above 0 when the switch lost frames of its own."""
    lost = status.counters.soft_switch.overload_frames
    return text(status), ExitCode.PASS if lost == 0 else ExitCode.INCONCLUSIVE
