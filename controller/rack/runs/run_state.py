"""States of a run as the daemon sees it, and one transition table. Pure; time as an argument.

`daemon` decides what to do in each state. The states of the job's session (GATHER to DONE) are known in the run's
process.
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
    """State of a run."""

    LIVING = auto()
    """The run's process runs, and was not ordered to stop."""
    STOPPING = auto()
    """The run was ordered to stop, and is killed if that takes too long."""
    REPORTED = auto()
    """The process has reported its end, and is about to exit."""
    RETURNING = auto()
    """The process died without dismissing its agents: the run's ports stay leased until they have reconnected."""
    CLOSING = auto()
    """Another process makes its results from its spool, as its own could not."""
    UNSTORED = auto()
    """The run's end is known and not yet recorded in the job store."""
    STORED = auto()


class RackRunEvent(Enum):
    """Events that change a run's state."""

    STOP_ORDERED = auto()
    REPORT = auto()
    EXIT = auto()
    """The run's process has ended."""
    RETURNED = auto()
    """All its agents have connected anew, or their time is over."""
    CLOSE = auto()
    """The run's results are to be made from its spool."""
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
"""Longest silence of a process that was ordered to stop and collects or stores, before it is killed."""
CLOSE_AGAIN_NS: Final = 30 * NS_PER_S
"""Time between two attempts at something for which the rack had no room."""
MOST_CLOSINGS: Final = 3
"""Most processes that may die while making the results of one run."""
_TOLD: Final = {
    RackRunState.STOPPING: "was stopped",
    RackRunState.REPORTED: "has reported its end",
    RackRunState.CLOSING: "was storing results from a spool",
}


@dataclass(slots=True)
class RackRun:
    """A run of a job on its ports."""

    job_id: str
    threads: Mapping[str, range]
    """Machine -> numbers of the run's engine threads there (`thread_numbers`)."""
    began_ns: int
    time_limit_ns: int
    """Counted from `began_ns`; beyond it the run is stopped."""
    child: RunChild
    task: asyncio.Task[str]
    """Task that waits for its process."""
    state: RackRunState = RackRunState.LIVING
    since_ns: int = 0
    """When it entered its state; 0 in the first one."""
    wanted: set[str] = field(default_factory=set)
    """Agents of which it still needs a slot: an agent whose last slot was just leased opens another."""
    outcome: Ended = Ended(ExitCode.RUN_ERROR, "its process ended without a result", stored=False, summary="")
    """How it ended; meaningful from REPORTED and RETURNING on."""
    heard_ns: int = 0
    """When the last frame of its process arrived."""
    is_at_limit: bool = False
    """Whether it was stopped because its time was used up."""
    is_inherited: bool = False
    """Whether an earlier controller began it."""
    closings: int = 0
    """Number of processes that were started to make its results from its spool."""
    close_again_ns: int = 0
    """Earliest time of the next closing."""
    store_again_ns: int = 0
    """Earliest time of the next attempt to record its end."""

    @classmethod
    def inherit(cls, job_id: str, child: RunChild, task: asyncio.Task[str], now_ns: int) -> RackRun:
        """Return the run of an earlier controller whose results are being made from its spool."""
        run = cls(job_id, {}, now_ns, NEVER_NS, child, task, RackRunState.CLOSING, now_ns)
        run.is_inherited, run.closings = True, 1
        return run

    def advance(self, event: RackRunEvent, now_ns: int) -> None:
        """Change the state by an event. Raises `IllegalTransition` if the state does not accept it."""
        self.state = advance("run of the rack", RACK_RUN_TRANSITIONS, self.state, event)
        self.since_ns = now_ns

    def excuse(self, missed_ns: int, now_ns: int) -> None:
        """Leave a time in which the controller did not run out of the silence of the run's process."""
        self.since_ns = min(now_ns, self.since_ns + missed_ns)
        self.heard_ns = min(now_ns, self.heard_ns + missed_ns)

    def note_time(self, now_ns: int) -> str:
        """Return why the run has to stop because its time is used up; "" if it is not."""
        self.is_at_limit = now_ns - self.began_ns > self.time_limit_ns
        return f"stopped at its time limit of {seconds_text(self.time_limit_ns)}" if self.is_at_limit else ""

    def silence(self, now_ns: int) -> str:
        """Return why a stopping process is to be killed, "" if it is not: a process that stores reports it continually."""
        if now_ns - max(self.since_ns, self.heard_ns) <= STOP_NS:
            return ""
        return f"its process {_TOLD[self.state]} and has been silent for {seconds_text(STOP_NS)}"

    @property
    def may_be_closed(self) -> bool:
        """Return whether results can still be made from its spool, as far as its processes have reported."""
        return not self.outcome.stored and (not self.closings or self.outcome.again)

    def note_closing(self, now_ns: int) -> None:
        """Note that a process that makes its results was started."""
        self.closings += 1
        self.close_again_ns = now_ns + CLOSE_AGAIN_NS

    def note_closed(self, death: str) -> None:
        """Note that this process ended; `death` is the cause, "" if it ended by itself."""
        if self.child.unstarted:
            self.closings -= 1  # It did not start, so the spool is not to blame.
        elif death:
            reason = f"{self.outcome.reason}; storing its results failed: {death}"
            self.outcome = replace(self.outcome, reason=reason, again=self.closings < MOST_CLOSINGS)
