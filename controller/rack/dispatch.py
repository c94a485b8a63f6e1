"""Decides which queued jobs start now and on which ports. Pure: queue, ports and leases in, starts out.

Jobs start by priority, then by the order of submission. A job that cannot have its ports yet holds its place: no later
job may take a port that it waits for, so a job that wants many ports is not starved by small ones; jobs on other ports
overtake it. A job that waits for an agent which has been gone for a while holds nothing: the agent may never come back.
For a job that names no ports, this module also decides which ones it waits for: the ports that will be free first
cannot be known, so it claims those that it would take now, busy ones included, in the rack's order. A job that waits
because of its user's own bounds, or for reserved ports, claims nothing either.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import field
from typing import TYPE_CHECKING

from etloop.contract.base.late_dataclass import dataclass

if TYPE_CHECKING:
    from etloop.controller.rack.job import Job, PortDemand


@dataclass(frozen=True, slots=True)
class RackPort:
    """A port in the rack's rig file."""

    label: str
    """"agent/port"."""
    agent: str
    link_bps: int
    backend: str = ""
    """Backend that carries its packets, as in the rig."""
    addresses: tuple[str, ...] = ()
    """Addresses that the agent's host must have."""


def _nothing_reserved(job: Job) -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, slots=True)
class Restrictions:
    """Reasons that keep jobs from ports in addition to other jobs."""

    out_of_service: Mapping[str, str] = field(default_factory=dict)
    """Port -> why no job gets it."""
    reserved: Callable[[Job], Mapping[str, str]] = _nothing_reserved
    """Returns the ports that a job cannot have now because they are reserved for another user, each with the reason."""
    left: Mapping[str, int] = field(default_factory=dict)
    """User -> how many further jobs of that user may start; unbounded if not in it."""


@dataclass(frozen=True, slots=True)
class Start:
    """A job to begin, and its ports."""

    job: Job
    ports: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Held:
    """A queued job, and why it has not started, for people."""

    job: Job
    waits_for: str


@dataclass(frozen=True, slots=True)
class Decision:
    """Result of one pass over the queue."""

    starts: tuple[Start, ...]
    held: tuple[Held, ...]


def queue_order(jobs: Sequence[Job]) -> tuple[Job, ...]:
    """Return queued jobs in starting order: the next to start comes first."""
    return tuple(sorted(jobs, key=lambda job: (-job.request.priority, job.number)))


def decide(
    queued: Sequence[Job],
    ports: Sequence[RackPort],
    leases: Mapping[str, str],
    present: AbstractSet[str],
    most_running: int,
    gone: AbstractSet[str] = frozenset(),
    restrictions: Restrictions = Restrictions(),
) -> Decision:
    """Decide which queued jobs start now and on which ports.

    `leases` maps a leased port to its job, `present` are the agents with an idle slot, `gone` those that no job should
    wait for. `most_running` bounds the jobs that run at once, those that hold `leases` included.
    """
    lease_of = dict(leases)
    agent_of = {port.label: port.agent for port in ports}
    running = len(set(leases.values()))
    jobs_left = dict(restrictions.left)
    claimed: dict[str, str] = {}
    starts: list[Start] = []
    held: list[Held] = []
    for job in queue_order(queued):
        owner = job.request.owner
        if jobs_left.get(owner, 1) <= 0:
            held.append(Held(job, f"{owner} has reached the limit of running jobs"))
            continue
        closed = {**restrictions.reserved(job), **restrictions.out_of_service}
        wanted_ports = _choose_ports(job.request.ports, ports, (lease_of, claimed, closed), present)
        if unmet := _unmet(job.request.ports, wanted_ports, agent_of):
            held.append(Held(job, unmet))  # It claims no port: there may never be enough.
            continue
        obstacle = _closed_reason(wanted_ports, closed)
        obstacle = obstacle or _obstacle(wanted_ports, agent_of, lease_of, claimed, present)
        if not obstacle and running >= most_running:
            obstacle = f"{running} jobs are running, at most {most_running} may"
        if obstacle:
            if not any(agent_of[label] in gone or label in closed for label in wanted_ports):
                claimed.update((label, job.job_id) for label in wanted_ports if label not in claimed)
            held.append(Held(job, obstacle))
            continue
        lease_of.update((label, job.job_id) for label in wanted_ports)
        running += 1
        if owner in jobs_left:
            jobs_left[owner] -= 1
        starts.append(Start(job, wanted_ports))
    return Decision(tuple(starts), tuple(held))


def misfit(demand: PortDemand, ports: Sequence[RackPort]) -> str:
    """Return why this rack can never meet a demand; "" if it can."""
    labels = {port.label for port in ports}
    unknown = [label for label in demand.named if label not in labels]
    if unknown:
        return f'the rack has no port "{unknown[0]}"; it has {", ".join(sorted(labels)[:16])}'
    if demand.named:
        return ""
    fast = [port for port in ports if port.link_bps >= demand.least_link_bps]
    if len(fast) < max(demand.count, 1):
        return f"needs {max(demand.count, 1)} ports of that speed; the rack has {len(fast)}"
    return ""


def _choose_ports(
    demand: PortDemand,
    ports: Sequence[RackPort],
    unfree: tuple[Mapping[str, str], Mapping[str, str], Mapping[str, str]],
    present: AbstractSet[str],
) -> tuple[str, ...]:
    """Return the ports for a demand, the free ones first.

    `unfree`: the ports that are leased, claimed by jobs that come first, and closed to this job.
    """
    lease_of, claimed, closed = unfree
    if demand.named:
        return demand.named
    fast = [port for port in ports if port.link_bps >= demand.least_link_bps]
    count = demand.count or len(fast)

    def obstacles(port: RackPort) -> tuple[bool, bool, bool, bool]:
        label = port.label
        return (label in closed, label in claimed, port.agent not in present, label in lease_of)

    chosen = {port.label for port in sorted(fast, key=obstacles)[:count]}
    return tuple(port.label for port in fast if port.label in chosen)


def _unmet(demand: PortDemand, wanted: Sequence[str], agent_of: Mapping[str, str]) -> str:
    """Return why the rack has no ports for a demand, as its rig may have changed since submission; "" if it has."""
    unknown = next((label for label in wanted if label not in agent_of), "")
    if unknown:
        return f"the rig no longer has port {unknown}"
    if len(wanted) < max(demand.count, 1):
        return f"needs {max(demand.count, 1)} ports of that speed; the rig has {len(wanted)}"
    return ""


def _closed_reason(wanted: Sequence[str], closed: Mapping[str, str]) -> str:
    return next((f"port {label} is {closed[label]}" for label in wanted if label in closed), "")


def _obstacle(
    wanted: Sequence[str],
    agent_of: Mapping[str, str],
    leased: Mapping[str, str],
    claimed: Mapping[str, str],
    present: AbstractSet[str],
) -> str:
    for label in wanted:
        if label in leased:
            return f"port {label} is leased to job {leased[label]}"
        if label in claimed:
            return f"port {label} is kept for job {claimed[label]}, which is ahead in the queue"
        if agent_of[label] not in present:
            return f"agent '{agent_of[label]}' has not joined"
    return ""
