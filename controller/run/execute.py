"""Executes a plan by agents: a session over sockets, with the timeline, the device's counters and the lab in parallel.

Decides nothing about the run. The caller chooses the carrier of the session: this process's own socket or a rack's link.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from etloop.contract.base.errors import RigError
from etloop.contract.model.assignment import Assignment
from etloop.contract.model.run import RunOutcome
from etloop.controller.run.device_counters import add_device_counters, counting_of
from etloop.controller.run.execution import Executed, RunStopped, RunWatcher
from etloop.controller.run.link_timeline import LinkTimeline
from etloop.controller.run.prepare import Prepared
from etloop.controller.session.posts import Posts
from etloop.controller.session.service import Link, own_link, run
from etloop.controller.session.settings import CurveServer, SessionSettings
from etloop.lab.client import lab_counters, lab_status
from etloop.lab.request import up_options
from etloop.results.schema.case import Repeat, RepeatedBy
from etloop.runtime.stop_signals import stop_reasons

_T = TypeVar("_T")


class Carrier(Protocol):
    """The connection that carries a session, and the source of reasons to end it."""

    def open(
        self, settings: SessionSettings, agents: tuple[str, ...]
    ) -> AbstractAsyncContextManager[tuple[Link, list[str]]]:
        """Open the link to these agents, and the list in which reasons to stop appear."""

    def stops(self) -> AbstractContextManager[list[str]]:
        """Open a list of reasons to stop for the time after the session."""

    def live(self, session: Coroutine[Any, Any, _T]) -> _T:
        """Return the result of a session, run on the event loop of the carrier."""

    def unless_stopped(self, work: Callable[[], _T]) -> _T:
        """Return the result of `work`; raise `RunStopped` as soon as the run is to end."""


class OwnCarrier:
    """Carrier with a ROUTER socket at the rig's address and the signals of this process."""

    open = staticmethod(own_link)
    stops = staticmethod(stop_reasons)

    def live(self, session: Coroutine[Any, Any, _T]) -> _T:
        """Run a session on a new event loop; see `Carrier`."""
        return asyncio.run(session)

    def unless_stopped(self, work: Callable[[], _T]) -> _T:
        """Return the result of `work`; raise `RunStopped` on SIGINT. See `Carrier`."""
        try:
            return work()
        except KeyboardInterrupt:
            raise RunStopped from None


class SessionExecution:
    """Execution of plans by agents; see `pipeline.Execution`."""

    is_twin = False
    repeated_by = RepeatedBy(Repeat.RUN)

    def __init__(
        self,
        carrier: Carrier | None = None,
        posts_of: Callable[[Mapping[str, Assignment]], Posts] | None = None,
    ) -> None:
        """`posts_of` returns the messages of a run, by the assignments of its agents; None: programs are executed."""
        self._carrier = carrier or OwnCarrier()
        self._posts_of = posts_of
        self.unless_stopped = self._carrier.unless_stopped

    def execute(self, prepared: Prepared, lab: str, watcher: RunWatcher, spool: Path | None) -> Executed:
        """Run a session to its end.

        Raises `InputError` if the rig, its device or the lab cannot be used. A reason to stop ends the session, and its
        records are returned.
        """
        plan, counting = prepared.plan, counting_of(prepared.rig)
        if lab:
            _refuse_absent_lab(lab)
        with LinkTimeline(prepared.scenario.timeline, lab) as timeline:
            overload_before = _overload_frames(lab) if lab else 0
            session = partial(
                run,
                replace(session_settings(prepared), spool_dir=spool),
                plan.assignments,
                plan.tables,
                watcher,
                timeline.accompany if prepared.scenario.timeline else None,
                self._carrier.open,
                None if self._posts_of is None else self._posts_of(plan.assignments),
            )
            outcome, counts = self._carrier.live(
                add_device_counters(
                    counting, session, watcher.report, self._carrier.stops, watcher.take_counters
                )
            )
        outcome = replace(outcome, events=timeline.events())
        if lab:
            outcome = _with_overload(outcome, lab, overload_before)
        return Executed(outcome, plan.connection_rows, counts, lab_up=_up_options(lab))


def session_settings(prepared: Prepared) -> SessionSettings:
    """Return the session's settings from scenario and rig."""
    scenario, rig = prepared.scenario, prepared.rig
    return SessionSettings(
        run_id=prepared.plan.parts.run_id,
        bind=rig.bind,
        curve=CurveServer.of(rig.security),
        standing_by=tuple(agent.name for agent in rig.agents if agent.name not in prepared.plan.assignments),
        lab=rig.lab,
        insecure=rig.security.insecure,
        gather_timeout_ns=scenario.limits.gather_timeout_ns,
        stall_timeout_ns=scenario.limits.stall_timeout_ns,
        lost_after_ns=scenario.limits.lost_after_ns,
        pause_ns=scenario.limits.pause_ns,
    )


def _refuse_absent_lab(lab: str) -> None:
    """Raise `RigError` if a lab is not up, because the session would wait for its agents in vain."""
    try:
        lab_status(lab)
    except RigError as error:
        remedy = f"bring it up with its agents: etloop lab up TOPOLOGY --agents --name {lab}"
        raise RigError(*(replace(problem, remedy=remedy) for problem in error.problems)) from None


def _up_options(lab: str) -> str:
    """Return the options that a lab was started with; "" without a lab, or if it is down by now."""
    if lab:
        with suppress(RigError):
            return up_options(lab_status(lab))
    return ""


def _overload_frames(lab: str) -> int:
    """Return the frames that a lab's switch lost because its host was overloaded. Raises `RigError` without an answer."""
    return lab_counters(lab).soft_switch.overload_frames


def _with_overload(outcome: RunOutcome, lab: str, before: int) -> RunOutcome:
    """Return a run's outcome with the frames that its lab's switch lost since it had lost `before`, or why they are unknown."""
    try:
        return replace(outcome, overload_frames=max(_overload_frames(lab) - before, 0))
    except RigError as error:
        return replace(outcome, overload_unread=str(error.problems[0]))
