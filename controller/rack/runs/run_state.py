"""A run of a rack as its daemon sees it: the states it goes through, and one transition table. Pure; time as an argument.

What the daemon does in each state is `daemon`'s; how far the job itself is (GATHER to DONE) is its session's, in the run's
own process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from etloop.contract.base.errors import ExitCode
from etloop.contract.protocol.machine import advance
from etloop.controller.rack.runs.protocol import Ended

if TYPE_CHECKING:
    import asyncio

    from etloop.controller.rack.runs.supervisor import RunChild


class RackRunState(Enum):
    """Where a run stands."""

    LIVING = auto()
    """Its process is at work, and nobody wants it to end."""
    STOPPING = auto()
    """It was told to wind up, and is killed if that takes too long."""
    REPORTED = auto()
    """It has said how it ended, and is about to exit."""
    RETURNING = auto()
    """Its process died without a word to its agents: its ports stay leased until they are back."""
    UNSTORED = auto()
    """How it ended is known and yet to be taken by the job store."""
    STORED = auto()


class RackRunEvent(Enum):
    """What moves a run on."""

    STOP_ORDERED = auto()
    REPORT = auto()
    EXIT = auto()
    """Its process is gone."""
    RETURNED = auto()
    """All its agents have connected anew, or were waited for long enough."""
    STORE = auto()


RACK_RUN_TRANSITIONS: Final[Mapping[RackRunState, Mapping[RackRunEvent, RackRunState]]] = {
    RackRunState.LIVING: {
        RackRunEvent.STOP_ORDERED: RackRunState.STOPPING,
        RackRunEvent.REPORT: RackRunState.REPORTED,
        RackRunEvent.EXIT: RackRunState.RETURNING,
    },
    RackRunState.STOPPING: {
        RackRunEvent.REPORT: RackRunState.REPORTED,
        RackRunEvent.EXIT: RackRunState.RETURNING,
    },
    RackRunState.REPORTED: {RackRunEvent.EXIT: RackRunState.UNSTORED},
    RackRunState.RETURNING: {RackRunEvent.RETURNED: RackRunState.UNSTORED},
    RackRunState.UNSTORED: {RackRunEvent.STORE: RackRunState.STORED},
    RackRunState.STORED: {},
}


@dataclass(slots=True)
class RackRun:
    """A job on its ports."""

    job_id: str
    threads: Mapping[str, range]
    """By machine: the numbers of its engine threads there (`thread_numbers`)."""
    began_ns: int
    time_limit_ns: int
    child: RunChild
    task: asyncio.Task[str]
    """The life of its process."""
    state: RackRunState = RackRunState.LIVING
    since_ns: int = 0
    """When it came to its state; 0 in the first."""
    wanted: set[str] = field(default_factory=set)
    """Agents that it has yet to get a slot of: one may have leased its last a moment ago, and be opening another."""
    outcome: Ended = Ended(ExitCode.RUN_ERROR, "its process ended without a result", stored=False, summary="")
    """How it ended; means something from REPORTED and RETURNING on."""
    store_again_ns: int = 0
    """Not before then is the store asked once more to take its end."""

    def advance(self, event: RackRunEvent, now_ns: int) -> None:
        """Move on. Raises `IllegalTransition` for what the state does not accept."""
        self.state = advance("run of the rack", RACK_RUN_TRANSITIONS, self.state, event)
        self.since_ns = now_ns
