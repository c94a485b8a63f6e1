"""Send the orders of `etloop rack` to a rack and render its answers. A shell: the terminal, downloads."""

from __future__ import annotations

import asyncio
import getpass
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etloop.cli.rack.job_orders import (
    FETCH,
    change_job,
    no_job_error,
    order_selected,
    parse_selection,
    select_jobs,
    selects_jobs,
)
from etloop.cli.rack.named_rack import rack_client
from etloop.cli.result import CommandResult, to_json
from etloop.cli.text.job import job_line
from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.printable import printable
from etloop.contract.base.units import format_rate
from etloop.contract.protocol.codec import plain
from etloop.controller.rack.client.client import RackClient
from etloop.controller.rack.client.web import RackWeb
from etloop.controller.rack.job import ENDED
from etloop.controller.rack.mqtt.messages import (
    InventoryResponse,
    JobStatus,
    PortStatus,
)
from etloop.controller.rack.mqtt.reservation_messages import ReservationStatus

if TYPE_CHECKING:
    import argparse


async def carry_out_order(parsed: argparse.Namespace) -> CommandResult:
    """Send the order to the rack, or to all racks that the selection of jobs spans, and return the answer."""
    order_fields: Any = {
        "reason": parsed.reason,
        "submitter": f"{getpass.getuser()}@{socket.gethostname()}"[:256],
    }
    if selects_jobs(parsed) and parsed.order != FETCH:
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
                return _reservations_result(reservations, as_json=parsed.json)
            case "unreserve":
                cancelled = [
                    await _cancel_reservation(rack, reservation_id, order_fields)
                    for reservation_id in parsed.names
                ]
                return _reservations_result(cancelled, as_json=parsed.json)
            case "fetch":
                job_ids = parsed.names or await _select_ended_jobs(rack, parsed)
                jobs = [await rack.job(job_id) for job_id in job_ids]
                return await asyncio.to_thread(_fetch, parsed, jobs)
            case _:
                jobs = [await change_job(rack, parsed, job_id, order_fields) for job_id in parsed.names]
                rows = {"jobs": [plain(job) for job in jobs]}
                return CommandResult(to_json(rows) if parsed.json else "".join(map(job_line, jobs)))


async def _cancel_reservation(rack: RackClient, reservation_id: str, order_fields: Any) -> ReservationStatus:
    reservation = await rack.unreserve(reservation_id[:64], **order_fields)
    if reservation is None:
        problem = f"there is no reservation {printable(reservation_id[:64])}"
        raise ConfigError(Problem("etloop rack unreserve", problem, "see etloop rack status"))
    return reservation


def _reservations_result(reservations: Sequence[ReservationStatus], *, as_json: bool) -> CommandResult:
    if as_json:
        return CommandResult(to_json({"reservations": [plain(reservation) for reservation in reservations]}))
    return CommandResult("".join(map(_reservation_line, reservations)))


async def _select_ended_jobs(rack: RackClient, parsed: argparse.Namespace) -> list[str]:
    """Return the ids of the selected jobs to fetch. Raise `ConfigError` if there are none."""
    job_filter = parse_selection(parsed)
    job_ids = [job.job_id for job in await select_jobs(rack, job_filter)]
    if not job_ids:
        raise no_job_error(parsed, job_filter)
    return job_ids


def _fetch(parsed: argparse.Namespace, jobs: Sequence[JobStatus]) -> CommandResult:
    """Download the results and logs of jobs.

    Raise `ConfigError` before any download if a job has not ended or the rack has no HTTP server.
    """
    for job in jobs:
        if job.state not in ENDED:
            remedy = f"wait for it: etloop submit --follow {job.job_id}"
            raise ConfigError(Problem(f"job {job.job_id}", f"is {job.state} and has no results yet", remedy))
        if not job.log_url:
            problem = "the rack has no HTTP server"
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
        "".join(f"{download.run_directory or 'no results'}  {download.log}\n" for _, download in downloads)
    )


async def _status(rack: RackClient, *, as_json: bool) -> CommandResult:
    controller, inventory = await rack.controller(), await rack.inventory()
    if as_json:
        return CommandResult(to_json({"controller": plain(controller), "inventory": plain(inventory)}))
    text = f"controller {controller.state}, etloop {controller.version}\n"
    if controller.rig_refused:
        kept_rig_text = f"still using the rig read at {controller.rig_read_at}"
        text += f"rig rejected, {kept_rig_text}: {printable(' '.join(controller.rig_refused.split()))}\n"
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


def _reservation_line(reservation: ReservationStatus) -> str:
    note = f": {reservation.reason}" if reservation.reason else ""
    window = f"from {reservation.begins_at} until {reservation.ends_at}"
    ports = ", ".join(reservation.ports)
    user = reservation.user or "no user"
    line = (
        f"reservation {reservation.reservation_id}  {ports} for {user} {window}, by {reservation.who}{note}"
    )
    return printable(line) + "\n"


def _port_line(port: PortStatus) -> str:
    service_text = printable(port.out_of_service) or "in service"
    job = f", leased to job {port.job_id}" if port.job_id else ""
    return f"port {port.label}  {format_rate(port.link_bps)}  {service_text}{job}\n"
