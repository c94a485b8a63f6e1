"""Runs a session over real sockets: a ZeroMQ ROUTER, the clock and the process's signals around `Session`.

Receives, hands on, sends what the session asks for. Decides nothing about the run.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import zmq
import zmq.asyncio
import zmq.auth
from zmq.auth.asyncio import AsyncioAuthenticator

from contract.assignment import Assignment
from contract.clock import NS_PER_MS
from contract.codec import MessageTooLarge, decode_from_agent, encode
from contract.errors import ConfigError, PlanError, Problem, ProtocolError, RigError
from contract.messages import MAX_TO_CONTROLLER_BYTES, Assign, Ping
from contract.run import PlanTables, RunOutcome
from controller.session import Session
from controller.session_actions import Action, RunProgress, Send
from controller.session_settings import CurveServer, SessionSettings, check_exposure
from controller.system_clock import monotonic_ns, wall_time_text

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


async def run(
    settings: SessionSettings,
    assignments: Mapping[str, Assignment],
    tables: PlanTables,
    on_progress: OnProgress | None = None,
    on_event: OnEvent | None = None,
) -> RunOutcome:
    """Gathers the agents of `assignments`, runs the plan and returns all that was measured.

    A run that breaks after traffic began returns with state "aborted" and what arrived until then; so does one that
    the user stops (SIGINT, SIGTERM). `on_event` gets a line for people now and then, `on_progress` the totals about
    ten times a second. Raises `ConfigError` for a bind address or keys that cannot be used, `PlanError` for an
    assignment too large to send, and `RigError` if an agent, an address or a connection is not ready.
    """
    check_exposure(settings)
    for name, assignment in assignments.items():
        _check_sendable(name, assignment)
    started_at = wall_time_text()
    async with _router(settings) as router:
        with _stop_signals() as stops:
            session = Session(settings, assignments, tables, monotonic_ns())
            await _drive(session, router, stops, on_progress or _ignore, on_event or _ignore)
    if session.problems:
        raise RigError(*session.problems)
    return session.outcome(started_at)


def _ignore(_: object) -> None:
    """Nobody listens."""


async def _drive(
    session: Session, router: zmq.asyncio.Socket, stops: list[str], on_progress: OnProgress, on_event: OnEvent
) -> None:
    next_progress_ns = 0
    while True:
        for action in session.on_tick(monotonic_ns()):
            await _perform(action, router, on_event)
        while stops:
            for action in session.on_stop(stops.pop(), monotonic_ns()):
                await _perform(action, router, on_event)
        now_ns = monotonic_ns()
        if now_ns >= next_progress_ns or session.ended:
            next_progress_ns = now_ns + _PROGRESS_NS
            on_progress(session.progress())
        if session.ended:
            return
        if await router.poll(_TICK_MS):
            await _receive_burst(session, router, on_event)


async def _receive_burst(session: Session, router: zmq.asyncio.Socket, on_event: OnEvent) -> None:
    for _ in range(_RECEIVE_BURST):
        try:
            frames = await router.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return
        now_ns = monotonic_ns()
        identity, *parts = frames
        try:
            # A body in several frames is no message of ours either; joined, it is refused as such.
            actions = session.on_message(identity, decode_from_agent(b"".join(parts)), now_ns)
        except ProtocolError as error:
            actions = session.on_garbage(identity, error, now_ns)
        for action in actions:
            await _perform(action, router, on_event)


async def _perform(action: Action, router: zmq.asyncio.Socket, on_event: OnEvent) -> None:
    if not isinstance(action, Send):
        on_event(action.text)
        return
    message = action.message
    if isinstance(message, Ping):
        message = replace(message, controller_ns=monotonic_ns())
    try:
        await router.send_multipart([action.identity, encode(message)], zmq.NOBLOCK)
    except zmq.ZMQError as error:
        # The peer is gone or takes nothing: its heartbeats will be missed, and that is told by name.
        if error.errno not in (zmq.EAGAIN, zmq.EHOSTUNREACH):
            raise


def _check_sendable(name: str, assignment: Assignment) -> None:
    try:
        encode(Assign(assignment))
    except MessageTooLarge as error:
        what = f"its assignment cannot be sent: {error}"
        raise PlanError(Problem(f"agent '{name}'", what, "spread the ranks over more agents")) from None


@contextlib.asynccontextmanager
async def _router(settings: SessionSettings) -> AsyncIterator[zmq.asyncio.Socket]:
    context = zmq.asyncio.Context()
    authenticator: AsyncioAuthenticator | None = None
    router = context.socket(zmq.ROUTER)
    try:
        router.setsockopt(zmq.LINGER, _LINGER_MS)
        router.setsockopt(zmq.ROUTER_MANDATORY, 1)
        router.setsockopt(zmq.MAXMSGSIZE, MAX_TO_CONTROLLER_BYTES)
        router.setsockopt(zmq.RCVHWM, _QUEUED_MESSAGES)
        router.setsockopt(zmq.IPV6, 1)
        if settings.curve is not None:
            authenticator = _secure(router, context, settings.curve)
        try:
            router.bind(settings.bind)
        except zmq.ZMQError as error:
            what = f"cannot listen there: {error.strerror}"
            remedy = "choose an address of this host and a free port"
            raise ConfigError(Problem(settings.bind, what, remedy)) from None
        yield router
    finally:
        router.close()
        if authenticator is not None:
            authenticator.stop()
        await asyncio.to_thread(context.term)


def _secure(
    router: zmq.asyncio.Socket, context: zmq.asyncio.Context, curve: CurveServer
) -> AsyncioAuthenticator:
    """Encrypts the socket and admits only the agents whose public key is on the allow-list."""
    public, secret = load_secret_key(curve.secret_key_file)
    if not any(curve.agent_keys_dir.glob("*.key")):
        remedy = "put the .key file of every agent there (etloop-agent keygen makes them)"
        raise ConfigError(Problem(str(curve.agent_keys_dir), "holds no agent key (*.key)", remedy))
    authenticator = AsyncioAuthenticator(context)
    authenticator.start()
    authenticator.configure_curve(domain="*", location=str(curve.agent_keys_dir))
    router.curve_secretkey = secret
    router.curve_publickey = public
    router.curve_server = True
    return authenticator


def load_secret_key(path: Path) -> tuple[bytes, bytes]:
    """Public and secret key of a certificate file. Raises `ConfigError`."""
    remedy = "make a key pair with etloop-agent keygen and give the .key_secret file"
    try:
        public, secret = zmq.auth.load_certificate(path)
    except (OSError, ValueError) as error:
        raise ConfigError(Problem(str(path), f"is no readable key file: {error}", remedy)) from None
    if secret is None:
        raise ConfigError(Problem(str(path), "holds no secret key", remedy))
    return public, secret


@contextlib.contextmanager
def _stop_signals() -> Iterator[list[str]]:
    """Collects SIGINT and SIGTERM as reasons to stop while it is open; outside the main thread there are none."""
    stops: list[str] = []
    loop = asyncio.get_running_loop()
    taken: list[signal.Signals] = []
    for number, reason in ((signal.SIGINT, "stopped by Ctrl-C"), (signal.SIGTERM, "stopped by SIGTERM")):
        try:
            loop.add_signal_handler(number, stops.append, reason)
            taken.append(number)
        except (ValueError, RuntimeError):
            break
    try:
        yield stops
    finally:
        for number in taken:
            loop.remove_signal_handler(number)
