"""The controller's end of all connections of agents: a ZeroMQ ROUTER, and with keys the one who lets them in. A shell.

Connections over TCP come by a door (`door`), which bounds those of strangers. Who is admitted `admission` decides; here are
the sockets by which ZeroMQ asks (ZAP, rfc.zeromq.org/spec/27), tells of broken handshakes and says whose key a message came
by, and the look at the key directory once a second. All in the one event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Mapping
from typing import Final

import zmq
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
from zmq.utils import z85

_QUEUED_MESSAGES: Final = 16
"""Per agent and direction; with 4 MiB batches a slow controller holds at most 64 MiB per agent."""
_HANDSHAKE_MS: Final = 5000
"""How long a connection may take to say who it is: until then it holds a descriptor."""
_LINGER_MS: Final = 1000
"""How long the last words may take to leave."""
_ZAP_ENDPOINT: Final = "inproc://zeromq.zap.01"
_LOOK_S: Final = 1.0
"""Between two looks at the key directory, and from a revoked agent's last word to the end of its connection."""
_USER_ID: Final = "User-Id"
"""Of a message, as ZAP answered: here the public key, since what a key may do can change while its connection lasts."""
_SOURCE_FD: Final = 2
"""ZMQ_SRCFD: the file descriptor that a message came by."""
_LET_GO_MS: Final = 50
"""Between two looks whether those that were dismissed have gone."""
_REVOKED: Final = "its key is not on the controller's list of agents' keys any more"
_ALLOWED_CREDENTIAL_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class _Ending:
    """A connection that is shut when its agent had the time to hear why."""

    descriptor: int
    peer: object
    after_ns: int

    def is_there(self) -> bool:
        """Whether the agent has not gone by itself. A descriptor may be another's by now: the peer tells."""
        return self.peer is not None and _peer_of(self.descriptor) == self.peer


