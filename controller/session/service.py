"""Runs a session over a link to its agents: the clock and the process's signals around `Session`.

Receives, hands on, sends what the session asks for. Decides nothing about the run.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Final, Protocol

import numpy as np
from etloop.contract.base.clock import NS_PER_MS
from etloop.contract.base.errors import NoRoom, PlanError, Problem, ProtocolError, RigError
from etloop.contract.model.assignment import Assignment
from etloop.contract.model.run import PlanTables, RunOutcome
from etloop.contract.protocol.message_set import MessageTooLarge
from etloop.contract.protocol.messages import AgentMessage, Assign, Hello, Ping, RefusalCause, Refused
from etloop.contract.protocol.wire import decode_from_agent, encode
from etloop.controller.session.actions import Action, LogLine, RunProgress, Send
from etloop.controller.session.admission import Notice
from etloop.controller.session.log_limit import LogLimit
from etloop.controller.session.records import SpoolFailed
from etloop.controller.session.router import open_router
from etloop.controller.session.session import Session
from etloop.controller.session.settings import SessionSettings, check_exposure
from etloop.controller.session.spool import RunSpool
from etloop.runtime.clock import monotonic_ns, wall_time_text
from etloop.runtime.stop_signals import stop_reasons
from numpy.typing import NDArray

_TICK_MS: Final = 20
"""The finest spacing of pings that a session asks for."""
_PROGRESS_NS: Final = 100 * NS_PER_MS
_RECEIVE_BURST: Final = 64
"""Messages taken between two ticks, so that a flood cannot stop the clock."""

OnEvent = Callable[[str], None]
Companion = Callable[[Session], Coroutine[None, None, None]]
"""What lives beside a session, such as a timeline."""


class Link(Protocol):
    """What carries messages between a session and its agents: a ROUTER of its own, or a rack's."""

    async def wait(self, timeout_ms: int) -> bool:
        """Returns true as soon as a message is there, false after `timeout_ms`."""

    async def receive(self) -> tuple[bytes, bytes] | None:
        """The next message as (connection, body), None if there is none now."""

    async def send(self, identity: bytes, body: bytes) -> bool:
        """Sends a message; one for a connection that takes nothing is dropped. Whether the connection is there."""

    def misnamed(self, identity: bytes, name: str) -> str:
        """Why the agent on a connection may not say that it is `name`; "" if it may."""

    def take_notices(self) -> tuple[Notice, ...]:
        """What people should know of who was let in and who was not, since the last call."""


class SessionWatcher(Protocol):
    """Gets what is to be known of a session while it goes on."""

    def report(self, line: str) -> None:
        """Take a line for people, now and then."""

    def progress(self, progress: RunProgress) -> None:
        """Take the totals, about ten times a second."""

    def measured(self, records: NDArray[np.void]) -> None:
        """Take op records (`OP_RECORD`) of one agent as it hands them over, on its clock."""


OpenLink = Callable[
    [SessionSettings, tuple[str, ...]], contextlib.AbstractAsyncContextManager[tuple[Link, list[str]]]
]
"""Opens a link to the agents of these names, and the list in which reasons to stop appear."""


@contextlib.asynccontextmanager
async def own_link(settings: SessionSettings, _: tuple[str, ...]) -> AsyncIterator[tuple[Link, list[str]]]:
    """Listen where the settings say, and for SIGINT and SIGTERM.

    Raises `ConfigError` for a bind address or keys that cannot be used.
    """
    check_exposure(settings)
    async with open_router(settings.bind, settings.curve) as link:
        with stop_reasons() as stops:
            yield link, stops


