"""Runs a session over a link to its agents: the clock, messages and signals around `Session`.

Receives messages, passes them on, and sends what the session requests. Decides nothing about the run.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

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
from etloop.controller.session.posts import Posts
from etloop.controller.session.records import SpoolFailed
from etloop.controller.session.router import open_router
from etloop.controller.session.session import Session
from etloop.controller.session.settings import SessionSettings, check_exposure
from etloop.controller.session.spool import RunSpool
from etloop.runtime.clock import monotonic_ns, wall_time_text
from etloop.runtime.stop_signals import stop_reasons

_TICK_MS: Final = 20
"""Finest ping interval that a session requests."""
_PROGRESS_NS: Final = 100 * NS_PER_MS
_RECEIVE_BURST: Final = 64
"""Messages received between two ticks, so that a flood cannot hold up the clock."""

OnEvent = Callable[[str], None]
Companion = Callable[[Session], Coroutine[None, None, None]]
"""Coroutine that runs next to a session, such as a timeline."""


class Link(Protocol):
    """Transport of messages between a session and its agents: a ROUTER of its own, or a rack's."""

    async def wait(self, timeout_ms: float) -> bool:
        """Return true as soon as a message is there, false after `timeout_ms`."""

    async def receive(self) -> tuple[bytes, bytes] | None:
        """Return the next message as (connection, body); None if there is none now."""

    async def send(self, identity: bytes, body: bytes) -> bool:
        """Send a message and return whether the connection exists; a message that its queue cannot take is dropped."""

    def take_pauses(self) -> tuple[int, ...]:
        """Return for how many ns the controller between this end and the agents did not run, each time since the last call."""

    def name_problem(self, identity: bytes, name: str) -> str:
        """Return why the agent on a connection may not use `name`; "" if it may."""

    def take_notices(self) -> tuple[Notice, ...]:
        """Return the notices about admission for the operator, since the last call."""


class SessionWatcher(Protocol):
    """Receives log lines, progress and records of a session while it runs."""

    def report(self, line: str) -> None:
        """Accept a log line."""

    def progress(self, progress: RunProgress) -> None:
        """Accept the run's totals, about ten times a second."""

    def take_records(self, records: NDArray[np.void]) -> None:
        """Accept op records (`OP_RECORD`) of one agent as they arrive; times are on its clock."""


OpenLink = Callable[
    [SessionSettings, tuple[str, ...]], contextlib.AbstractAsyncContextManager[tuple[Link, list[str]]]
]
"""Opens a link to the agents of these names, and yields it with the list to which reasons to stop are added."""


