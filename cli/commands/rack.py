"""The rack's commands of `etloop`: `controller` serves a rack until it is asked to end, `jobs` reads its job store, `rack`
sends orders to it. A shell: the terminal."""

from __future__ import annotations

import asyncio
import getpass
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from etloop.cli.commands.racks.job_orders import (
    FETCH,
    MAY_BE_GIVEN_TO,
    changed,
    none_selected,
    order_selected,
    selected_jobs,
    selection,
    selects,
    spans_racks,
)
from etloop.cli.commands.racks.named import rack_client, take_named_rack
from etloop.cli.result import CommandResult, to_json
from etloop.cli.text.job import audit_line, job_line
from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.printable import printable
from etloop.contract.base.units import format_rate
from etloop.contract.protocol.codec import plain
from etloop.controller.rack.client.client import RackClient
from etloop.controller.rack.client.web import RackWeb
from etloop.controller.rack.config import RackConfig, parse_rack_config
from etloop.controller.rack.job import ENDED, JobState
from etloop.controller.rack.log_settings import LogLevel
from etloop.controller.rack.mqtt.messages import (
    InventoryResponse,
    JobStatus,
    PortStatus,
)
from etloop.controller.rack.mqtt.reservation_messages import ReservationStatus
from etloop.controller.rack.mqtt.statuses import job_status
from etloop.controller.rack.mqtt.topics import is_job_id
from etloop.controller.rack.store.job_store import JobStore
from etloop.controller.rack.transfers.links import Links
from etloop.runtime.stop_signals import level_calls

if TYPE_CHECKING:
    import argparse

_MOST_LISTED: Final = 100_000
_KINDS: Final = {"unreserve": "reservations, by the ids that etloop rack status shows"}
_OF_NOTHING: Final = ("pause", "resume", "status")


def controller_command(parsed: argparse.Namespace) -> CommandResult:
    """Serve the rack. Raise `ConfigError` before it listens if the configuration cannot be used."""
    from etloop.controller.rack.log import RackLog
    from etloop.controller.rack.startup import serve

    config = _read_config(parsed.config, embedded_broker=parsed.embedded_broker)
    log = RackLog(config.log_format, level=LogLevel(parsed.log_level))
    with level_calls(log.write_all, log.write_as_started):
        return CommandResult("", serve(config, log))


def jobs_command(parsed: argparse.Namespace) -> CommandResult:
    """List jobs from the job store, whether its controller runs or not. Raise `ConfigError`."""
    if not 1 <= parsed.limit <= _MOST_LISTED:
        remedy = f"give a number from 1 to {_MOST_LISTED}"
        raise ConfigError(Problem("--limit", f"{parsed.limit} jobs cannot be listed", remedy))
    config = None if parsed.state_dir else _read_config(parsed.config)
    state_dir: Path = parsed.state_dir if config is None else config.state_dir
    links = Links(config.http.url) if config is not None and config.http is not None else Links()
    store = JobStore.look(state_dir / "jobs.sqlite")
    try:
        if parsed.audit:
            return _audit(store, parsed.audit, as_json=parsed.json)
        states = [JobState(state) for state in parsed.state] if parsed.state else tuple(JobState)
        jobs = [job_status(job, links) for job in store.latest(parsed.limit, states=states)]
    finally:
        store.close()
    if parsed.json:
        return CommandResult(to_json({"jobs": [plain(job) for job in jobs]}))
    return CommandResult("".join(map(job_line, jobs)) or "no jobs\n")


def _audit(store: JobStore, job_id: str, *, as_json: bool) -> CommandResult:
    if store.find(job_id) is None:
        raise ConfigError(Problem("--audit", f"there is no job {job_id}", "see etloop jobs without --audit"))
    lines = store.audit(job_id)
    if as_json:
        return CommandResult(to_json({"audit": [plain(line) for line in lines]}))
    return CommandResult("".join(map(audit_line, lines)))


def _read_config(path: Path, *, embedded_broker: bool = False) -> RackConfig:
    try:
        text = path.read_bytes()
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
        raise ConfigError(Problem(str(path), problem, "check the name and the permissions")) from None
    return parse_rack_config(text, str(path), path.parent, embedded_broker=embedded_broker)


