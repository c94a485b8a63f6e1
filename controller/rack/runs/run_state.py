"""A run of a rack as its daemon sees it: the states it goes through, and one transition table. Pure; time as an argument.

What the daemon does in each state is `daemon`'s; how far the job itself is (GATHER to DONE) is its session's, in the run's
own process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from etloop.contract.base.clock import NS_PER_S, seconds_text
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
    CLOSING = auto()
    """A process makes its results from what it left, for its own could not."""
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
    CLOSE = auto()
    """What it left is to be made into results."""
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
    RackRunState.CLOSING: {RackRunEvent.EXIT: RackRunState.UNSTORED},
    RackRunState.UNSTORED: {
        RackRunEvent.CLOSE: RackRunState.CLOSING,
        RackRunEvent.STORE: RackRunState.STORED,
    },
    RackRunState.STORED: {},
}


NEVER_NS: Final = 1 << 63
STOP_NS: Final = 30 * NS_PER_S
"""How long a run that was told to stop may be silent while it collects and stores before its process is killed."""
CLOSE_AGAIN_NS: Final = 30 * NS_PER_S
"""Between two attempts at what the rack had no room for."""
MOST_CLOSINGS: Final = 3
"""Processes that may die over what one run left."""
_TOLD: Final = {
    RackRunState.STOPPING: "was told to stop",
    RackRunState.REPORTED: "said how it ended",
    RackRunState.CLOSING: "was to make results of what a run left",
}


@dataclass(slots=True)
class RackRun:
    """A job on its ports."""

    job_id: str
    threads: Mapping[str, range]
    """By machine: the numbers of its engine threads there (`thread_numbers`)."""
    began_ns: int
    time_limit_ns: int
    """For all that it does; beyond it it is stopped."""
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
    heard_ns: int = 0
    """When its process said something last."""
    is_at_limit: bool = False
    """Whether it was stopped because it had taken all of its time."""
    is_inherited: bool = False
    """Whether a controller before this one began it."""
    closings: int = 0
    """How often a process was to make its results from what it left."""
    close_again_ns: int = 0
    """Not before then is it tried once more."""
    store_again_ns: int = 0
    """Not before then is the store asked once more to take its end."""

    @classmethod
    def inherited(cls, job_id: str, child: RunChild, task: asyncio.Task[str], now_ns: int) -> RackRun:
        """Return the run of a controller before this one, as its results are being made of what it left."""
        run = cls(job_id, {}, now_ns, NEVER_NS, child, task, RackRunState.CLOSING, now_ns)
        run.is_inherited, run.closings = True, 1
        return run

    def advance(self, event: RackRunEvent, now_ns: int) -> None:
        """Move on. Raises `IllegalTransition` for what the state does not accept."""
        self.state = advance("run of the rack", RACK_RUN_TRANSITIONS, self.state, event)
        self.since_ns = now_ns

    def note_time(self, now_ns: int) -> str:
        """Return why a run is to be stopped that has taken all of its time, "" while it has not."""
        self.is_at_limit = now_ns - self.began_ns > self.time_limit_ns
        return f"stopped at its time limit of {seconds_text(self.time_limit_ns)}" if self.is_at_limit else ""

    def silence(self, now_ns: int) -> str:
        """Return why a process that winds up is beyond help, "" if it is not: however much it stores, it says so as it goes."""
        if now_ns - max(self.since_ns, self.heard_ns) <= STOP_NS:
            return ""
        return f"its process {_TOLD[self.state]} and has been silent for {seconds_text(STOP_NS)}"

    @property
    def may_be_closed(self) -> bool:
        """Whether results may yet come of what it left, as far as its processes have said."""
        return not self.outcome.stored and (not self.closings or self.outcome.again)

    def note_closing(self, now_ns: int) -> None:
        """A process makes its results of what it left."""
        self.closings += 1
        self.close_again_ns = now_ns + CLOSE_AGAIN_NS

    def note_closed(self, death: str) -> None:
        """That process is gone; `death`: of what, "" if it ended by itself."""
        if self.child.unstarted:
            self.closings -= 1  # Which says nothing about what it left.
        elif death:
            reason = f"{self.outcome.reason}; closing what it left: {death}"
            self.outcome = replace(self.outcome, reason=reason, again=self.closings < MOST_CLOSINGS)
