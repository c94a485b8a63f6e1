"""Runs a session over real sockets: a ZeroMQ ROUTER, the clock and the process's signals around `Session`.

Receives, hands on, sends what the session asks for. Decides nothing about the run.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Final, Protocol

import zmq
import zmq.asyncio
from etloop.contract.base.clock import NS_PER_MS
from etloop.contract.base.errors import ConfigError, PlanError, Problem, ProtocolError, RigError
from etloop.contract.model.assignment import Assignment
from etloop.contract.model.run import PlanTables, RunOutcome
from etloop.contract.protocol.message_set import MessageTooLarge
from etloop.contract.protocol.messages import MAX_TO_CONTROLLER_BYTES, Assign, Ping
from etloop.contract.protocol.wire import decode_from_agent, encode
from etloop.controller.session.actions import Action, RunProgress, Send
from etloop.controller.session.session import Session
from etloop.controller.session.settings import CurveServer, SessionSettings, check_exposure
from etloop.runtime.clock import monotonic_ns, wall_time_text
from etloop.runtime.curve_keys import secure_server
from etloop.runtime.stop_signals import stop_reasons

_TICK_MS: Final = 20
"""The finest spacing of pings that a session asks for."""
_PROGRESS_NS: Final = 100 * NS_PER_MS
_RECEIVE_BURST: Final = 64
"""Messages taken between two ticks, so that a flood cannot stop the clock."""
_QUEUED_MESSAGES: Final = 16
"""Per agent and direction; with 4 MiB batches a slow controller holds at most 64 MiB per agent."""
_LINGER_MS: Final = 1000
"""How long the last words may take to leave."""

OnProgress = Callable[[RunProgress], None]
OnEvent = Callable[[str], None]
Companion = Callable[[Session], Coroutine[None, None, None]]
"""What lives beside a session, such as a timeline."""


class Link(Protocol):
    """What carries messages between a session and its agents: a ROUTER of its own, or a rack's."""

    async def wait(self, timeout_ms: int) -> bool:
        """Returns true as soon as a message is there, false after `timeout_ms`."""

    async def receive(self) -> tuple[bytes, bytes] | None:
        """The next message as (connection, body), None if there is none now."""

    async def send(self, identity: bytes, body: bytes) -> None:
        """Sends a message; one for a connection that is gone or takes nothing is dropped."""


OpenLink = Callable[
    [SessionSettings, tuple[str, ...]], contextlib.AbstractAsyncContextManager[tuple[Link, list[str]]]
]
"""Opens a link to the agents of these names, and the list in which reasons to stop appear."""


class RouterLink:
    """A ZeroMQ ROUTER as link."""

    def __init__(self, router: zmq.asyncio.Socket) -> None:
        self._router = router

    async def wait(self, timeout_ms: int) -> bool:
        """See `Link`."""
        return bool(await self._router.poll(timeout_ms))

    async def receive(self) -> tuple[bytes, bytes] | None:
        """See `Link`. A body in several frames is no message of ours; joined, it is refused as such."""
        try:
            identity, *parts = await self._router.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return None
        return identity, b"".join(parts)

    async def send(self, identity: bytes, body: bytes) -> None:
        """See `Link`. Of a peer that is gone the heartbeats will be missed, and that is told by name."""
        try:
            await self._router.send_multipart([identity, body], zmq.NOBLOCK)
        except zmq.ZMQError as error:
            if error.errno not in (zmq.EAGAIN, zmq.EHOSTUNREACH):
                raise


@contextlib.asynccontextmanager
async def own_link(settings: SessionSettings, _: tuple[str, ...]) -> AsyncIterator[tuple[Link, list[str]]]:
    """Listen where the settings say, and for SIGINT and SIGTERM.

    Raises `ConfigError` for a bind address or keys that cannot be used.
    """
    check_exposure(settings)
    async with open_router(settings.bind, settings.curve) as router:
        with stop_reasons() as stops:
            yield RouterLink(router), stops