def rack_command(parsed: argparse.Namespace) -> CommandResult:
    """Carry the command out. Raise `RequestRefused`, `RackUnreachable`, or `ConfigError` for bad arguments."""
    command_text = f"etloop rack {parsed.order}"
    if parsed.order in _OF_NOTHING and parsed.names:
        raise ConfigError(Problem(command_text, "is about no port or job", "leave the names out"))
    _refuse_selection(parsed)
    if parsed.order not in _OF_NOTHING and not parsed.names and not selects(parsed):
        kind = "jobs" if parsed.order in MAY_BE_GIVEN_TO else _KINDS.get(parsed.order, "ports or agents")
        raise ConfigError(Problem(command_text, "nothing is named", f"name {kind}"))
    if parsed.order != FETCH and (parsed.out or parsed.token_file):
        option = "--out" if parsed.out else "--token-file"
        raise ConfigError(Problem(option, "is of the order fetch", "leave it out"))
    if parsed.order != "reserve" and (parsed.user or parsed.begins_at or parsed.ends_at):
        raise ConfigError(
            Problem(command_text, "has no window of time", "leave --for, --from and --until out")
        )
    if parsed.order == "reserve" and not parsed.ends_at:
        raise ConfigError(Problem("--until", "is missing", "say when the reservation ends"))
    if parsed.to and parsed.order != "priority":
        raise ConfigError(Problem("--to", "is of the order priority", "leave it out"))
    for job_id in parsed.names if parsed.order in MAY_BE_GIVEN_TO else ():
        if not is_job_id(job_id):
            problem = f'"{printable(job_id[:64])}" is no id of a job'
            raise ConfigError(Problem(command_text, problem, "see etloop submit --list"))
    if not spans_racks(parsed):
        take_named_rack(parsed)
    return asyncio.run(_carry_out_order(parsed))


def _refuse_selection(parsed: argparse.Namespace) -> None:
    """Raise `ConfigError` for a selection of jobs that the order does not support, or that spans racks by mistake."""
    option = "--label" if parsed.label else "--owner" if parsed.owner else "--state"
    if selects(parsed) and (parsed.names or parsed.order not in MAY_BE_GIVEN_TO):
        raise ConfigError(Problem(option, "stands for names of jobs", "give one or the other"))
    if selects(parsed):
        selection(parsed)
    if parsed.dry_run and (not selects(parsed) or parsed.order == FETCH):
        problem = "is of orders to the jobs that --label, --owner or --state select"
        raise ConfigError(Problem("--dry-run", problem, "leave it out"))
    if spans_racks(parsed) and (not selects(parsed) or parsed.order == FETCH):
        problem = "means all racks of the file, and this order is for one"
        raise ConfigError(
            Problem("--racks", problem, "add --rack NAME, or select jobs by --label, --owner or --state")
        )
    if parsed.rack_label and not spans_racks(parsed):
        problem = "chooses among racks, and one is named"
        raise ConfigError(Problem("--rack-label", problem, "leave it out, or give --racks without --rack"))


async def _carry_out_order(parsed: argparse.Namespace) -> CommandResult:
    order_fields: Any = {
        "reason": parsed.reason,
        "submitter": f"{getpass.getuser()}@{socket.gethostname()}"[:256],
    }
    if selects(parsed) and parsed.order != FETCH:
        return await order_selected(parsed, order_fields)
    async with rack_client(parsed) as rack:
        match parsed.order:
            case "status":
                return await _status(rack, as_json=parsed.json)
            case "pause" | "resume":
                paused = await rack.pause(paused=parsed.order == "pause", **order_fields)
                return CommandResult(to_json({"paused": paused}) if parsed.json else _queue_line(paused))
            case "drain" | "undrain":
                ports = await rack.service(parsed.names, in_service=parsed.order == "undrain", **order_fields)
                rows = {"ports": [plain(port) for port in ports]}
                return CommandResult(to_json(rows) if parsed.json else "".join(map(_port_line, ports)))
            case "reserve":
                window: Any = {"begins_at": parsed.begins_at, "user": parsed.user}
                reservations = (await rack.reserve(parsed.names, parsed.ends_at, **window, **order_fields),)
                return _reserved(reservations, as_json=parsed.json)
            case "unreserve":
                cancelled = [
                    await _unreserved(rack, reservation_id, order_fields) for reservation_id in parsed.names
                ]
                return _reserved(cancelled, as_json=parsed.json)
            case "fetch":
                job_ids = parsed.names or await _ended(rack, parsed)
                jobs = [await rack.job(job_id) for job_id in job_ids]
                return await asyncio.to_thread(_fetched, parsed, jobs)
            case _:
                jobs = [await changed(rack, parsed, job_id, order_fields) for job_id in parsed.names]
                rows = {"jobs": [plain(job) for job in jobs]}
                return CommandResult(to_json(rows) if parsed.json else "".join(map(job_line, jobs)))


