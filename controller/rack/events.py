"""What the rack tells whoever listens, and the bounded queue between them.

A listener that is too slow loses progress first, then is told that it missed something and should read the state anew:
the rack waits for nobody.
"""

from __future__ import annotations

import asyncio
from collections import deque
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from etloop.contract.base.late_dataclass import dataclass

if TYPE_CHECKING:
    from etloop.controller.rack.agent_pool import AgentPresence
    from etloop.controller.rack.job import Job
    from etloop.controller.session.actions import RunProgress

_MOST_WAITING: Final = 4096


class RackState(StrEnum):
    """How the controller stands."""

    READY = "ready"
    DRAINING = "draining"
    """No job starts any more; those that run may finish."""
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class JobChanged:
    """A job was submitted or has moved on."""

    job: Job
    summary: str = ""
    """summary.json, with the change to an ended state if results were stored."""


@dataclass(frozen=True, slots=True)
class JobForgotten:
    """A job and what was kept of it are gone."""

    job_id: str


@dataclass(frozen=True, slots=True)
class JobMoved:
    """How far a job's run is."""

    job_id: str
    progress: RunProgress


@dataclass(frozen=True, slots=True)
class AgentChanged:
    """An agent came, left, was leased or became free."""

    presence: AgentPresence


@dataclass(frozen=True, slots=True)
class AgentForgotten:
    """The rig names an agent no more."""

    name: str


@dataclass(frozen=True, slots=True)
class RackChanged:
    """The controller's own state."""

    state: RackState


@dataclass(frozen=True, slots=True)
class Missed:
    """Events were lost here: read the jobs anew."""


RackEvent = JobChanged | JobForgotten | JobMoved | AgentChanged | AgentForgotten | RackChanged | Missed


class Subscription:
    """The events for one listener, at most `_MOST_WAITING`; of a job's progress only the last."""

    def __init__(self) -> None:
        self._waiting: deque[RackEvent] = deque()
        self._moved: dict[str, JobMoved] = {}
        self._there = asyncio.Event()

    def put(self, event: RackEvent) -> None:
        """Adds an event; never waits."""
        if isinstance(event, JobMoved):
            self._moved[event.job_id] = event
        else:
            if isinstance(event, JobChanged | JobForgotten):
                job_id = event.job.job_id if isinstance(event, JobChanged) else event.job_id
                self._moved.pop(job_id, None)  # Progress of before the change is no news after it.
            if len(self._waiting) >= _MOST_WAITING:
                self._waiting.clear()
                self._waiting.append(Missed())
            self._waiting.append(event)
        self._there.set()

    @property
    def is_drained(self) -> bool:
        """Whether nothing waits but progress."""
        return not self._waiting

    async def next(self) -> RackEvent:
        """The next event; waits for one."""
        while not self._waiting and not self._moved:
            self._there.clear()
            await self._there.wait()
        if self._waiting:
            return self._waiting.popleft()
        return self._moved.pop(next(iter(self._moved)))
