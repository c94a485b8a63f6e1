"""Decides whether the reason of a job that did not pass names a fault that was inflicted while it ran. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from tests.measure.breaking.faults import Fault

_AFTER_S: Final = 3.0
"""How long after the rack is ready again a job may still begin to suffer from a fault: silence is noticed after this."""
_AGENT: Final = r"agents? '(?P<agent>[ab])'"
_GONE: Final = r"its connection is closed|no heartbeat|(has not been|was not) heard|left: "
_LOST: Final = rf"{_AGENT}[^;]*?({_GONE})"
_ENGINE: Final = r"rank \d+|no acknowledgement|gave up|no progress"
_NOTHING: Final = r"(?!)"

REASONS: Final[dict[Fault, str]] = {
    Fault.CONTROLLER_KILLED: r"the controller (stopped|is shutting down)",
    Fault.CONTROLLER_STOPPED: _NOTHING,
    Fault.DOOR_KILLED: _NOTHING,
    Fault.RUN_KILLED: r"its process was killed by SIGKILL",
    Fault.RUN_STOPPED: _NOTHING,
    Fault.AGENT_KILLED: _LOST,
    Fault.AGENT_STOPPED: _LOST,
    Fault.BROKER_KILLED: _NOTHING,
    Fault.BROKER_STOPPED: _NOTHING,
    Fault.ALL_STOPPED: _NOTHING,
    Fault.CONTROL_CUT: _NOTHING,
    Fault.DATA_SILENT: _ENGINE,
    Fault.ADDRESS_LOST: rf"Network is unreachable|not on |{_ENGINE}",
    Fault.DISK_FULL: r"No space left on device|free space|disk",
    Fault.CLOCK_STEPPED: _NOTHING,
    Fault.DESCRIPTORS_GONE: r"Too many open files|descriptor",
    Fault.READS_FAIL: r"Input/output error|disk I/O error",
    Fault.WRITES_FAIL: r"Input/output error|disk I/O error",
    Fault.TRACE_DAMAGED: r"job/w\.",
    Fault.RIG_DAMAGED: _NOTHING,
}
"""Fault -> pattern of the reasons that it may give a job; (?!): it must not end one."""
DAMAGED_SCENARIO: Final = r"damaged/w\.0\.et"
"""What a reason contains that needs no fault: one of the scenarios names a damaged trace."""


@dataclass(frozen=True, slots=True)
class Inflicted:
    """One fault, when it began, when the rack was ready after it, and which agent it hit."""

    fault: Fault
    begin_s: float
    end_s: float
    agent: str = ""


@dataclass(frozen=True, slots=True)
class Unpassed:
    """A job that did not pass: its reason, and the times between which it was not queued."""

    job_id: str
    reason: str
    begin_s: float
    end_s: float
    has_damaged_trace: bool = False


def faults_during(job: Unpassed, inflicted: Iterable[Inflicted]) -> list[Inflicted]:
    """Return the faults that could affect a job."""
    return [
        event for event in inflicted if event.begin_s <= job.end_s and job.begin_s <= event.end_s + _AFTER_S
    ]


def is_caused(job: Unpassed, inflicted: Iterable[Inflicted]) -> bool:
    """Return whether a job gives as its reason a fault that was inflicted while it ran, and the agent that this hit."""
    if job.has_damaged_trace and re.search(DAMAGED_SCENARIO, job.reason):
        return True
    for event in faults_during(job, inflicted):
        for match in re.finditer(REASONS[event.fault], job.reason, re.DOTALL):
            named = match.groupdict().get("agent")
            if named is None or not event.agent or named == event.agent:
                return True
    return False


def wrong_causes(jobs: Sequence[Unpassed], inflicted: Sequence[Inflicted]) -> tuple[str, ...]:
    """Return the jobs with a wrong cause, in words."""
    return tuple(
        f"{job.job_id} gives a wrong cause: {job.reason.splitlines()[0] if job.reason else 'none'} (faults meanwhile: "
        + ", ".join(f"{event.fault.value} {event.agent}".strip() for event in faults_during(job, inflicted))
        + ")"
        for job in jobs
        if not is_caused(job, inflicted)
    )
