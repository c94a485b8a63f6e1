"""The controller's end of all agent connections: a ZeroMQ ROUTER, with keys also its authentication. A shell.

TCP connections arrive through a door (`door`), which bounds those that are not authenticated yet. `admission` decides
who is admitted. This module has the sockets by which ZeroMQ asks for a decision (ZAP, rfc.zeromq.org/spec/27), reports
failed handshakes and passes the key of each message, and it checks the key directory once a second. All in the one
event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import AsyncIterator, Mapping
from typing import Final

import zmq
from zmq.utils import z85

from etloop.contract.base.clock import NS_PER_S
from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.protocol.messages import MAX_TO_CONTROLLER_BYTES, Bye, RefusalCause, Refused
from etloop.contract.protocol.wire import encode
from etloop.controller.session.admission import Admission, Notice, Revoked
from etloop.controller.session.door.door import Door, OpenDoor, open_door
from etloop.controller.session.settings import CurveServer
from etloop.runtime.clock import monotonic_ns
from etloop.runtime.curve_keys import secure_server
from etloop.runtime.key_directory import KeyDirectory, first_keys
from etloop.runtime.sockets.loop_socket import LoopSocket
from etloop.runtime.task_shutdown import end

_QUEUED_MESSAGES: Final = 16
"""Per agent and direction; with batches of 4 MiB a slow controller holds at most 64 MiB per agent."""
_LINGER_MS: Final = 1000
"""How long unsent messages may take to leave when the socket closes."""
_ZAP_ENDPOINT: Final = "inproc://zeromq.zap.01"
_LOOK_S: Final = 1.0
"""Interval of checks of the key directory, and time from a revoked agent's last message to the end of its connection."""
_USER_ID: Final = "User-Id"
"""Message property with ZAP's answer: the public key, since the rights of a key can change while its connection lasts."""
_SOURCE_FD: Final = 2
"""ZMQ_SRCFD: the file descriptor by which a message arrived."""
_LET_GO_MS: Final = 50
"""Interval of checks whether dismissed agents have closed their connections."""
_REVOKED: Final = "its key is not on the controller's list of agents' keys any more"
_ALLOWED_CREDENTIAL_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class _Ending:
    """A connection that will be shut once its agent had time to read the reason."""

    descriptor: int
    peer: object
    after_ns: int

    def is_there(self) -> bool:
        """Return whether the agent is still connected. Compares the peer, since the descriptor may have been reused."""
        return self.peer is not None and _peer_of(self.descriptor) == self.peer


