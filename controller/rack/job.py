"""A job of the rack: its request, its state, and the one table of state transitions.

`controller.inputs.scenario` decides whether a request is a valid scenario, `dispatch` when a job starts;
`store.job_store` keeps it.
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
"""Most ports that one job may name or count."""
MOST_LABELS: Final = 32
MOST_RETRIES: Final = 10
MOST_REASON_CHARACTERS: Final = 1 << 14
_LEFT_OUT: Final = " ... (more is left out)"


class JobState(StrEnum):
    """State of a job. The values are those of the rack API."""

    QUEUED = "queued"
    STARTING = "starting"
    """The job has its ports; the trace is read, the job planned, its agents gathered."""
    RUNNING = "running"
    STORING = "storing"
    """Traffic has ended; results are being written."""
    FINISHED = "finished"
    """The job has a result, given by its exit code."""
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    """The controller ended while it ran; its records up to then are kept."""


class JobEvent(Enum):
    """Events that change a job's state."""

    LEASED = auto()
    GATHERED = auto()
    """The job's agents have their assignments; traffic begins."""
    TRAFFIC_ENDED = auto()
    STORED = auto()
    UNPREPARED = auto()
    """Scenario, trace, plan or agents could not be used; no traffic was sent."""
    PUT_BACK = auto()
    """The rack could not begin it, for lack of disk or descriptors: not the job's fault."""
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
"""A cancelled run stores its records like any other, so RUNNING reaches CANCELLED through STORING."""

ENDED: Final = frozenset(state for state, exits in JOB_TRANSITIONS.items() if not exits)
ON_PORTS: Final = frozenset({JobState.STARTING, JobState.RUNNING, JobState.STORING})
"""States in which a job holds its ports."""


def advance_job(state: JobState, event: JobEvent) -> JobState:
    """Return the state after `event`. Raises `IllegalTransition` if the table has no entry for it."""
    return advance("job", JOB_TRANSITIONS, state, event)


@dataclass(frozen=True, slots=True)
class PortDemand:
    """Ports that a job asks for: these by name, or any `count` with links of at least `least_link_bps`."""

    named: tuple[str, ...] = ()
    """"agent/port"; empty: any."""
    count: int = 0
    """Number of ports if none is named; 0: every port of the rack."""
    least_link_bps: int = 0


@dataclass(frozen=True, slots=True)
class JobRequest:
    """A client's request, checked for form only."""

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
    """Counted from the start; 0: the rack's own limit."""
    strict: bool = False
    """Whether a contradiction to the device's profile is an error."""
    retries: int = 0
    """How often it is queued again after the rack itself broke it."""
    requeue_of: str = ""
    """The job that this one runs again; "" if a client submitted it."""
    owner: str = ""
    """The user who owns the job; "" if the request came without a user."""
    scenario_name: str = ""
    """Name of the scenario's file, for lists of jobs; "" if the client gave none."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job as stored. Times are wall time in UTC, ISO 8601; "" if that has not happened yet."""

    job_id: str
    number: int
    """Counts submissions; orders jobs of equal priority."""
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
    """Name below the artifact directory; "" if no files were kept."""
    artifact_bytes: int = 0


def bounded_reason(reason: str) -> str:
    """Return the reason of a job's end, cut to `MOST_REASON_CHARACTERS`.

    It may quote a scenario, and is stored and published.
    """
    if len(reason) <= MOST_REASON_CHARACTERS:
        return reason
    return reason[: MOST_REASON_CHARACTERS - len(_LEFT_OUT)] + _LEFT_OUT
