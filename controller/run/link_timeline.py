"""Executes a timeline on a lab while a session runs, and records when each event took effect. A shell: the lab's socket,
time.

Decides nothing about the run: an event that the lab refuses is recorded, and the run goes on. Links that the timeline left
down are brought up when the run has ended, in any way.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Final, Self

from etloop.contract.base.errors import ConfigError, EtloopError, Problem
from etloop.contract.base.units import NS_PER_S
from etloop.contract.model.run import LinkEvent
from etloop.contract.protocol.machine import PREPARING, RunState
from etloop.controller.inputs.scenario.timeline import ENDED, TimelineEvent, refuse_unknown
from etloop.controller.session.session import Session
from etloop.lab.client import lab_status, set_link
from etloop.runtime.clock import monotonic_ns

_LOOK_S: Final = 0.002


class LinkTimeline:
    """The events of one run."""

    def __init__(self, events: Sequence[TimelineEvent], lab: str) -> None:
        """Check the events against the lab. Raises `InputError` if there is no lab, it is not up, or it lacks a port."""
        self._events = tuple(events)
        self._lab = lab
        self._done: dict[int, tuple[int, str]] = {}
        self._down: set[str] = set()
        if not events:
            return
        if not lab:
            problem = "links cannot be taken down: the rig names no lab"
            remedy = "bring one up (etloop lab up --rig-out writes such a rig), run it by etloop twin, or remove it"
            raise ConfigError(Problem(events[0].where or "timeline", problem, remedy))
        counters = lab_status(lab).counters
        ports = tuple(f"{switch.name}/{port.name}" for switch in counters.switches for port in switch.ports)
        refuse_unknown(
            events, ports, {attachment.port: attachment.end for attachment in counters.attachments}
        )

    async def accompany(self, session: Session) -> None:
        """Wait for the start of a session, and execute every event at its time until the run is over."""
        while session.state in PREPARING:  # noqa: ASYNC110 - a session is pure and cannot wake a waiter
            await asyncio.sleep(_LOOK_S)
        for number, event in enumerate(self._events):
            due_ns = session.start_ns + event.at_ns
            while (remaining_ns := due_ns - monotonic_ns()) > 0:
                await asyncio.sleep(min(remaining_ns / NS_PER_S, 0.1))
                if session.state is not RunState.RUN:
                    return
            if session.state is not RunState.RUN:
                return
            error_text = await asyncio.to_thread(self._order, event.link, event.up)
            self._done[number] = (monotonic_ns() - session.start_ns, error_text)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Bring up the links that are still down."""
        for link in sorted(self._down):
            with contextlib.suppress(EtloopError):
                set_link(self._lab, link, up=True)
        self._down.clear()

    def events(self) -> tuple[LinkEvent, ...]:
        """Return the events with the time each took effect, or the reason why it did not."""
        link_events = []
        for number, event in enumerate(self._events):
            done_ns, reason = self._done.get(number, (-1, ENDED))
            link_events.append(
                LinkEvent(event.at_ns, event.link, event.up, done_ns if not reason else -1, reason)
            )
        return tuple(link_events)

    def _order(self, link: str, up: bool) -> str:
        try:
            set_link(self._lab, link, up=up)
        except EtloopError as error:
            return str(error)
        (self._down.discard if up else self._down.add)(link)
        return ""