class RouterLink:
    """All agents of a controller as a `Link`; `admission` is None if agents need no keys."""

    def __init__(
        self, router: LoopSocket, admission: Admission | None = None, door: Door | None = None
    ) -> None:
        self._router = router
        self._admission = admission
        self._door = door
        self._look_now = asyncio.Event()
        self._descriptors: dict[bytes, tuple[int, object]] = {}
        """Connection -> its file descriptor and peer at its first message."""
        self._said_for: list[tuple[bytes, bytes]] = []
        """Bye messages made up for agents whose keys were revoked, so that a session sees them leave."""
        self._endings: list[_Ending] = []
        self.guards: tuple[asyncio.Task[None], ...] = ()
        """Tasks that admit agents while this link is open."""

    @property
    def refused(self) -> Mapping[str, int]:
        """Return reason -> connections refused since the start."""
        return self._admission.refused if self._admission is not None else {}

    async def wait(self, timeout_ms: float) -> bool:
        """Wait for a message. See `Link`."""
        return bool(self._said_for) or bool(await self._router.wait(timeout_ms))

    async def receive(self) -> tuple[bytes, bytes] | None:
        """Return the next message. See `Link`. The frames of a multipart body are joined; decoding then refuses it."""
        if self._said_for:
            return self._said_for.pop(0)
        while True:
            if (frames := self._router.receive()) is None:
                return None
            identity, *parts = frames
            if self._admission is None or self._accepts(self._admission, identity.bytes, parts):
                return identity.bytes, b"".join(part.bytes for part in parts)
            # Yield after each dropped message too, so that a flood of them does not delay other agents.
            await asyncio.sleep(0)

    async def send(self, identity: bytes, body: bytes) -> bool:
        """Send a message. See `Link`. A peer that is gone is not reported here: its missed heartbeats will be, by name."""
        try:
            self._router.send(identity, body)
        except zmq.ZMQError as error:
            if error.errno not in (zmq.EAGAIN, zmq.EHOSTUNREACH):
                raise
            return error.errno == zmq.EAGAIN
        return True

    def take_pauses(self) -> tuple[int, ...]:
        """Return (): there is no other process between this end and the agents. See `Link`."""
        return ()

    def name_problem(self, identity: bytes, name: str) -> str:
        """Return why a name is not the connection's. See `Link`."""
        return "" if self._admission is None else self._admission.name_problem(identity, name)

    def take_notices(self) -> tuple[Notice, ...]:
        """Return the notices since the last call. See `Link`."""
        for guard in self.guards:
            if guard.done():
                guard.result()  # Raise its exception: without this task no agent would be admitted or refused.
        notices = () if self._admission is None else self._admission.take_notices()
        return notices if self._door is None else (*notices, *self._door.take_notices())

    def reload(self) -> None:
        """Check the key directory now, and report the number of keys even if it has not changed."""
        self._look_now.set()

    async def next_look(self) -> bool:
        """Wait until the next check of the key directory; return whether it was requested by `reload`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_S):
                await self._look_now.wait()
        was_requested = self._look_now.is_set()
        self._look_now.clear()
        return was_requested

    async def dismiss(self, revoked: Revoked) -> None:
        """Send an agent that its key was revoked, and queue its Bye for the session; shut it after `_LOOK_S` at the latest."""
        self._said_for.append((revoked.identity, encode(Bye(_REVOKED))))
        await self.send(revoked.identity, encode(Refused(_REVOKED, RefusalCause.KEY_REVOKED)))
        descriptor, peer = self._descriptors.pop(revoked.identity, (-1, None))
        if descriptor >= 0:
            self._endings.append(_Ending(descriptor, peer, monotonic_ns() + int(_LOOK_S * NS_PER_S)))

    def shut_overdue(self) -> None:
        """Shut the connections of dismissed agents whose time is over."""
        now_ns = monotonic_ns()
        self._endings = [ending for ending in self._endings if now_ns < ending.after_ns or not _shut(ending)]

    async def let_go(self) -> None:
        """Return when the dismissed agents have closed their connections, or their time is over.

        A connection that breaks takes unread messages with it (ZMQ_IMMEDIATE, zmq_setsockopt(3)), among them why the
        agent was dismissed. Its own messages are read and dropped until then, so that they do not hold up its end.
        """
        while any(monotonic_ns() < ending.after_ns and ending.is_there() for ending in self._endings):
            if await self._router.wait(_LET_GO_MS):
                self._router.receive()

    def _accepts(self, admission: Admission, identity: bytes, parts: list[zmq.Frame]) -> bool:
        if not parts or not admission.accepts(identity, str(parts[-1].get(_USER_ID)), monotonic_ns()):
            return False
        if identity not in self._descriptors:
            descriptor = int(parts[-1].get(_SOURCE_FD))
            self._descriptors[identity] = (descriptor, _peer_of(descriptor))
            self._descriptors = {
                connection: entry
                for connection, entry in self._descriptors.items()
                if admission.follows(connection)
            }
        return True


@contextlib.asynccontextmanager
async def open_router(bind: str, curve: CurveServer | None) -> AsyncIterator[RouterLink]:
    """Open a ROUTER that listens at `bind` for the block. Raises `ConfigError` for an unusable address or unusable keys."""
    async with contextlib.AsyncExitStack() as stack:
        # Opened first and closed last: the router's last messages leave through it.
        tcp_door = await stack.enter_async_context(open_door(bind)) if bind.startswith("tcp://") else None
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        router = context.socket(zmq.ROUTER)
        stack.push_async_callback(asyncio.to_thread, context.term)
        loop_socket = LoopSocket(router)
        stack.callback(loop_socket.close, _LINGER_MS)
        router.setsockopt(zmq.ROUTER_MANDATORY, 1)
        router.setsockopt(zmq.MAXMSGSIZE, MAX_TO_CONTROLLER_BYTES)
        router.setsockopt(zmq.RCVHWM, _QUEUED_MESSAGES)
        link = RouterLink(loop_socket, None, tcp_door.door if tcp_door is not None else None)
        if curve is not None:
            secure_server(router, curve.secret_key_file)
            link = await stack.enter_async_context(_open_guarded(context, loop_socket, curve, tcp_door))
        if tcp_door is not None:
            router.setsockopt(zmq.USE_FD, tcp_door.inside.detach())
        try:
            router.bind(bind if tcp_door is None else tcp_door.endpoint)
        except zmq.ZMQError as error:
            problem = f"cannot listen there: {error.strerror}"
            remedy = "choose an address of this host and a free port"
            raise ConfigError(Problem(bind, problem, remedy)) from None
        yield link


@contextlib.asynccontextmanager
async def _open_guarded(
    context: zmq.Context[zmq.Socket[bytes]], router: LoopSocket, curve: CurveServer, opened: OpenDoor | None
) -> AsyncIterator[RouterLink]:
    """Open the link of a router whose agents are admitted by key, from before it binds until the block ends."""
    directory = KeyDirectory(curve.agent_keys_dir)
    key_list = first_keys(directory, curve.agent_keys_dir)
    admission = Admission(key_list.names)
    for remark in key_list.remarks:
        admission.note(remark)
    door = opened.door if opened is not None else None
    link = RouterLink(router, admission, door)
    if door is not None:
        door.on_strangers = admission.on_broken_handshakes
    zap = LoopSocket(context.socket(zmq.REP))
    zap.socket.bind(_ZAP_ENDPOINT)
    handshake_failures = zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    failures = LoopSocket(router.socket.get_monitor_socket(handshake_failures))
    link.guards = (
        asyncio.create_task(_answer(zap, admission, door)),
        asyncio.create_task(_count_failures(failures, admission)),
        asyncio.create_task(_watch_keys(directory, admission, link)),
    )
    try:
        yield link
        await link.let_go()
    finally:
        await end(link.guards)
        router.socket.disable_monitor()
        failures.close(0)
        zap.close(0)


async def _answer(answering: LoopSocket, admission: Admission, door: Door | None) -> None:
    """Answer ZeroMQ's requests whether a connection is admitted (ZAP)."""
    while True:
        frames = [frame.bytes for frame in await answering.next()]
        version, request, _, address, _, mechanism, *credentials = frames
        key = ""
        if mechanism == b"CURVE" and [len(credential) for credential in credentials] == [
            _ALLOWED_CREDENTIAL_BYTES
        ]:
            key = z85.encode(credentials[0]).decode("ascii")
        # ZeroMQ sees the door's address for every connection that the door relays.
        peer_address = address.decode("ascii", "replace")
        if key and admission.admits(key, peer_address if door is None else door.address_behind(peer_address)):
            reply = [b"200", b"OK", key.encode("ascii")]
        else:
            reply = [b"400", b"not on the list of agents' keys", b""]
        answering.send(version, request, *reply, b"")


