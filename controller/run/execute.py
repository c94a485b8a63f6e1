"""Executes a plan by agents: a session over sockets, with the timeline, the device's counters and the lab next to it.

Decides nothing about the run. What carries the session, this process's own socket or a rack's link, is the caller's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AbstractContextManager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from etloop.contract.base.errors import RigError
from etloop.controller.run.device_counters import counted_run, counting_of
from etloop.controller.run.link_timeline import LinkTimeline
from etloop.controller.run.pipeline import Executed, RunStopped, RunWatcher
from etloop.controller.run.prepare import Prepared
from etloop.controller.session.service import Link, own_link, run
from etloop.controller.session.settings import CurveServer, SessionSettings
from etloop.lab.client import lab_counters, lab_status
from etloop.lab.request import up_options
from etloop.results.schema.case import Repeat, RepeatedBy
from etloop.runtime.stop_signals import stop_reasons

_T = TypeVar("_T")


class Carrier(Protocol):
    """What carries a session, and says when it is to end."""

    def open(
        self, settings: SessionSettings, agents: tuple[str, ...]
    ) -> AbstractAsyncContextManager[tuple[Link, list[str]]]:
        """Open the link to these agents, and the list in which reasons to stop appear."""

    def stops(self) -> AbstractContextManager[list[str]]:
        """Open such a list after the session."""

    def live(self, session: Coroutine[Any, Any, _T]) -> _T:
        """Return what a session comes to, on the event loop that the carrier is for."""

    def unless_stopped(self, work: Callable[[], _T]) -> _T:
        """Return what `work` does; raise `RunStopped` as soon as the run is to end."""


class OwnCarrier:
    """A ROUTER where the rig says, and the signals of this process."""

    open = staticmethod(own_link)
    stops = staticmethod(stop_reasons)

    def live(self, session: Coroutine[Any, Any, _T]) -> _T:
        """See `Carrier`."""
        return asyncio.run(session)

    def unless_stopped(self, work: Callable[[], _T]) -> _T:
        """See `Carrier`."""
        try:
            return work()
        except KeyboardInterrupt:
            raise RunStopped from None


class SessionExecution:
    """See `pipeline.Execution`."""

    is_twin = False
    repeated_by = RepeatedBy(Repeat.RUN)

    def __init__(self, carrier: Carrier | None = None) -> None:
        self._carrier = carrier or OwnCarrier()
        self.unless_stopped = self._carrier.unless_stopped

    def execute(self, prepared: Prepared, lab: str, watcher: RunWatcher, spool: Path | None) -> Executed:
        """Run a session to its end.

        Raises `InputError` where the rig, its device or the lab cannot be used. What stops it ends the session only.
        """
        plan, counting = prepared.plan, counting_of(prepared.rig)
        if lab:
            _expect_up(lab)
        with LinkTimeline(prepared.scenario.timeline, lab) as timeline:
            before = _overload_frames(lab)
            session = partial(
                run,
                replace(session_settings(prepared), spool_dir=spool),
                plan.assignments,
                plan.tables,
                watcher,
                timeline.accompany if prepared.scenario.timeline else None,
                self._carrier.open,
            )
            outcome, counted = self._carrier.live(
                counted_run(counting, session, watcher.report, self._carrier.stops)
            )
        overload = max(_overload_frames(lab) - before, 0)
        outcome = replace(outcome, events=timeline.events(), overload_frames=overload)
        return Executed(outcome, plan.connection_rows, counted, lab_up=_up_options(lab))


def session_settings(prepared: Prepared) -> SessionSettings:
    """Return the session's settings as scenario and rig state them."""
    scenario, rig = prepared.scenario, prepared.rig
    return SessionSettings(
        run_id=prepared.plan.parts.run_id,
        bind=rig.bind,
        curve=CurveServer.of(rig.security),
        standing_by=tuple(one.name for one in rig.agents if one.name not in prepared.plan.assignments),
        lab=rig.lab,
        insecure=rig.security.insecure,
        gather_timeout_ns=scenario.gather_timeout_ns,
        stall_timeout_ns=scenario.stall_timeout_ns,
        lost_after_ns=scenario.lost_after_ns,
    )


def _expect_up(lab: str) -> None:
    """Raise `RigError` where a lab is not up: its agents would be waited for in vain."""
    try:
        lab_status(lab)
    except RigError as error:
        remedy = f"bring it up with its agents: etloop lab up TOPOLOGY --agents --name {lab}"
        raise RigError(*(replace(problem, remedy=remedy) for problem in error.problems)) from None


def _up_options(lab: str) -> str:
    """Return with which options a lab came up; "" where there is none, or it went down meanwhile."""
    if lab:
        with suppress(RigError):
            return up_options(lab_status(lab))
    return ""


def _overload_frames(lab: str) -> int:
    """Return what a lab's switch has lost because its host could not keep up; 0 where there is no lab to ask."""
    if not lab:
        return 0
    with suppress(RigError):
        return lab_counters(lab).soft_switch.overload_frames
    return 0
