"""Where a bench's two ends stand: two network namespaces joined by a veth pair, or two loopback addresses.

Namespaces are what a rig on one machine looks like, and need root and `ip`. They are removed however the bench ends;
only a killed one leaves them, and the next bench removes those.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

INTERFACE: Final = "bench0"
"""Name of the veth interface in both namespaces."""
MTU_BYTES: Final = 9000
RANKS_PER_END: Final = 2
NAMES: Final = ("a", "b")
IP_TIMEOUT_S: Final = 10
_NAMESPACE: Final = re.compile(r"etloop-bench-([0-9]{1,10})-[ab]")


@dataclass(frozen=True, slots=True)
class BenchEnd:
    """One end: how to start a process there and which addresses are its own."""

    addresses: tuple[str, ...]
    interface: str
    prefix: tuple[str, ...]
    """Words before a command that make it run there."""


@dataclass(frozen=True, slots=True)
class BenchPlace:
    """Both ends, and what lies between them."""

    path: str
    ends: tuple[BenchEnd, BenchEnd]
    has_frames: bool
    """Whether ports that write whole frames stand here: there is an Ethernet interface, and root opens it."""


@contextlib.contextmanager
def bench_place(*, ipv6: bool = False) -> Iterator[BenchPlace]:
    """The best place this user may have, for as long as the block lasts; its addresses are of one family."""
    with contextlib.ExitStack() as stack:
        try:
            place = _namespaces(stack, ipv6=ipv6)
        except _Unavailable as unavailable:
            stack.close()
            place = loopback_place(str(unavailable))
        yield place


class _Unavailable(Exception):
    """Why there are no namespaces."""


def _namespaces(stack: contextlib.ExitStack, *, ipv6: bool) -> BenchPlace:
    if os.geteuid() != 0:
        raise _Unavailable("namespaces need root")
    command = _ip_command()
    _remove_leftovers()
    names = [f"etloop-bench-{os.getpid()}-{name}" for name in NAMES]
    for name in names:
        _ip("netns", "add", name)
        stack.callback(_remove, name)
        if ipv6:
            _without_address_trials(name)
    a, b = names
    _ip("link", "add", INTERFACE, "netns", a, "type", "veth", "peer", "name", INTERFACE, "netns", b)
    ends = []
    for number, name in enumerate(names):
        # 198.18.0.0/15 and 2001:2::/48 are set aside for benchmarks (RFC 2544, RFC 5180, RFC 6890).
        form, bits = ("2001:2::{0}:{1}", "64") if ipv6 else ("198.18.{0}.{1}", "16")
        addresses = tuple(form.format(number, rank + 1) for rank in range(RANKS_PER_END))
        for address in addresses:
            _ip("-n", name, "address", "add", f"{address}/{bits}", "dev", INTERFACE)
        _ip("-n", name, "link", "set", INTERFACE, "mtu", str(MTU_BYTES), "up")
        _ip("-n", name, "link", "set", "lo", "up")
        ends.append(BenchEnd(addresses, INTERFACE, (command, "netns", "exec", name)))
    return BenchPlace(
        f"a veth pair between two network namespaces, MTU {MTU_BYTES}", (ends[0], ends[1]), has_frames=True
    )


def _without_address_trials(namespace: str) -> None:
    """Nobody else is there, and for a second or two an address on trial answers nobody (RFC 4862, 5.4)."""
    for which in ("all", "default"):
        _ip("netns", "exec", namespace, "sysctl", "-qw", f"net.ipv6.conf.{which}.accept_dad=0")


def loopback_place(reason: str) -> BenchPlace:
    """Two ends on loopback addresses; `reason` says why not in namespaces."""
    network = f"127.18.{os.getpid() % 256}"
    ends = [
        BenchEnd(
            tuple(f"{network}.{number * RANKS_PER_END + rank + 1}" for rank in range(RANKS_PER_END)), "lo", ()
        )
        for number in range(len(NAMES))
    ]
    return BenchPlace(f"loopback addresses, because {reason}", (ends[0], ends[1]), has_frames=False)


def _ip(*words: str) -> str:
    try:
        done = subprocess.run(
            [_ip_command(), *words], capture_output=True, text=True, timeout=IP_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _Unavailable(f"ip {' '.join(words)}: {error}") from None
    if done.returncode != 0:
        raise _Unavailable(f"ip {' '.join(words)}: {done.stderr.strip() or 'failed'}")
    return done.stdout


def _ip_command() -> str:
    found = shutil.which("ip")
    if found is None:
        raise _Unavailable("namespaces need the command ip (package iproute2)")
    return found


def _remove(name: str) -> None:
    # The veth pair goes with its namespaces.
    with contextlib.suppress(_Unavailable):
        _ip("netns", "delete", name)


def _remove_leftovers() -> None:
    for line in _ip("netns", "list").splitlines():
        match = _NAMESPACE.match(line)
        if match and not _lives(int(match[1])):
            _remove(match[0])


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
