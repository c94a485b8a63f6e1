"""Status, jobs and ports of several racks -> lines of text and rows for programs. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from etloop.cli.text.job import job_cells
from etloop.contract.base.units import format_rate
from etloop.contract.protocol.codec import plain
from etloop.controller.rack.job import ENDED, JobState
from etloop.controller.rack.mqtt.messages import JobStatus
from etloop.controller.racks.filters import JobFilter, owner_of, parse_labels
from etloop.controller.racks.survey import RackAnswer, RackView

if TYPE_CHECKING:
    import argparse


def parse_job_filter(parsed: argparse.Namespace) -> JobFilter:
    """Return the filter of the jobs that a command line selects. Raise `ConfigError`."""
    states = frozenset(map(JobState, parsed.state))
    return JobFilter(states, parsed.owner, parse_labels("--label", parsed.label))


def rack_lines(order: str, answer: RackAnswer[RackView], job_filter: JobFilter) -> list[str]:
    """Return the lines about a rack for an order of `etloop racks`, or why it did not answer."""
    if answer.value is None:
        return [f"{answer.place.name}  no answer: {answer.trouble}"]
    render, _ = _FORMS[order]
    return render(answer.place.name, answer.value, job_filter)


def rack_row(order: str, answer: RackAnswer[RackView], job_filter: JobFilter) -> dict[str, Any]:
    """Return the values about a rack for an order of `etloop racks`, or why it did not answer."""
    place = answer.place
    row: dict[str, Any] = {"rack": place.name, "labels": dict(place.labels or {}), "trouble": answer.trouble}
    _, values = _FORMS[order]
    return row if answer.value is None else row | values(answer.value, job_filter)


def _status_lines(name: str, view: RackView, _: JobFilter) -> list[str]:
    ports, jobs = view.inventory.ports, view.jobs
    leased = sum(bool(port.job_id) for port in ports)
    out_of_service = sum(bool(port.out_of_service) for port in ports)
    absent_agents = [agent.name for agent in view.inventory.agents if not agent.present]
    waiting = sum(job.state is JobState.QUEUED for job in jobs)
    running = sum(job.state is not JobState.QUEUED and job.state not in ENDED for job in jobs)
    line = f"{name}  {view.controller.state}, {len(ports)} ports ({leased} leased, {out_of_service} out of service)"
    line += f", {running} jobs run, {waiting} wait"
    line += f", absent: {', '.join(absent_agents)}" if absent_agents else ""
    line += f", paused {view.controller.paused}" if view.controller.paused else ""
    return [line]


def _status_row(view: RackView, _: JobFilter) -> dict[str, Any]:
    return {"controller": plain(view.controller), "inventory": plain(view.inventory)}


def _job_lines(name: str, view: RackView, job_filter: JobFilter) -> list[str]:
    return [_job_text(name, job) for job in view.jobs if job_filter.takes(job)]


def _job_text(name: str, job: JobStatus) -> str:
    job_id, state, code, *texts, reason = job_cells(job)
    owner = owner_of(job) or "-"
    return "  ".join((name, job_id, f"{state:<11} {code:>3}", owner, *texts, reason))


def _jobs_row(view: RackView, job_filter: JobFilter) -> dict[str, Any]:
    return {"jobs": [plain(job) for job in view.jobs if job_filter.takes(job)]}


def _port_lines(name: str, view: RackView, _: JobFilter) -> list[str]:
    return [
        f"{name}  {port.label}  {format_rate(port.link_bps)}  {port.out_of_service or 'in service'}"
        + (f", leased to job {port.job_id}" if port.job_id else "")
        for port in view.inventory.ports
    ]


def _ports_row(view: RackView, _: JobFilter) -> dict[str, Any]:
    return {"ports": [plain(port) for port in view.inventory.ports]}


_FORMS: Final[
    dict[
        str,
        tuple[
            Callable[[str, RackView, JobFilter], list[str]], Callable[[RackView, JobFilter], dict[str, Any]]
        ],
    ]
] = {
    "status": (_status_lines, _status_row),
    "jobs": (_job_lines, _jobs_row),
    "ports": (_port_lines, _ports_row),
}
"""Order -> its lines for display, and its row for programs."""
