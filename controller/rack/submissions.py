"""What is wrong with a job that a client submits, and what he is answered. Pure.

What is wrong with its scenario is found by `api.Rack.validate`, and what only reading its trace can show, later.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from etloop.contract.base.errors import Problem
from etloop.contract.base.late_dataclass import dataclass
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
"""What the client key of a job that is run again begins with; the other's id follows."""


@dataclass(frozen=True, slots=True)
class RackLimits:
    """What a rack takes on."""

    queued_jobs: int
    running_jobs: int
    scenario_bytes: int
    job_time_ns: int
    """Longest that a run may take from its start on; a job may ask for less."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """The job is queued and on disk."""

    job: Job


@dataclass(frozen=True, slots=True)
class Known:
    """The client key was used before: this is the job it stands for."""

    job: Job


@dataclass(frozen=True, slots=True)
class Rejected:
    """Nothing was queued; all that is wrong."""

    problems: tuple[Problem, ...]


def request_problems(
    request: JobRequest, limits: RackLimits, ports: Sequence[RackPort]
) -> tuple[Problem, ...]:
    """Return what no rack with these limits and ports takes, whatever it does now."""
    found: list[Problem] = []
    if not LOWEST_PRIORITY <= request.priority <= HIGHEST_PRIORITY:
        what = f"{request.priority} is outside {LOWEST_PRIORITY} to {HIGHEST_PRIORITY}"
        found.append(Problem("priority", what, "give a number in that range"))
    found += claim_problems("submitter", request.submitter)
    if len(request.labels) > MOST_LABELS:
        found.append(Problem("labels", f"{len(request.labels)} labels", f"give at most {MOST_LABELS}"))
    if not 0 <= request.retries <= MOST_RETRIES:
        found.append(Problem("retries", f"{request.retries}", f"give a number from 0 to {MOST_RETRIES}"))
    if not 0 <= request.time_limit_ns <= limits.job_time_ns:
        what = f"{request.time_limit_ns} ns is more than this rack allows"
        found.append(Problem("time_limit", what, f"ask for at most {limits.job_time_ns} ns"))
    if len(request.ports.named) > MOST_PORTS or len(set(request.ports.named)) < len(request.ports.named):
        found.append(
            Problem("ports", "a port is named twice, or too many are", f"name at most {MOST_PORTS}, once")
        )
    elif request.ports.named and (request.ports.count or request.ports.least_link_bps):
        what = "ports are named, and wished for by number or speed as well"
        found.append(Problem("ports", what, "name them, or give port_count and least_link_bps"))
    elif unmet := misfit(request.ports, ports):
        found.append(Problem("ports", unmet, "ask for ports that this rack has"))
    return tuple(found)


def key_problems(client_key: str) -> tuple[Problem, ...]:
    """Return what keeps a client from using a key."""
    if not client_key.startswith(REQUEUE_KEY):
        return ()
    what = f'"{client_key[:64]}" begins like the keys of jobs that are run again'
    return (Problem("client_key", what, "choose another"),)


def again(earlier: Job, request: JobRequest) -> Known | Rejected:
    """The job that a client key stands for; a refusal if it is asked for something else now, whose verdict that job has not."""
    if earlier.request.owner != request.owner:
        what = "stands for a job of somebody else"
        return Rejected((Problem("client_key", what, "choose a key of your own"),))
    asked = (("scenario", "scenario_text"), ("ports", "ports"))
    others = [name for name, field in asked if getattr(earlier.request, field) != getattr(request, field)]
    if not others:
        return Known(earlier)
    what = f"stands for job {earlier.job_id}, which was submitted with other {' and '.join(others)}"
    return Rejected((Problem("client_key", what, "choose a new key for another job"),))