async def _unreserved(rack: RackClient, reservation_id: str, words: Any) -> ReservationStatus:
    reservation = await rack.unreserve(reservation_id[:64], **words)
    if reservation is None:
        problem = f"there is no reservation {printable(reservation_id[:64])}"
        raise ConfigError(Problem("etloop rack unreserve", problem, "see etloop rack status"))
    return reservation


def _reserved(reservations: Sequence[ReservationStatus], *, as_json: bool) -> CommandResult:
    if as_json:
        return CommandResult(to_json({"reservations": [plain(reservation) for reservation in reservations]}))
    return CommandResult("".join(map(_reservation_line, reservations)))


async def _ended(rack: RackClient, parsed: argparse.Namespace) -> list[str]:
    """Return the ids of the selected jobs to fetch. Raise `ConfigError` if there are none."""
    job_filter = selection(parsed)
    job_ids = [job.job_id for job in await selected_jobs(rack, job_filter)]
    if not job_ids:
        raise none_selected(parsed, job_filter)
    return job_ids


def _fetched(parsed: argparse.Namespace, jobs: Sequence[JobStatus]) -> CommandResult:
    """Download the results and logs of jobs.

    Raise `ConfigError` before any download if a job has not ended or the rack has no HTTP server.
    """
    for job in jobs:
        if job.state not in ENDED:
            remedy = f"wait for it: etloop submit --follow {job.job_id}"
            raise ConfigError(
                Problem(f"job {job.job_id}", f"is {job.state} and has left nothing yet", remedy)
            )
        if not job.log_url:
            problem = "the rack has no HTTP server to fetch anything from"
            raise ConfigError(Problem(f"job {job.job_id}", problem, "add http: to its controller.yaml"))
    web = RackWeb(parsed.token_file, parsed.ca)
    out_dir = parsed.out or Path()
    downloads = [(job, web.fetch(job.job_id, job.results_url, job.log_url, out_dir)) for job in jobs]
    if parsed.json:
        rows = [
            {
                "job_id": job.job_id,
                "run_directory": download.run_directory and str(download.run_directory),
                "log": str(download.log),
            }
            for job, download in downloads
        ]
        return CommandResult(to_json({"fetched": rows}))
    return CommandResult(
        "".join(
            f"{download.run_directory or 'no results were kept'}  {download.log}\n"
            for _, download in downloads
        )
    )


async def _status(rack: RackClient, *, as_json: bool) -> CommandResult:
    controller, inventory = await rack.controller(), await rack.inventory()
    if as_json:
        return CommandResult(to_json({"controller": plain(controller), "inventory": plain(inventory)}))
    text = f"controller {controller.state}, etloop {controller.version}\n"
    if controller.rig_refused:
        kept_rig_text = f"the one of {controller.rig_read_at} is served"
        text += f"rig refused, {kept_rig_text}: {printable(' '.join(controller.rig_refused.split()))}\n"
    agents = "".join(_agent_lines(inventory))
    return CommandResult(
        text
        + _queue_line(controller.paused)
        + agents
        + "".join(map(_port_line, inventory.ports))
        + "".join(map(_reservation_line, inventory.reservations))
    )


def _queue_line(paused: str) -> str:
    return f"queue {printable(paused) or 'open'}\n"


def _agent_lines(inventory: InventoryResponse) -> Sequence[str]:
    presence_texts = {True: "present", False: "absent"}
    return [
        f"agent {agent.name}  {presence_texts[agent.present]}, {agent.runs} runs\n"
        for agent in inventory.agents
    ]


def _reservation_line(made: ReservationStatus) -> str:
    note = f": {made.reason}" if made.reason else ""
    window = f"from {made.begins_at} until {made.ends_at}"
    line = f"reservation {made.reservation_id}  {', '.join(made.ports)} for {made.user or 'nobody'} {window}, by {made.who}{note}"
    return printable(line) + "\n"


def _port_line(port: PortStatus) -> str:
    service_text = printable(port.out_of_service) or "in service"
    job = f", leased to job {port.job_id}" if port.job_id else ""
    return f"port {port.label}  {format_rate(port.link_bps)}  {service_text}{job}\n"
