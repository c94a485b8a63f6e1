"""The controller's side of a door: listens, starts the process that takes the connections, and hears what it tells. A shell.

The controller holds the listening socket, so that an address that cannot be had is told at once, and a process of the door
that broke is followed by another at the same address. ZeroMQ accepts what the door passes on by a `passage`.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import resource
import socket
import struct
import subprocess
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

from etloop.contract.base.clock import NS_PER_S
from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.controller.session.admission import Notice
from etloop.controller.session.door import reports
from etloop.controller.session.door.budget import DoorBudget, door_budget
from etloop.controller.session.door.passage import held_port, listening_for
from etloop.runtime.clock import monotonic_ns
from etloop.runtime.descriptors import count_open
from etloop.runtime.own_module import own_module

_BACKLOG: Final = 4096
"""Connections that wait for the door; the kernel's own bound is net.core.somaxconn."""
_SIOCGIFADDR: Final = 0x8915
"""The IPv4 address of an interface, netdevice(7)."""
_ASKING_NS: Final = 10 * NS_PER_S
"""After which an answer that was not told counts as given: twice what a handshake may take."""
_AGAIN_S: Final = 1.0
_END_S: Final = 3.0
"""How long the door's process may take to end; it gives last words one."""


class Door:
    """The door of one control port. `on_strangers` gets numbers of connections that ended before they began a handshake."""

    def __init__(self, listener: socket.socket, budget: DoorBudget, inside: int, port: int) -> None:
        """Take the socket that listens, and the ports of both ends of the passage."""
        self.budget = budget
        self.on_strangers: Callable[[int], None] = lambda _: None
        self._listener = listener
        self._passage = (inside, port)
        self._asking: dict[str, tuple[str, int]] = {}
        """Where a connection that waits for whether it is admitted seems to come from -> its address, and since when."""
        self._notices: list[Notice] = []
        self._control: socket.socket
        self._process: subprocess.Popen[bytes]
        self._why = ""
        self._restarting: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the process. Raises `OSError`."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        handed = (self._listener.fileno(), theirs.fileno())
        words = map(str, (*handed, *self._passage, self.budget.members, self.budget.strangers))
        try:
            self._process = subprocess.Popen(
                own_module("etloop.controller.session.door.relay", *words),
                pass_fds=handed,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                # Ctrl-C is the controller's; this sees it go.
                start_new_session=True,
            )
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        ours.setblocking(False)
        self._control = ours
        asyncio.get_running_loop().add_reader(ours, self._hear)

    def address_behind(self, seen: str) -> str:
        """Return the address of the peer whose connection seems to come from `seen`."""
        self._hear()
        now_ns = monotonic_ns()
        self._asking = {key: asked for key, asked in self._asking.items() if now_ns - asked[1] < _ASKING_NS}
        return self._asking.get(seen, ("an unknown address", 0))[0]

    def take_notices(self) -> tuple[Notice, ...]:
        """Return what people should know, since the last call."""
        taken, self._notices = tuple(self._notices), []
        return taken

    async def end(self) -> None:
        """Return when the process has ended: all that was to leave has left, or had its time."""
        if self._restarting is not None:
            self._restarting.cancel()
            await asyncio.wait((self._restarting,))
        self._hang_up()
        await asyncio.to_thread(self._reap)

    def _hear(self) -> None:
        while self._control.fileno() >= 0:
            try:
                datagram = self._control.recv(reports.LONGEST_BYTES)
            except BlockingIOError:
                return
            except OSError:
                datagram = b""
            if not datagram:
                self._hang_up()
                self._restarting = asyncio.create_task(self._restart())
                return
            self._on_report(*reports.parse_report(datagram))

    def _on_report(self, kind: str, rest: str) -> None:
        match kind:
            case reports.ASKING:
                seen, _, address = rest.partition(" ")
                self._asking[seen] = (address, monotonic_ns())
            case reports.ANSWERED:
                self._asking.pop(rest, None)
            case reports.STRANGERS:
                self.on_strangers(int(rest))
            case reports.FULL:
                text = (
                    f"{rest} connections of agents found no place: {self.budget.members} are as many as the limit of "
                    f"open files leaves room for; raise it (ulimit -n, LimitNOFILE= of the unit) and start again"
                )
                self._notices.append(Notice("the control port is full", text))
            case reports.BROKE:
                self._why = rest

    async def _restart(self) -> None:
        await asyncio.to_thread(self._reap)
        why, self._why = self._why or f"it ended with code {self._process.returncode}", ""
        text = f"the process that takes the agents' connections is started again: {why}"
        self._notices.append(Notice("the door's process ended", text))
        while True:
            await asyncio.sleep(_AGAIN_S)
            try:
                self.start()
            except OSError as error:
                text = f"the process that takes the agents' connections cannot be started: {error.strerror}"
                self._notices.append(Notice("the door's process cannot be started", text))
                continue
            self._restarting = None
            return

    def _hang_up(self) -> None:
        if self._control.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._control)
            self._control.close()
        self._asking.clear()

    def _reap(self) -> None:
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@dataclass(frozen=True, slots=True)
class OpenDoor:
    """A door, and where ZeroMQ accepts what it passes on."""

    door: Door
    inside: socket.socket
    """It listens; whoever takes its descriptor closes that."""
    endpoint: str
    """Its name."""


@contextlib.asynccontextmanager
async def open_door(bind: str) -> AsyncIterator[OpenDoor]:
    """Listen at a TCP endpoint while the block lasts.

    Raises `ConfigError` for an address that cannot be listened at, and where no process can be started.
    """
    async with contextlib.AsyncExitStack() as stack:
        try:
            listener = stack.enter_context(listening_at(bind))
            held = stack.enter_context(held_port())
            port = held.getsockname()[1]
            inside = stack.enter_context(listening_for(port))
            inside_port = inside.getsockname()[1]
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            door = Door(listener, door_budget(soft, hard, count_open()), inside_port, port)
            door.start()
        except OSError as error:
            what = f"cannot listen there: {error.strerror or error}"
            remedy = "choose an address of this host and a free port"
            raise ConfigError(Problem(bind, what, remedy)) from None
        stack.push_async_callback(door.end)
        yield OpenDoor(door, inside, f"tcp://127.0.0.1:{inside_port}")


def listening_at(bind: str) -> socket.socket:
    """Return a socket that listens at an endpoint tcp://HOST:PORT; HOST may be "*", and an interface. Raises `OSError`."""
    host, _, port_text = bind.removeprefix("tcp://").rpartition(":")
    port = 0 if port_text == "*" else int(port_text)
    host = host.removeprefix("[").removesuffix("]")
    if host == "*":
        return _listening(socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET, ("", port))
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        own = _address_of_interface(host)
        if own is None:
            what = f"no address, interface or host of that name ({error.strerror})"
            raise OSError(error.errno, what) from None
        return _listening(socket.AF_INET, (own, port))
    family, _, _, _, address = found[0]
    return _listening(family, address)


def _listening(family: int, address: tuple[Any, ...]) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        made.bind(address)
        made.listen(_BACKLOG)
        made.setblocking(False)
    except OSError:
        made.close()
        raise
    return made


def _address_of_interface(name: str) -> str | None:
    request = struct.pack("256s", name.encode()[:15])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            return socket.inet_ntoa(fcntl.ioctl(asking.fileno(), _SIOCGIFADDR, request)[20:24])
        except OSError:
            return None