@contextlib.asynccontextmanager
async def own_link(settings: SessionSettings, _: tuple[str, ...]) -> AsyncIterator[tuple[Link, list[str]]]:
    """Listen at the settings' address, and for SIGINT and SIGTERM.

    Raises `ConfigError` for an unusable bind address or unusable keys.
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
    posts: Posts | None = None,
) -> RunOutcome:
    """Gather the agents of `assignments`, run the plan, and return everything that was measured.

    A run that fails or is stopped after traffic began returns the records that arrived until then. `watcher` gets log
    lines, progress and records meanwhile. `companion` runs next to the session and is cancelled when that ends.
    `open_link` opens the transport. `posts` decides which messages begin while the run lasts; the programs only describe
    them. If the settings name a spool directory, records are kept there, also after the return.

    Raises the errors of opening the link, `PlanError` for an assignment too large to send, `NoRoom` if the spool cannot
    be made, and `RigError` if an agent, an address or a connection is not ready.
    """
    check_sendable(assignments)
    started_at = wall_time_text()
    spool: RunSpool | None = None
    if settings.spool_dir is not None:
        spool = RunSpool(settings.spool_dir, len(tables.ops.rank), tables.iterations, started_at)
        try:
            spool.open()
        except SpoolFailed as error:
            raise NoRoom(Problem("spool", str(error), "free space on its disk")) from None
    async with open_link(settings, tuple(assignments)) as (link, stops):
        session = Session(settings, assignments, tables, monotonic_ns(), spool, watcher.take_records, posts)
        companion_task = asyncio.ensure_future(companion(session)) if companion is not None else None
        try:
            await _drive(session, link, stops, watcher)
        finally:
            if spool is not None:
                spool.close()
            if companion_task is not None:
                companion_task.cancel()
                await asyncio.wait((companion_task,))
        if (
            companion_task is not None
            and not companion_task.cancelled()
            and (failure := companion_task.exception()) is not None
        ):
            raise failure
    if session.problems:
        raise RigError(*session.problems)
    outcome = session.outcome(started_at)
    if spool is None:
        return outcome
    with contextlib.suppress(
        SpoolFailed
    ):  # The end is kept for later readers of the spool; this caller gets it from `outcome`.
        spool.end(outcome.state, outcome.reason)
    return replace(outcome, kept_ops=spool.spooled_ops(len(outcome.agents)))


async def _drive(session: Session, link: Link, stops: list[str], watcher: SessionWatcher) -> None:
    """Run a session over a link until it has ended. Reasons that appear in `stops` wind it up."""
    on_event = watcher.report
    next_progress_ns = 0
    lines = LogLimit()
    while True:
        for pause_ns in link.take_pauses():
            await perform(session.on_pause("the controller", pause_ns, monotonic_ns()), link, on_event)
        for identity in await perform(session.on_tick(monotonic_ns()), link, on_event):
            session.on_closed(identity, monotonic_ns())
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
        # Awaiting a ready message does not yield to the loop; yield here so that signals are handled under any load.
        await asyncio.sleep(0)
        if await link.wait(_wait_ms(session)):
            await _receive_burst(session, link, on_event)


def _wait_ms(session: Session) -> float:
    """Return the time to wait for a message. The event loop wakes up to a millisecond late, so the rest is polled."""
    if session.due_ns is None:
        return _TICK_MS
    return min(max((session.due_ns - monotonic_ns()) / NS_PER_MS - 1, 0), _TICK_MS)


async def _receive_burst(session: Session, link: Link, on_event: OnEvent) -> None:
    for _ in range(_RECEIVE_BURST):
        received = await link.receive()
        if received is None:
            return
        identity, body = received
        now_ns = monotonic_ns()
        try:
            message = decode_from_agent(body)
            refusal = refusal_of_name(link, identity, message)
            actions = refusal or session.on_message(identity, message, now_ns)
        except ProtocolError as error:
            actions = session.on_malformed(identity, error, now_ns)
        await perform(actions, link, on_event)


def refusal_of_name(link: Link, identity: bytes, message: AgentMessage) -> tuple[Action, ...]:
    """Return the refusal of a Hello whose name does not belong to the connection's key; () for any other message."""
    why = link.name_problem(identity, message.name) if isinstance(message, Hello) else ""
    if not why:
        return ()
    line = LogLine(f"refused a connection: {why}", kind="an agent's key has another name")
    return (Send(identity, Refused(why, RefusalCause.KEY_OF_ANOTHER)), line)


async def perform(actions: tuple[Action, ...], link: Link, on_event: OnEvent) -> tuple[bytes, ...]:
    """Send the messages among `actions`; `on_event` gets the log lines.

    Pings are stamped with the time at which they leave. Returns the connections that no longer exist.
    """
    gone_connections = []
    for action in actions:
        if not isinstance(action, Send):
            on_event(action.text)
            continue
        message = action.message
        if isinstance(message, Ping):
            message = replace(message, controller_ns=monotonic_ns())
        if not await link.send(action.identity, encode(message)):
            gone_connections.append(action.identity)
    return tuple(gone_connections)


def check_sendable(assignments: Mapping[str, Assignment]) -> None:
    """Raise `PlanError` for an assignment that is too large to send."""
    for name, assignment in assignments.items():
        try:
            encode(Assign(assignment))
        except MessageTooLarge as error:
            problem = f"its assignment cannot be sent: {error}"
            raise PlanError(
                Problem(f"agent '{name}'", problem, "spread the ranks over more agents")
            ) from None
