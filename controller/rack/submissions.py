"""Problems of a submitted job, and the answers to a submission. Pure.

`api.Rack.validate` checks its scenario; problems that only reading its trace reveals come later.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from etloop.contract.base.clock import NS_PER_S
from etloop.contract.base.errors import Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.setting import setting
from etloop.contract.base.units import format_duration, parse_bytes, parse_duration_ns
from etloop.contract.base.value_parsers import integer, with_bounds
from etloop.controller.rack.actor import claim_problems
from etloop.controller.rack.dispatch import RackPort, misfit
from etloop.controller.rack.job import (
    HIGHEST_PRIORITY,
    LOWEST_PRIORITY,
    MOST_LABELS,
    MOST_PORTS,
    MOST_RETRIES,
    Job,
    JobRequest,
)

REQUEUE_KEY: Final = "etloop:requeue:"
"""Prefix of the client key of a requeued job; the id of the original job follows."""


DAY_NS: Final = 86_400 * NS_PER_S
long_time: Final = with_bounds(parse_duration_ns, NS_PER_S, 3650 * DAY_NS, format_duration)
size: Final = with_bounds(parse_bytes, 1, 1 << 60, lambda count: f"{count}B")


@dataclass(frozen=True, slots=True)
class RackLimits:
    """Limits of a rack."""

    queued_jobs: int = setting("queued_jobs", integer(1, 100_000), 1000)
    """Most jobs in the queue."""
    running_jobs: int = setting("running_jobs", integer(1, 1024), 16)
    """Most jobs that run at once."""
    scenario_bytes: int = setting("scenario", size, 1 << 20)
    """Largest scenario that may be submitted."""
    job_time_ns: int = setting("job_time", long_time, DAY_NS)
    """Longest run time of a job, from its start on; a job may ask for less."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """The job is queued and on disk."""

    job: Job


@dataclass(frozen=True, slots=True)
class Known:
    """The client key was used before; this is its job."""

    job: Job


@dataclass(frozen=True, slots=True)
class Rejected:
    """The job was not queued, for all these problems."""

    problems: tuple[Problem, ...]


def request_problems(
    request: JobRequest, limits: RackLimits, ports: Sequence[RackPort]
) -> tuple[Problem, ...]:
    """Return why a rack with these limits and ports can never take a request."""
    problems: list[Problem] = []
    if not LOWEST_PRIORITY <= request.priority <= HIGHEST_PRIORITY:
        problem = f"{request.priority} is outside {LOWEST_PRIORITY} to {HIGHEST_PRIORITY}"
        problems.append(Problem("priority", problem, "give a number in that range"))
    problems += claim_problems("submitter", request.submitter)
    if len(request.labels) > MOST_LABELS:
        problems.append(Problem("labels", f"{len(request.labels)} labels", f"use at most {MOST_LABELS}"))
    if not 0 <= request.retries <= MOST_RETRIES:
        problems.append(Problem("retries", f"{request.retries}", f"give a number from 0 to {MOST_RETRIES}"))
    if not 0 <= request.time_limit_ns <= limits.job_time_ns:
        problem = f"{request.time_limit_ns} ns is more than this rack allows"
        problems.append(Problem("time_limit", problem, f"ask for at most {limits.job_time_ns} ns"))
    if len(request.ports.named) > MOST_PORTS or len(set(request.ports.named)) < len(request.ports.named):
        problems.append(
            Problem(
                "ports", f"ports are repeated, or more than {MOST_PORTS} are named", "name each port once"
            )
        )
    elif request.ports.named and (request.ports.count or request.ports.least_link_bps):
        problem = "named ports cannot be combined with port_count or least_link_bps"
        problems.append(Problem("ports", problem, "name ports, or give port_count and least_link_bps"))
    elif unmet := misfit(request.ports, ports):
        problems.append(Problem("ports", unmet, "ask for ports that this rack has"))
    return tuple(problems)


def key_problems(client_key: str) -> tuple[Problem, ...]:
    """Return why a client may not use a key."""
    if not client_key.startswith(REQUEUE_KEY):
        return ()
    problem = f'"{client_key[:64]}" has the prefix reserved for retried jobs'
    return (Problem("client_key", problem, "choose another"),)


def again(earlier: Job, request: JobRequest) -> Known | Rejected:
    """Return the earlier job of a client key; a rejection if the scenario, ports or user differ."""
    if earlier.request.owner != request.owner:
        problem = "is used by a job of another user"
        return Rejected((Problem("client_key", problem, "choose a key of your own"),))
    compared = (("scenario", "scenario_text"), ("ports", "ports"))
    differing = [
        name for name, field in compared if getattr(earlier.request, field) != getattr(request, field)
    ]
    if not differing:
        return Known(earlier)
    problem = f"is used by job {earlier.job_id}, which has other {' and '.join(differing)}"
    return Rejected((Problem("client_key", problem, "choose a new key for another job"),))