async def run(
    settings: SessionSettings,
    assignments: Mapping[str, Assignment],
    tables: PlanTables,
    on_progress: OnProgress,
    on_event: OnEvent,
    companion: Companion | None = None,
    open_link: OpenLink = own_link,
) -> RunOutcome:
    """Gathers the agents of `assignments`, runs the plan and returns all that was measured.

    A run that breaks after traffic began returns with what arrived until then; so does one that somebody stops.
    `on_event` gets a line for people now and then, `on_progress` the totals about ten times a second. `companion` lives
    next to the session and is cancelled when that has ended. `open_link` opens what carries the session.

    Raises what opening the link raises, `PlanError` for an assignment too large to send, and `RigError` if an agent, an
    address or a connection is not ready.
    """
    check_sendable(assignments)
    started_at = wall_time_text()
    async with open_link(settings, tuple(assignments)) as (link, stops):
        session = Session(settings, assignments, tables, monotonic_ns())
        beside = asyncio.ensure_future(companion(session)) if companion is not None else None
        try:
            await _drive(session, link, stops, on_progress, on_event)
        finally:
            if beside is not None:
                beside.cancel()
                await asyncio.wait((beside,))
        if beside is not None and not beside.cancelled() and (failure := beside.exception()) is not None:
            raise failure
    if session.problems:
        raise RigError(*session.problems)
    return session.outcome(started_at)


async def _drive(
    session: Session, link: Link, stops: list[str], on_progress: OnProgress, on_event: OnEvent
) -> None:
    """Lets a session live over a link until it has ended. What appears in `stops` winds it up."""
    next_progress_ns = 0
    while True:
        await perform(session.on_tick(monotonic_ns()), link, on_event)
        while stops:
            await perform(session.on_stop(stops.pop(), monotonic_ns()), link, on_event)
        now_ns = monotonic_ns()
        if now_ns >= next_progress_ns or session.ended:
            next_progress_ns = now_ns + _PROGRESS_NS
            on_progress(session.progress())
        if session.ended:
            return
        # What is ready is awaited without a pause: signals get their turn here, however much agents say.
        await asyncio.sleep(0)
        if await link.wait(_TICK_MS):
            await _receive_burst(session, link, on_event)


async def _receive_burst(session: Session, link: Link, on_event: OnEvent) -> None:
    for _ in range(_RECEIVE_BURST):
        received = await link.receive()
        if received is None:
            return
        identity, body = received
        now_ns = monotonic_ns()
        try:
            actions = session.on_message(identity, decode_from_agent(body), now_ns)
        except ProtocolError as error:
            actions = session.on_malformed(identity, error, now_ns)
        await perform(actions, link, on_event)


async def perform(actions: tuple[Action, ...], link: Link, on_event: OnEvent) -> None:
    """Sends what a session, or who keeps agents for sessions, asks for; `on_event` gets its lines for people."""
    for action in actions:
        if not isinstance(action, Send):
            on_event(action.text)
            continue
        message = action.message
        if isinstance(message, Ping):
            message = replace(message, controller_ns=monotonic_ns())
        await link.send(action.identity, encode(message))


def check_sendable(assignments: Mapping[str, Assignment]) -> None:
    """Raises `PlanError` for an assignment that is too large to send."""
    for name, assignment in assignments.items():
        try:
            encode(Assign(assignment))
        except MessageTooLarge as error:
            what = f"its assignment cannot be sent: {error}"
            raise PlanError(Problem(f"agent '{name}'", what, "spread the ranks over more agents")) from None


@contextlib.asynccontextmanager
async def open_router(bind: str, curve: CurveServer | None) -> AsyncIterator[zmq.asyncio.Socket]:
    """A ROUTER that listens at `bind` while it is open. Raises `ConfigError` for an address or keys that cannot be used."""
    context = zmq.asyncio.Context()
    router = context.socket(zmq.ROUTER)
    stopping = contextlib.ExitStack()
    try:
        router.setsockopt(zmq.LINGER, _LINGER_MS)
        router.setsockopt(zmq.ROUTER_MANDATORY, 1)
        router.setsockopt(zmq.MAXMSGSIZE, MAX_TO_CONTROLLER_BYTES)
        router.setsockopt(zmq.RCVHWM, _QUEUED_MESSAGES)
        router.setsockopt(zmq.IPV6, 1)
        if curve is not None:
            admitting = secure_server(router, context, curve.secret_key_file, curve.agent_keys_dir)
            stopping.callback(admitting.stop)
        try:
            router.bind(bind)
        except zmq.ZMQError as error:
            what = f"cannot listen there: {error.strerror}"
            remedy = "choose an address of this host and a free port"
            raise ConfigError(Problem(bind, what, remedy)) from None
        yield router
    finally:
        router.close()
        stopping.close()
        await asyncio.to_thread(context.term)
