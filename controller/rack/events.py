"""Events that the rack publishes to its listeners, and the bounded queue to each of them.

A listener that is too slow loses progress first, then gets `Missed` and should read the whole state: the rack never
waits for a listener.
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
    """State of the controller."""

    READY = "ready"
    DRAINING = "draining"
    """No job starts any more; running ones may finish."""
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class JobChanged:
    """A job was submitted or changed its state."""

    job: Job
    summary: str = ""
    """summary.json, with the change to an ended state if results were stored; "" otherwise."""


@dataclass(frozen=True, slots=True)
class JobForgotten:
    """A job's record or its artifacts were removed."""

    job_id: str


@dataclass(frozen=True, slots=True)
class JobMoved:
    """Progress of a job's run."""

    job_id: str
    progress: RunProgress


@dataclass(frozen=True, slots=True)
class AgentChanged:
    """An agent joined, left, was leased or became free."""

    presence: AgentPresence


@dataclass(frozen=True, slots=True)
class AgentForgotten:
    """The rig does not name an agent any more."""

    name: str


@dataclass(frozen=True, slots=True)
class RackChanged:
    """The controller's own state changed."""

    state: RackState


@dataclass(frozen=True, slots=True)
class Missed:
    """Events were lost here: read all jobs again."""


RackEvent = JobChanged | JobForgotten | JobMoved | AgentChanged | AgentForgotten | RackChanged | Missed


class Subscription:
    """The events for one listener: at most `_MOST_WAITING`, and only the latest progress of each job."""

    def __init__(self) -> None:
        self._waiting: deque[RackEvent] = deque()
        self._moved: dict[str, JobMoved] = {}
        self._there = asyncio.Event()

    def put(self, event: RackEvent) -> None:
        """Add an event; never waits."""
        if isinstance(event, JobMoved):
            self._moved[event.job_id] = event
        else:
            if isinstance(event, JobChanged | JobForgotten):
                job_id = event.job.job_id if isinstance(event, JobChanged) else event.job_id
                self._moved.pop(job_id, None)  # Progress from before the change is outdated after it.
            if len(self._waiting) >= _MOST_WAITING:
                self._waiting.clear()
                self._waiting.append(Missed())
            self._waiting.append(event)
        self._there.set()

    @property
    def is_drained(self) -> bool:
        """Return whether at most progress is waiting."""
        return not self._waiting

    async def next(self) -> RackEvent:
        """Wait for the next event and return it."""
        while not self._waiting and not self._moved:
            self._there.clear()
            await self._there.wait()
        if self._waiting:
            return self._waiting.popleft()
        return self._moved.pop(next(iter(self._moved)))
