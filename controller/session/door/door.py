"""The controller's side of a door: listens, starts the process that accepts connections, reads its reports. A shell.

The controller owns the listening socket, so an unusable address is reported at once, and a door's process that failed
is replaced at the same address. ZeroMQ accepts the relayed connections through a `passage`.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
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
from etloop.controller.session.door.places import HANDSHAKE_NS
from etloop.runtime.clock import monotonic_ns
from etloop.runtime.descriptors import count_open
from etloop.runtime.own_module import own_module

_BACKLOG: Final = 4096
"""Connections that wait to be accepted; the kernel's own bound is net.core.somaxconn."""
_SIOCGIFADDR: Final = 0x8915
"""ioctl that returns the IPv4 address of an interface, netdevice(7)."""
_ASKING_NS: Final = 2 * HANDSHAKE_NS
"""Time after which an admission request is dropped although its end was not reported."""
_PREDECESSOR_NS: Final = NS_PER_S
"""Longest time that the door of a controller that was killed keeps its listening socket, on a busy host."""
_LOOK_S: Final = 0.02
_AGAIN_NS: Final = NS_PER_S
"""Least time between two starts of the process."""
_END_S: Final = 3.0
"""Longest time for the door's process to end; it spends up to one second on sending what is queued."""


class Door:
    """The door of one control port. `on_strangers` is called with counts of connections that ended before a handshake began."""

    def __init__(self, listener: socket.socket, budget: DoorBudget, inside: int, port: int) -> None:
        """Store the listening socket and the ports of both ends of the passage."""
        self.budget = budget
        self.on_strangers: Callable[[int], None] = lambda _: None
        self._listener = listener
        self._passage = (inside, port)
        self._asking: dict[str, tuple[str, int]] = {}
        """Connection that awaits admission, by the address that the controller sees -> its real address, and since when."""
        self._notices: list[Notice] = []
        self._control: socket.socket
        self._process: subprocess.Popen[bytes]
        self._started_ns = 0
        self._why = ""
        self._restarting: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the process, and read its reports from the event loop. Raises `OSError`."""
        self._started_ns = monotonic_ns()
        own_end, door_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        descriptors = (self._listener.fileno(), door_end.fileno())
        arguments = map(str, (*descriptors, *self._passage, self.budget.members, self.budget.strangers))
        try:
            self._process = subprocess.Popen(
                own_module("etloop.controller.session.door.relay", *arguments),
                pass_fds=descriptors,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                # Ctrl-C signals the controller only; the door ends when the controller does.
                start_new_session=True,
            )
        except OSError:
            own_end.close()
            raise
        finally:
            door_end.close()
        own_end.setblocking(False)
        self._control = own_end
        asyncio.get_running_loop().add_reader(own_end, self._hear)

    def address_behind(self, seen: str) -> str:
        """Return the address of the peer whose connection the controller sees come from `seen`."""
        self._hear()
        now_ns = monotonic_ns()
        self._asking = {key: entry for key, entry in self._asking.items() if now_ns - entry[1] < _ASKING_NS}
        return self._asking.get(seen, ("an unknown address", 0))[0]

    def take_notices(self) -> tuple[Notice, ...]:
        """Return the notices for the operator since the last call."""
        notices, self._notices = tuple(self._notices), []
        return notices

    def note_open_passage(self) -> None:
        """Notify the operator that processes of this host can reach ZeroMQ past the door."""
        text = "this kernel grants no socket filter to an unprivileged process: connections from this host are not limited"
        self._notices.append(Notice("control port", text))

    async def end(self) -> None:
        """Return when the process has ended; it gets time to send what is queued."""
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
                    f"refused {rest} connections of agents: the limit is {self.budget.members}, which follows from the limit of "
                    f"open files; raise it (ulimit -n, LimitNOFILE= of the unit) and start again"
                )
                self._notices.append(Notice("the control port is full", text))
            case reports.BROKE:
                self._why = rest

    async def _restart(self) -> None:
        is_reported = False
        while True:
            try:
                await asyncio.to_thread(self._reap)
                if not is_reported:
                    why, self._why = self._why or f"it ended with code {self._process.returncode}", ""
                    text = f"restarting the process that accepts agents' connections: {why}"
                    self._notices.append(Notice("the door's process ended", text))
                    is_reported = True
                # At once, so that agents return in time; but one that ends as it starts must not take a processor.
                await asyncio.sleep(max(0, self._started_ns + _AGAIN_NS - monotonic_ns()) / NS_PER_S)
                self.start()
            except OSError as error:
                text = f"cannot start the process that accepts agents' connections: {error.strerror}"
                self._notices.append(Notice("the door's process cannot be started", text))
                await asyncio.sleep(_AGAIN_NS / NS_PER_S)
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
    """A door, and the socket at which ZeroMQ accepts the connections it relays."""

    door: Door
    inside: socket.socket
    """Listening socket; the owner of its detached descriptor closes it."""
    endpoint: str
    """ZeroMQ endpoint of `inside`."""


@contextlib.asynccontextmanager
async def open_door(bind: str) -> AsyncIterator[OpenDoor]:
    """Listen at a TCP endpoint for the block.

    Raises `ConfigError` if it is impossible to listen there, or to start the process.
    """
    async with contextlib.AsyncExitStack() as stack:
        try:
            listener = stack.enter_context(await _listen_soon(bind))
            port_holder = stack.enter_context(held_port())
            port = port_holder.getsockname()[1]
            inside, is_filtered = listening_for(port)
            stack.enter_context(inside)
            inside_port = inside.getsockname()[1]
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            door = Door(listener, door_budget(soft, hard, count_open()), inside_port, port)
            if not is_filtered:
                door.note_open_passage()
            door.start()
        except OSError as error:
            problem = f"cannot listen there: {error.strerror or error}"
            remedy = "choose an address of this host and a free port"
            raise ConfigError(Problem(bind, problem, remedy)) from None
        stack.push_async_callback(door.end)
        yield OpenDoor(door, inside, f"tcp://127.0.0.1:{inside_port}")


async def _listen_soon(bind: str) -> socket.socket:
    """Return `listening_at`, and wait a little where the address is in use: a door outlives its killed controller by a moment.

    Raises `OSError`.
    """
    deadline_ns = monotonic_ns() + _PREDECESSOR_NS
    while True:
        try:
            return listening_at(bind)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or monotonic_ns() >= deadline_ns:
                raise
        await asyncio.sleep(_LOOK_S)


def listening_at(bind: str) -> socket.socket:
    """Return a socket that listens at tcp://HOST:PORT; HOST may be "*" or an interface. Raises `OSError`."""
    host, _, port_text = bind.removeprefix("tcp://").rpartition(":")
    port = 0 if port_text == "*" else int(port_text)
    host = host.removeprefix("[").removesuffix("]")
    if host == "*":
        return _listening(socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET, ("", port))
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        interface_address = _address_of_interface(host)
        if interface_address is None:
            problem = f"is not an address, interface or host of this network ({error.strerror})"
            raise OSError(error.errno, problem) from None
        return _listening(socket.AF_INET, (interface_address, port))
    family, _, _, _, address = addresses[0]
    return _listening(family, address)


def _listening(family: int, address: tuple[Any, ...]) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind(address)
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


def _address_of_interface(name: str) -> str | None:
    """Return the IPv4 address of an interface; None if there is no such interface or it has none. Raises `OSError`."""
    request = struct.pack("256s", name.encode()[:15])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe_socket:
        try:
            return socket.inet_ntoa(fcntl.ioctl(probe_socket.fileno(), _SIOCGIFADDR, request)[20:24])
        except OSError as error:
            if error.errno not in {errno.ENODEV, errno.EADDRNOTAVAIL}:
                raise
            return None
