"""Runs a switch alone, in the foreground, between interfaces of the network namespace it is started in: `etloop lab attach`.

Decides when interfaces are fit for it and which settings they have while it runs. The peers behind the interfaces are set up
elsewhere: NICs of this host, or cables that `plug` brings from other namespaces.
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

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from etloop.contract.base.errors import ExitCode, Problem, RigError
from etloop.contract.protocol.lab import LabStatus
from etloop.lab.client import lab_taken, release
from etloop.lab.request import LabOrder
from etloop.lab.server import Lab, LabParts, describe, plan_order
from etloop.lab.setup import disable_ipv6_autoconf, ethtool, index_of
from etloop.lab.wiring import Wiring, cables, wire
from etloop.traffic.soft_switch import SoftLimits, SoftSwitch

LOOK_S: Final = 0.05
"""Polling interval while waiting for an interface."""
_ETHTOOL_GGRO: Final = 0x2B
_ETHTOOL_SGRO: Final = 0x2C
_ETHTOOL_GFLAGS: Final = 0x25
_ETHTOOL_SFLAGS: Final = 0x26
_LRO: Final = 1 << 15


def serve_attached(
    order: LabOrder, words: tuple[str, ...], wait_s: float, report: Callable[[LabStatus], None]
) -> LabStatus:
    """Run the switch until it is asked to end, and return its last status; `report` gets the first.

    `words` are "agent/port=interface" for every attachment, or empty for the cables of `lab plug`. Raise `InputError` if the
    switch cannot run, and `RigError` if it fails later.
    """
    topology, plan = plan_order(order)
    wiring = wire(topology, plan, words) if words else cables(plan)
    description = describe(order, wiring.plan)
    directory = lab_taken(order.name)
    try:
        indices = _await_interfaces(wiring.interfaces, wait_s)
        with _prepare_interfaces(wiring):
            limits = SoftLimits(mtu_bytes=plan.mtu_bytes, learns=wiring.learns)
            try:
                switch = SoftSwitch(topology, wiring.ports, limits)
            except RuntimeError as error:
                raise RigError(
                    Problem("lab attach", str(error), "see docs/lab.md for its requirements")
                ) from None

            def trouble() -> str:
                missing = [name for name, index in indices.items() if _index(name) != index]
                return switch.failure() or (f"{', '.join(missing)} disappeared" if missing else "")

            try:
                lab = Lab(order, LabParts(topology, wiring.plan, {}, switch, trouble), description)
                ended_by = asyncio.run(lab.serve(directory, report))
            finally:
                switch.stop()
            if ended_by:
                remedy = "start it again when that is fixed; discard results since then"
                raise RigError(Problem("lab attach", f"the switch ended: {ended_by}", remedy))
            return lab.status()
    finally:
        release(directory)


def _index(interface: str) -> int:
    """Return the index of an interface, or 0 if there is none. Raises `OSError` where that could not be asked."""
    try:
        return socket.if_nametoindex(interface)
    except OSError as error:
        if error.errno not in (None, errno.ENODEV, errno.ENXIO):  # Python before 3.13 states none
            raise
        return 0


def _await_interfaces(interfaces: tuple[str, ...], wait_s: float) -> dict[str, int]:
    """Wait until all interfaces exist and return their indices by name. Raise `RigError` for those missing after `wait_s`."""
    deadline_s = time.monotonic() + wait_s
    while not all((indices := {name: _index(name) for name in interfaces}).values()):
        if time.monotonic() >= deadline_s:
            missing = [name for name, index in indices.items() if not index]
            waited_text = f" (waited {wait_s:g} s)" if wait_s else ""
            raise RigError(
                *(
                    Problem(
                        f"interface {name}",
                        f"is not in this network namespace{waited_text}",
                        "give an interface that `ip link` shows to --port, or create it with etloop lab plug",
                    )
                    for name in missing
                )
            )
        time.sleep(LOOK_S)
    return indices


@contextlib.contextmanager
def _prepare_interfaces(wiring: Wiring) -> Iterator[None]:
    """Set interfaces up and turn off LRO and GRO on them, because the switch cannot cut merged TCP segments; undo it
    afterwards.

    Raise `RigError` with all problems of all interfaces.
    """
    with contextlib.ExitStack() as stack:
        problems: list[Problem] = []
        for interface in wiring.interfaces:
            if not _claim(interface, stack):
                problem = "is used by the switch of another lab; two switches would forward every frame twice"
                remedy = "stop that lab first (etloop lab down --name NAME), or choose another interface"
                problems.append(Problem(f"interface {interface}", problem, remedy))
                continue
            try:
                _set_up(interface, wiring, problems)
                stack.callback(_restore_merging, interface, _single(interface))
            except (NetlinkError, OSError) as error:
                code = error.code if isinstance(error, NetlinkError) else error.errno or 0
                remedy = "run it with CAP_NET_ADMIN and CAP_NET_RAW in this network namespace"
                problems.append(
                    Problem(f"interface {interface}", f"cannot be set up: {os.strerror(code)}", remedy)
                )
        if problems:
            raise RigError(*problems)
        yield


def _claim(interface: str, stack: contextlib.ExitStack) -> bool:
    """Reserve an interface until the stack closes; return False if another switch has it.

    The reservation is an abstract socket name, which the kernel keeps per network namespace and releases when its process ends.
    """
    claim = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
    try:
        claim.bind(f"\0etloop-switch-{_index(interface)}")
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        return False
    return True


def _set_up(interface: str, wiring: Wiring, problems: list[Problem]) -> None:
    with IPRoute() as kernel:
        index = index_of(kernel, interface)
        (link,) = kernel.get_links(index)
        mtu_bytes = int(link.get("mtu"))
        if mtu_bytes < wiring.plan.mtu_bytes:
            problem = f"has an MTU of {mtu_bytes} bytes, the lab needs {wiring.plan.mtu_bytes}"
            remedy = f"ip link set {interface} mtu {wiring.plan.mtu_bytes}, or --mtu {mtu_bytes}B"
            problems.append(Problem(f"interface {interface}", problem, remedy))
            return
        if not wiring.learns:
            disable_ipv6_autoconf(kernel, index)  # a cable's end sends no packets of its own
        kernel.link("set", index=index, state="up")


def _single(interface: str) -> tuple[int, int]:
    """Turn off GRO and LRO of an interface, and return the previous GRO value and flags."""
    joins, flags = ethtool(interface, _ETHTOOL_GGRO, 0), ethtool(interface, _ETHTOOL_GFLAGS, 0)
    _restore_merging(interface, (0, flags & ~_LRO))
    return joins, flags


def _restore_merging(interface: str, before: tuple[int, int]) -> None:
    with contextlib.suppress(OSError):  # NICs without it, and interfaces that have vanished
        ethtool(interface, _ETHTOOL_SGRO, before[0])
    with contextlib.suppress(OSError):
        ethtool(interface, _ETHTOOL_SFLAGS, before[1])


def last_words(status: LabStatus, text: Callable[[LabStatus], str]) -> tuple[str, ExitCode]:
    """Return the final text, and the exit code: INCONCLUSIVE if the switch lost frames to its own overload."""
    lost_frames = status.counters.soft_switch.overload_frames
    return text(status), ExitCode.PASS if lost_frames == 0 else ExitCode.INCONCLUSIVE