class RouterLink:
    """All agents of a controller as a `Link`; `admission` is None where they come in without keys."""

    def __init__(
        self, router: LoopSocket, admission: Admission | None = None, door: Door | None = None
    ) -> None:
        self._router = router
        self._admission = admission
        self._door = door
        self._look_now = asyncio.Event()
        self._descriptors: dict[bytes, tuple[int, object]] = {}
        """Connection -> its file descriptor and peer when it was first heard."""
        self._said_for: list[tuple[bytes, bytes]] = []
        """Goodbyes of agents whose keys were revoked: whoever counts on them hears it as if they had said it."""
        self._endings: list[_Ending] = []
        self.guards: tuple[asyncio.Task[None], ...] = ()
        """What lets agents in while this is open."""

    @property
    def refused(self) -> Mapping[str, int]:
        """Why -> connections that were not let in, since the start."""
        return self._admission.refused if self._admission is not None else {}

    async def wait(self, timeout_ms: int) -> bool:
        """See `Link`."""
        return bool(self._said_for) or bool(await self._router.wait(timeout_ms))

    async def receive(self) -> tuple[bytes, bytes] | None:
        """See `Link`. A body in several frames is no message of ours; joined, it is refused as such."""
        if self._said_for:
            return self._said_for.pop(0)
        while True:
            if (frames := self._router.receive()) is None:
                return None
            identity, *parts = frames
            if self._admission is None or self._heard(self._admission, identity.bytes, parts):
                return identity.bytes, b"".join(part.bytes for part in parts)
            # What is dropped takes its turn like anything else: others must not wait for a flood of it.
            await asyncio.sleep(0)

    async def send(self, identity: bytes, body: bytes) -> bool:
        """See `Link`. Of a peer that is gone the heartbeats will be missed, and that is told by name."""
        try:
            self._router.send(identity, body)
        except zmq.ZMQError as error:
            if error.errno not in (zmq.EAGAIN, zmq.EHOSTUNREACH):
                raise
            return error.errno == zmq.EAGAIN
        return True

    def misnamed(self, identity: bytes, name: str) -> str:
        """See `Link`."""
        return "" if self._admission is None else self._admission.misnamed(identity, name)

    def take_notices(self) -> tuple[Notice, ...]:
        """See `Link`."""
        for guard in self.guards:
            if guard.done():
                guard.result()  # A guard that broke is a bug of ours: without it nobody would be let in or kept out.
        told = () if self._admission is None else self._admission.take_notices()
        return told if self._door is None else (*told, *self._door.take_notices())

    def reload(self) -> None:
        """Has the list of keys looked at now, and said how long it is whether it changed or not."""
        self._look_now.set()

    async def next_look(self) -> bool:
        """Returns when the list of keys is to be looked at; whether somebody asked for that."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._look_now.wait(), _LOOK_S)
        asked = self._look_now.is_set()
        self._look_now.clear()
        return asked

    async def dismiss(self, revoked: Revoked) -> None:
        """Tells an agent that its key was revoked, and everybody else that it left; it has `_LOOK_S` to go by itself."""
        self._said_for.append((revoked.identity, encode(Bye(_REVOKED))))
        await self.send(revoked.identity, encode(Refused(_REVOKED, RefusalCause.KEY_REVOKED)))
        descriptor, peer = self._descriptors.pop(revoked.identity, (-1, None))
        if descriptor >= 0:
            self._endings.append(_Ending(descriptor, peer, monotonic_ns() + int(_LOOK_S * NS_PER_S)))

    def shut_overdue(self) -> None:
        """Ends the connections of the dismissed that had their time."""
        now_ns = monotonic_ns()
        for each in self._endings:
            if now_ns >= each.after_ns:
                _shut(each)
        self._endings = [each for each in self._endings if now_ns < each.after_ns]

    async def let_go(self) -> None:
        """Returns when those that were dismissed have gone, or had their time.

        An agent loses what it has not read when its connection breaks (ZMQ_IMMEDIATE, zmq_setsockopt(3)), here why it was
        dismissed. Its own words are read until then, so that nothing stands between it and its end.
        """
        while any(monotonic_ns() < each.after_ns and each.is_there() for each in self._endings):
            if await self._router.wait(_LET_GO_MS):
                self._router.receive()

    def _heard(self, admission: Admission, identity: bytes, parts: list[zmq.Frame]) -> bool:
        if not parts or not admission.heard(identity, str(parts[-1].get(_USER_ID)), monotonic_ns()):
            return False
        if identity not in self._descriptors:
            descriptor = int(parts[-1].get(_SOURCE_FD))
            self._descriptors[identity] = (descriptor, _peer_of(descriptor))
            self._descriptors = {
                each: found for each, found in self._descriptors.items() if admission.follows(each)
            }
        return True


@contextlib.asynccontextmanager
async def open_router(bind: str, curve: CurveServer | None) -> AsyncIterator[RouterLink]:
    """A ROUTER that listens at `bind` while it is open. Raises `ConfigError` for an address or keys that cannot be used."""
    async with contextlib.AsyncExitStack() as stack:
        # The first to open and the last to close: what the router says last leaves by it.
        opened = await stack.enter_async_context(open_door(bind)) if bind.startswith("tcp://") else None
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        router = context.socket(zmq.ROUTER)
        stack.push_async_callback(asyncio.to_thread, context.term)
        listening = LoopSocket(router)
        stack.callback(listening.close, _LINGER_MS)
        router.setsockopt(zmq.ROUTER_MANDATORY, 1)
        router.setsockopt(zmq.MAXMSGSIZE, MAX_TO_CONTROLLER_BYTES)
        router.setsockopt(zmq.RCVHWM, _QUEUED_MESSAGES)
        router.setsockopt(zmq.HANDSHAKE_IVL, _HANDSHAKE_MS)
        link = RouterLink(listening, None, opened.door if opened is not None else None)
        if curve is not None:
            secure_server(router, curve.secret_key_file)
            link = await stack.enter_async_context(_guarded(context, listening, curve, opened))
        if opened is not None:
            router.setsockopt(zmq.USE_FD, opened.inside.detach())
        try:
            router.bind(bind if opened is None else opened.endpoint)
        except zmq.ZMQError as error:
            what = f"cannot listen there: {error.strerror}"
            remedy = "choose an address of this host and a free port"
            raise ConfigError(Problem(bind, what, remedy)) from None
        yield link


@contextlib.asynccontextmanager
async def _guarded(
    context: zmq.Context[zmq.Socket[bytes]], router: LoopSocket, curve: CurveServer, opened: OpenDoor | None
) -> AsyncIterator[RouterLink]:
    """The link of a router whose connections are let in by key, from before it binds until the block ends."""
    directory = KeyDirectory(curve.agent_keys_dir)
    listed = first_keys(directory, curve.agent_keys_dir)
    admission = Admission(listed.names)
    for remark in listed.remarks:
        admission.note(remark)
    door = opened.door if opened is not None else None
    link = RouterLink(router, admission, door)
    if door is not None:
        door.on_strangers = admission.on_broken_handshakes
    answering = LoopSocket(context.socket(zmq.REP))
    answering.socket.bind(_ZAP_ENDPOINT)
    broken = zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    failures = LoopSocket(router.socket.get_monitor_socket(broken))
    link.guards = (
        asyncio.create_task(_answer(answering, admission, door)),
        asyncio.create_task(_count_failures(failures, admission)),
        asyncio.create_task(_look_again(directory, admission, link)),
    )
    try:
        yield link
        await link.let_go()
    finally:
        await end(link.guards)
        router.socket.disable_monitor()
        failures.close(0)
        answering.close(0)


async def _answer(answering: LoopSocket, admission: Admission, door: Door | None) -> None:
    """Answers who may come in; ZeroMQ is the only one that asks."""
    while True:
        asked = [frame.bytes for frame in await answering.next()]
        version, request, _, address, _, mechanism, *credentials = asked
        key = ""
        if mechanism == b"CURVE" and [len(each) for each in credentials] == [_ALLOWED_CREDENTIAL_BYTES]:
            key = z85.encode(credentials[0]).decode("ascii")
        # What ZeroMQ sees of a connection that the door passed on is the door.
        seen = address.decode("ascii", "replace")
        if key and admission.admits(key, seen if door is None else door.address_behind(seen)):
            answer = [b"200", b"OK", key.encode("ascii")]
        else:
            answer = [b"400", b"not on the list of agents' keys", b""]
        answering.send(version, request, *answer, b"")


async def _count_failures(failures: LoopSocket, admission: Admission) -> None:
    while True:
        await failures.next()
        admission.on_broken_handshakes(1)


async def _look_again(directory: KeyDirectory, admission: Admission, link: RouterLink) -> None:
    while True:
        asked = await link.next_look()
        link.shut_overdue()
        listed = directory.read_again()
        if listed is not None:
            for remark in listed.remarks:
                admission.note(remark)
            for revoked in admission.renew(listed.names):
                await link.dismiss(revoked)
        if asked:
            admission.on_reload(directory.unreadable)


def _peer_of(descriptor: int) -> object:
    """Whom a socket is connected to; None if that cannot be told any more."""
    try:
        with socket.socket(fileno=os.dup(descriptor)) as held:
            return held.getpeername()
    except OSError:
        return None


def _shut(ending: _Ending) -> None:
    """Ends a connection, which ZeroMQ offers no call for. A descriptor may be another's by now: the peer tells."""
    try:
        # A descriptor of our own, so that nothing else gets this number between the look and the end.
        with socket.socket(fileno=os.dup(ending.descriptor)) as held:
            if ending.peer is not None and held.getpeername() == ending.peer:
                held.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # It has gone by itself.