async def run(
    settings: SessionSettings,
    assignments: Mapping[str, Assignment],
    tables: PlanTables,
    watcher: SessionWatcher,
    companion: Companion | None = None,
    open_link: OpenLink = own_link,
) -> RunOutcome:
    """Gathers the agents of `assignments`, runs the plan and returns all that was measured.

    A run that breaks after traffic began returns with what arrived until then; so does one that somebody stops.
    `watcher` gets what is to be known of it meanwhile. `companion` lives next to the session and is cancelled when that has
    ended. `open_link` opens what carries the session. Where the settings name a directory for a spool, what is measured is
    there, and stays there.

    Raises what opening the link raises, `PlanError` for an assignment too large to send, and `RigError` if an agent, an
    address or a connection is not ready.
    """
    check_sendable(assignments)
    started_at = wall_time_text()
    spool: RunSpool | None = None
    if settings.spool_dir is not None:
        spool = RunSpool(settings.spool_dir, len(tables.ops.rank), tables.iterations, started_at)
        try:
            spool.open()
        except SpoolFailed as error:
            raise NoRoom(Problem("spool", str(error), "make room on its disk")) from None
    async with open_link(settings, tuple(assignments)) as (link, stops):
        session = Session(settings, assignments, tables, monotonic_ns(), spool, watcher.measured)
        beside = asyncio.ensure_future(companion(session)) if companion is not None else None
        try:
            await _drive(session, link, stops, watcher)
        finally:
            if spool is not None:
                spool.close()
            if beside is not None:
                beside.cancel()
                await asyncio.wait((beside,))
        if beside is not None and not beside.cancelled() and (failure := beside.exception()) is not None:
            raise failure
    if session.problems:
        raise RigError(*session.problems)
    outcome = session.outcome(started_at)
    if spool is None:
        return outcome
    with contextlib.suppress(
        SpoolFailed
    ):  # It says why a run ended to who finds its spool; this one is told at once.
        spool.end(outcome.state, outcome.reason)
    return replace(outcome, kept_ops=spool.kept(len(outcome.agents)))


async def _drive(session: Session, link: Link, stops: list[str], watcher: SessionWatcher) -> None:
    """Lets a session live over a link until it has ended. What appears in `stops` winds it up."""
    on_event = watcher.report
    next_progress_ns = 0
    lines = LogLimit()
    while True:
        await perform(session.on_tick(monotonic_ns()), link, on_event)
        for notice in link.take_notices():
            if lines.takes(notice.kind, monotonic_ns()):
                on_event(notice.text)
        while stops:
            await perform(session.on_stop(stops.pop(), monotonic_ns()), link, on_event)
        now_ns = monotonic_ns()
        if now_ns >= next_progress_ns or session.ended:
            next_progress_ns = now_ns + _PROGRESS_NS
            watcher.progress(session.progress())
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
            message = decode_from_agent(body)
            turned_away = refusal_of_name(link, identity, message)
            actions = turned_away or session.on_message(identity, message, now_ns)
        except ProtocolError as error:
            actions = session.on_malformed(identity, error, now_ns)
        await perform(actions, link, on_event)


def refusal_of_name(link: Link, identity: bytes, message: AgentMessage) -> tuple[Action, ...]:
    """What an agent gets that says a name which its key does not have; () for everybody else."""
    why = link.misnamed(identity, message.name) if isinstance(message, Hello) else ""
    if not why:
        return ()
    line = LogLine(f"refused a connection: {why}", kind="an agent's key has another name")
    return (Send(identity, Refused(why, RefusalCause.KEY_OF_ANOTHER)), line)


async def perform(actions: tuple[Action, ...], link: Link, on_event: OnEvent) -> tuple[bytes, ...]:
    """Sends what a session, or who keeps agents for sessions, asks for; `on_event` gets its lines for people.

    Returns the connections that are not there any more.
    """
    gone = []
    for action in actions:
        if not isinstance(action, Send):
            on_event(action.text)
            continue
        message = action.message
        if isinstance(message, Ping):
            message = replace(message, controller_ns=monotonic_ns())
        if not await link.send(action.identity, encode(message)):
            gone.append(action.identity)
    return tuple(gone)


def check_sendable(assignments: Mapping[str, Assignment]) -> None:
    """Raises `PlanError` for an assignment that is too large to send."""
    for name, assignment in assignments.items():
        try:
            encode(Assign(assignment))
        except MessageTooLarge as error:
            what = f"its assignment cannot be sent: {error}"
            raise PlanError(Problem(f"agent '{name}'", what, "spread the ranks over more agents")) from None
