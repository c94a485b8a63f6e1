"""`etloop racks`: the state of several racks, their jobs and ports, and the web page of all. A shell: the terminal.

Racks that answer are printed even if others do not; the exit code is 65 if one did not.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from etloop.cli.result import CommandResult, to_json
from etloop.contract.base.clock import NS_PER_S
from etloop.contract.base.errors import ConfigError, ExitCode, Problem
from etloop.contract.base.printable import printable
from etloop.contract.base.units import format_rate, parse_at
from etloop.contract.protocol.codec import plain
from etloop.contract.protocol.endpoint import is_loopback
from etloop.controller.rack.job import ENDED, JobState
from etloop.controller.rack.mqtt.messages import MOST_LISTED, JobStatus
from etloop.controller.racks.filters import JobFilter, owner_of, parse_labels
from etloop.controller.racks.racks_file import RackPlace, chosen_racks, racks_path, read_racks
from etloop.controller.racks.survey import RackAnswer, RackView, ask_racks, view_with
from etloop.runtime.broker_settings import parse_broker_address

if TYPE_CHECKING:
    import argparse

_BIND: Final = "127.0.0.1:9430"
_LONGEST_DEADLINE_NS: Final = 600 * NS_PER_S


def named_places(parsed: argparse.Namespace, names: Sequence[str]) -> tuple[RackPlace, ...]:
    """Return the racks that a command line names. Raise `ConfigError`."""
    path = racks_path(parsed.racks, os.environ)
    return chosen_racks(read_racks(path), names, parse_labels("--rack-label", parsed.rack_label), str(path))


def job_filter(parsed: argparse.Namespace) -> JobFilter:
    """Return the filter of the jobs that a command line selects. Raise `ConfigError`."""
    states = frozenset(map(JobState, parsed.state))
    return JobFilter(states, parsed.owner, parse_labels("--label", parsed.label))


def racks_command(parsed: argparse.Namespace) -> CommandResult:
    """Carry the command out. Raise `ConfigError` for bad arguments or a bad file."""
    if not 1 <= parsed.limit <= MOST_LISTED:
        problem = f"{parsed.limit} jobs cannot be listed"
        raise ConfigError(Problem("--limit", problem, f"give a number from 1 to {MOST_LISTED}"))
    if not 0 < parsed.deadline <= _LONGEST_DEADLINE_NS:
        raise ConfigError(Problem("--deadline", "is out of range", "give a time from 1ms to 600s"))
    if parsed.order != "serve" and (parsed.bind or parsed.insecure):
        option = "--bind" if parsed.bind else "--insecure"
        raise ConfigError(Problem(option, "is of the order serve", "leave it out"))
    if parsed.order in ("status", "ports", "serve") and (parsed.state or parsed.owner or parsed.label):
        problem = "--state, --owner and --label are of jobs"
        raise ConfigError(
            Problem(
                f"etloop racks {parsed.order}",
                problem,
                "leave them out, or ask for jobs; a page takes them in its query",
            )
        )
    places, wanted_jobs = named_places(parsed, parsed.rack), job_filter(parsed)
    if parsed.order == "serve":
        return _serve(parsed, places)
    question, deadline_s = view_with(parsed.limit), parsed.deadline / NS_PER_S
    answers = asyncio.run(ask_racks(places, question, deadline_s, deadline_s))
    show, rows = _FORMS[parsed.order]
    lines = [line for answer in answers for line in _lines(answer, wanted_jobs, show)]
    if parsed.json:
        text = to_json({"racks": [_row(answer, wanted_jobs, rows) for answer in answers]})
    else:
        text = "".join(printable(line).rstrip() + "\n" for line in lines)
    unanswered = any(answer.value is None for answer in answers)
    return CommandResult(text, ExitCode.PREPARATION_FAILED if unanswered else ExitCode.PASS)


def _serve(parsed: argparse.Namespace, places: Sequence[RackPlace]) -> CommandResult:
    # Imported here, because only a server needs aiohttp.
    from etloop.controller.racks.server import RacksServer

    if parsed.json:
        raise ConfigError(Problem("--json", "is not of the order serve", "leave it out"))
    bind = parsed.bind or _BIND
    host, port = parse_at("--bind", parse_broker_address, bind)
    if port is None:
        raise ConfigError(Problem("--bind", f'"{printable(bind)}" has no port', "write HOST:PORT"))
    endpoint = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if not is_loopback(f"tcp://{endpoint}") and not parsed.insecure:
        problem = f"{host} is reachable from other machines, and the page asks nobody who he is"
        remedy = (
            "bind a loopback address behind a proxy of yours, or give --insecure if everybody may read it"
        )
        raise ConfigError(Problem("--bind", problem, remedy))
    server = RacksServer(places, parsed.limit, parsed.deadline / NS_PER_S)

    def print_listening() -> None:
        sys.stderr.write(f"serving {len(places)} racks at http://{endpoint}/\n")
        sys.stderr.flush()

    asyncio.run(server.serve(host, port, print_listening))
    return CommandResult("")


def _lines(
    answer: RackAnswer[RackView], wanted: JobFilter, show: Callable[[str, RackView, JobFilter], list[str]]
) -> list[str]:
    if answer.value is None:
        return [f"{answer.place.name}  no answer: {answer.trouble}"]
    return show(answer.place.name, answer.value, wanted)


def _row(
    answer: RackAnswer[RackView], wanted: JobFilter, rows: Callable[[RackView, JobFilter], dict[str, Any]]
) -> dict[str, Any]:
    place = answer.place
    row: dict[str, Any] = {"rack": place.name, "labels": dict(place.labels), "trouble": answer.trouble}
    return row if answer.value is None else row | rows(answer.value, wanted)


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


def _job_lines(name: str, view: RackView, wanted: JobFilter) -> list[str]:
    return [_job_text(name, job) for job in view.jobs if wanted.takes(job)]


def _job_text(name: str, job: JobStatus) -> str:
    code = "" if job.exit_code is None else str(job.exit_code)
    reason = job.reason.partition("\n")[0]
    owner = owner_of(job) or "-"
    return f"{name}  {job.job_id}  {job.state:<11} {code:>3}  {owner}  {job.submitted_at}  {reason}"


def _jobs_row(view: RackView, wanted: JobFilter) -> dict[str, Any]:
    return {"jobs": [plain(job) for job in view.jobs if wanted.takes(job)]}


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
