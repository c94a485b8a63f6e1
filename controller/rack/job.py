"""A job of the rack: what was asked for, where it stands, and the one table of what may follow what.

Whether a request makes sense as a scenario is decided by `controller.scenario`; when a job starts by `dispatch`; where
it is kept by `job_store`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, StrEnum, auto
from typing import Final

from etloop.contract.base.errors import ExitCode
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.protocol.machine import advance

LOWEST_PRIORITY: Final = -100
HIGHEST_PRIORITY: Final = 100
MOST_PORTS: Final = 4096
"""Ports that one job may name or count."""
MOST_LABELS: Final = 32
MOST_RETRIES: Final = 10
MOST_REASON_CHARACTERS: Final = 1 << 14
_LEFT_OUT: Final = " ... (more is left out)"


class JobState(StrEnum):
    """Where a job stands. The values are those of the rack API."""

    QUEUED = "queued"
    STARTING = "starting"
    """It has its ports; the trace is read, the job planned, its agents gathered."""
    RUNNING = "running"
    STORING = "storing"
    """Traffic has ended; results are being written."""
    FINISHED = "finished"
    """It left a result; the exit code says which."""
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    """The controller went away under it; what it had measured until then is kept."""


class JobEvent(Enum):
    """What moves a job on."""

    LEASED = auto()
    GATHERED = auto()
    """Its agents have their parts; traffic begins."""
    TRAFFIC_ENDED = auto()
    STORED = auto()
    UNPREPARED = auto()
    """Scenario, trace, plan or agents could not be used; no traffic was sent."""
    PUT_BACK = auto()
    """The rack itself could not begin it, for want of disk or descriptors: no fault of the job."""
    CANCELLED = auto()
    ABANDONED = auto()
    """Found unfinished by a controller that has just started."""


JOB_TRANSITIONS: Final[Mapping[JobState, Mapping[JobEvent, JobState]]] = {
    JobState.QUEUED: {
        JobEvent.LEASED: JobState.STARTING,
        JobEvent.UNPREPARED: JobState.FINISHED,
        JobEvent.CANCELLED: JobState.CANCELLED,
    },
    JobState.STARTING: {
        JobEvent.GATHERED: JobState.RUNNING,
        JobEvent.PUT_BACK: JobState.QUEUED,
        JobEvent.UNPREPARED: JobState.FINISHED,
        JobEvent.CANCELLED: JobState.CANCELLED,
        JobEvent.ABANDONED: JobState.INTERRUPTED,
    },
    JobState.RUNNING: {
        JobEvent.TRAFFIC_ENDED: JobState.STORING,
        JobEvent.ABANDONED: JobState.INTERRUPTED,
    },
    JobState.STORING: {
        JobEvent.STORED: JobState.FINISHED,
        JobEvent.CANCELLED: JobState.CANCELLED,
        JobEvent.ABANDONED: JobState.INTERRUPTED,
    },
    JobState.FINISHED: {},
    JobState.CANCELLED: {},
    JobState.INTERRUPTED: {},
}
"""A cancelled run winds up like any other, so RUNNING reaches CANCELLED through STORING, with what it measured."""

ENDED: Final = frozenset(state for state, exits in JOB_TRANSITIONS.items() if not exits)
ON_PORTS: Final = frozenset({JobState.STARTING, JobState.RUNNING, JobState.STORING})
"""States in which a job holds its ports."""


def advance_job(state: JobState, event: JobEvent) -> JobState:
    """The state after `event`. Raises `IllegalTransition` where the table has no entry."""
    return advance("job", JOB_TRANSITIONS, state, event)


@dataclass(frozen=True, slots=True)
class PortDemand:
    """Which ports a job wants: these by name, or any `count` of those whose link is at least `least_link_bps`."""

    named: tuple[str, ...] = ()
    """"agent/port"; empty: any."""
    count: int = 0
    """Ports wanted if none is named; 0: every port of the rack."""
    least_link_bps: int = 0


@dataclass(frozen=True, slots=True)
class JobRequest:
    """What a client asked for, checked for form only."""

    scenario_text: str
    """The YAML of a scenario; its paths are relative to the rack's scenario root."""
    ports: PortDemand
    priority: int = 0
    """From `LOWEST_PRIORITY` to `HIGHEST_PRIORITY`; higher starts first."""
    client_key: str = ""
    """Chosen by the client; a second request with the same key is answered with the first one's job."""
    submitter: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    time_limit_ns: int = 0
    """From the start on; 0: the rack's own limit."""
    strict: bool = False
    """Whether what the device's profile contradicts is an error."""
    retries: int = 0
    """How often it is queued again where the rack itself broke it."""
    requeue_of: str = ""
    """The job that this one runs again; "" of one that a client submitted."""
    owner: str = ""
    """The user whose job it is; "" where the request did not come as one."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job as the store keeps it. Times are wall time in UTC, ISO 8601; "" as long as it has not come to that."""

    job_id: str
    number: int
    """Counts submissions; orders jobs of one priority."""
    request: JobRequest
    state: JobState
    submitted_at: str
    started_at: str = ""
    ended_at: str = ""
    leased: tuple[str, ...] = ()
    """"agent/port" of every port it holds or held."""
    exit_code: ExitCode | None = None
    """Set once the job has ended."""
    reason: str = ""
    """Why it did not pass, for people."""
    run_directory: str = ""
    """Below the artifact directory; "" if nothing was kept."""
    artifact_bytes: int = 0


def bounded_reason(reason: str) -> str:
    """Return why a job ended, cut to what is kept of it: whatever a scenario quotes is published and stored with it."""
    if len(reason) <= MOST_REASON_CHARACTERS:
        return reason
    return reason[: MOST_REASON_CHARACTERS - len(_LEFT_OUT)] + _LEFT_OUT