async def _count_failures(failures: LoopSocket, admission: Admission) -> None:
    while True:
        await failures.next()
        admission.on_broken_handshakes(1)


async def _watch_keys(directory: KeyDirectory, admission: Admission, link: RouterLink) -> None:
    while True:
        was_requested = await link.next_look()
        link.shut_overdue()
        key_list = directory.read_again()
        if key_list is not None:
            for remark in key_list.remarks:
                admission.note(remark)
            for revoked in admission.renew(key_list.names):
                await link.dismiss(revoked)
        if was_requested:
            admission.on_reload(directory.unreadable)


def _peer_of(descriptor: int) -> object:
    """Return the peer's address of a socket; None if it has none any more. Takes no descriptor, as there may be none left."""
    try:
        borrowed = socket.socket(fileno=descriptor)
    except OSError:
        return None
    try:
        return borrowed.getpeername()
    except OSError:
        return None
    finally:
        borrowed.detach()


def _shut(ending: _Ending) -> bool:
    """Shut a connection, for which ZeroMQ has no call, if its descriptor still belongs to the same peer.

    Returns whether that is done; it is not while no descriptor is free.
    """
    try:
        # Duplicate it first, so that the number is not reused between the comparison and the shutdown.
        with socket.socket(fileno=os.dup(ending.descriptor)) as duplicate:
            if ending.peer is not None and duplicate.getpeername() == ending.peer:
                duplicate.shutdown(socket.SHUT_RDWR)
    except OSError as error:
        return error.errno not in (errno.EMFILE, errno.ENFILE)  # Any other: it is closed already.
    return True
