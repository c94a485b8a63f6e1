"""Network of a bench's two ends: two network namespaces joined by a veth pair, or two loopback addresses.

Namespaces are used for rigs on one machine, too, and need root. They have no names and vanish with the bench, however it ends.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterator
from functools import partial
from typing import Final

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from etloop.contract.base.errors import RigError
from etloop.contract.base.late_dataclass import dataclass
from etloop.lab.namespaces import inside, new_namespace, set_in_proc
from etloop.lab.setup import add_address, index_of
from etloop.runtime.own_module import own_module

INTERFACE: Final = "bench0"
"""Name of the veth interface in both namespaces."""
SINGLE: Final = "bench1"
"""Second veth pair, whose ends have one address each, because Open MPI uses only one address of an interface."""
MTU_BYTES: Final = 9000
RANKS_PER_END: Final = 2
NAMES: Final = ("a", "b")


@dataclass(frozen=True, slots=True)
class BenchEnd:
    """One end: the command prefix that starts a process there, and its addresses."""

    addresses: tuple[str, ...]
    interface: str
    prefix: tuple[str, ...]
    """Words in front of a command that run it there."""
    script: str = ""
    """The prefix for a shell with any parent process; "" on loopback addresses."""
    single: str = ""
    """The address of the interface `SINGLE`; "" on loopback addresses."""


@dataclass(frozen=True, slots=True)
class BenchPlace:
    """Both ends, and the network between them."""

    path: str
    ends: tuple[BenchEnd, BenchEnd]
    has_frames: bool
    """True if ports that write whole frames can be used: there is an Ethernet interface, and this user is root."""


@contextlib.contextmanager
def bench_place(*, ipv6: bool = False, queues: int = 1) -> Iterator[BenchPlace]:
    """Yield the best network that this user may create; its addresses are of one family, its interfaces have `queues`
    receive queues.
    """
    if os.geteuid() != 0:
        yield loopback_place("namespaces need root")
        return
    with contextlib.ExitStack() as stack:
        try:
            place = _namespaces(stack, ipv6=ipv6, queues=queues)
        except (RigError, NetlinkError, OSError) as unavailable:
            stack.close()
            place = loopback_place(str(unavailable))
        yield place


def _namespaces(stack: contextlib.ExitStack, *, ipv6: bool, queues: int) -> BenchPlace:
    namespaces = []
    for _ in NAMES:
        namespaces.append(new_namespace())
        stack.callback(os.close, namespaces[-1])
        if ipv6:
            inside(namespaces[-1], _without_address_trials)
    for interface in (INTERFACE, SINGLE):
        inside(namespaces[0], partial(_make_cable, namespaces[1], interface, queues))
    # 198.18.0.0/15 and 2001:2::/48 are reserved for benchmarks (RFC 2544, RFC 5180, RFC 6890).
    form, bits = ("2001:2::{0}:{1}", 64) if ipv6 else ("198.18.{0}.{1}", 16)
    ends = []
    for number, namespace in enumerate(namespaces):
        addresses = tuple(form.format(number, rank + 1) for rank in range(RANKS_PER_END))
        inside(namespace, partial(_settle, INTERFACE, addresses, bits))
        single = f"198.19.0.{number + 1}"
        inside(namespace, partial(_settle, SINGLE, (single,), 24))
        enter = own_module("etloop.lab.exec", "--net", f"/proc/{os.getpid()}/fd/{namespace}", "--parent")
        script = f"{shlex.join(enter)} $PPID --"
        ends.append(BenchEnd(addresses, INTERFACE, (*enter, str(os.getpid()), "--"), script, single))
    return BenchPlace(
        f"a veth pair between two network namespaces, MTU {MTU_BYTES}", (ends[0], ends[1]), has_frames=True
    )


def _without_address_trials() -> None:
    """Disable duplicate address detection (RFC 4862, 5.4): a tentative address answers no packets for a second or two."""
    for scope in ("all", "default"):
        set_in_proc(f"ipv6/conf/{scope}/accept_dad", "0")


def _make_cable(other: int, interface: str, queues: int) -> None:
    counts = {"num_tx_queues": queues, "num_rx_queues": queues} if queues > 1 else {}
    with IPRoute() as kernel:
        peer = {"ifname": interface, "net_ns_fd": other, "mtu": MTU_BYTES, **counts}
        kernel.link("add", ifname=interface, kind="veth", mtu=MTU_BYTES, peer=peer, **counts)


def _settle(interface: str, addresses: tuple[str, ...], bits: int) -> None:
    with IPRoute() as kernel:
        index = index_of(kernel, interface)
        for address in addresses:
            add_address(kernel, index, address, bits)
        for link_index in (index, index_of(kernel, "lo")):
            kernel.link("set", index=link_index, state="up")


def loopback_place(reason: str) -> BenchPlace:
    """Return two ends on loopback addresses; `reason` is why there are no namespaces."""
    network = f"127.18.{os.getpid() % 256}"
    ends = [
        BenchEnd(
            tuple(f"{network}.{number * RANKS_PER_END + rank + 1}" for rank in range(RANKS_PER_END)), "lo", ()
        )
        for number in range(len(NAMES))
    ]
    return BenchPlace(f"loopback addresses, because {reason}", (ends[0], ends[1]), has_frames=False)
