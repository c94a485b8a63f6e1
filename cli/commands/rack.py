"""The rack's commands of `etloop`: `controller` serves a rack until it is told to end, `jobs` reads what it keeps, `rack` gives
orders to it. A shell: the terminal."""

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
from etloop.controller.rack.exchange.links import Links
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
from etloop.runtime.stop_signals import level_calls

if TYPE_CHECKING:
    import argparse

_MOST_LISTED: Final = 100_000
_KINDS: Final = {"unreserve": "reservations, by the ids that etloop rack status shows"}
_OF_NOTHING: Final = ("pause", "resume", "status")


def controller_command(parsed: argparse.Namespace) -> CommandResult:
    """Serves the rack. Raises `ConfigError` before it listens, if what the file says cannot be used."""
    from etloop.controller.rack.log import RackLog
    from etloop.controller.rack.startup import serve

    config = _read_config(parsed.config, embedded_broker=parsed.embedded_broker)
    log = RackLog(config.log_format, level=LogLevel(parsed.log_level))
    with level_calls(log.write_all, log.write_as_started):
        return CommandResult("", serve(config, log))


def jobs_command(parsed: argparse.Namespace) -> CommandResult:
    """Lists jobs from the job store, whether its controller runs or not. Raises `ConfigError`."""
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
        what = f"cannot be read: {error.strerror}"
        raise ConfigError(Problem(str(path), what, "check the name and that it may be read")) from None
    return parse_rack_config(text, str(path), path.parent, embedded_broker=embedded_broker)


def rack_command(parsed: argparse.Namespace) -> CommandResult:
    """Carry the command out. Raises `RequestRefused`, `RackUnreachable`, or `ConfigError` for bad arguments."""
    where = f"etloop rack {parsed.order}"
    if parsed.order in _OF_NOTHING and parsed.names:
        raise ConfigError(Problem(where, "is about no port or job", "leave the names out"))
    _refuse_selection(parsed)
    if parsed.order not in _OF_NOTHING and not parsed.names and not selects(parsed):
        kind = "jobs" if parsed.order in MAY_BE_GIVEN_TO else _KINDS.get(parsed.order, "ports or agents")
        raise ConfigError(Problem(where, "nothing is named", f"name {kind}"))
    if parsed.order != FETCH and (parsed.out or parsed.token_file):
        option = "--out" if parsed.out else "--token-file"
        raise ConfigError(Problem(option, "is of the order fetch", "leave it out"))
    if parsed.order != "reserve" and (parsed.user or parsed.begins_at or parsed.ends_at):
        raise ConfigError(Problem(where, "has no window of time", "leave --for, --from and --until out"))
    if parsed.order == "reserve" and not parsed.ends_at:
        raise ConfigError(Problem("--until", "is missing", "say when the reservation ends"))
    if parsed.to and parsed.order != "priority":
        raise ConfigError(Problem("--to", "is of the order priority", "leave it out"))
    for job_id in parsed.names if parsed.order in MAY_BE_GIVEN_TO else ():
        if not is_job_id(job_id):
            what = f'"{printable(job_id[:64])}" is no id of a job'
            raise ConfigError(Problem(where, what, "see etloop submit --list"))
    if not spans_racks(parsed):
        take_named_rack(parsed)
    return asyncio.run(_carried_out(parsed))


def _refuse_selection(parsed: argparse.Namespace) -> None:
    """Raise `ConfigError` for jobs that are selected in a way that the order does not know, or among racks by mistake."""
    option = "--label" if parsed.label else "--owner" if parsed.owner else "--state"
    if selects(parsed) and (parsed.names or parsed.order not in MAY_BE_GIVEN_TO):
        raise ConfigError(Problem(option, "stands for names of jobs", "give one or the other"))
    if selects(parsed):
        selection(parsed)
    if parsed.dry_run and (not selects(parsed) or parsed.order == FETCH):
        what = "is of orders to the jobs that --label, --owner or --state select"
        raise ConfigError(Problem("--dry-run", what, "leave it out"))
    if spans_racks(parsed) and (not selects(parsed) or parsed.order == FETCH):
        what = "means all racks of the file, and this order is for one"
        raise ConfigError(
            Problem("--racks", what, "add --rack NAME, or select jobs by --label, --owner or --state")
        )
    if parsed.rack_label and not spans_racks(parsed):
        what = "chooses among racks, and one is named"
        raise ConfigError(Problem("--rack-label", what, "leave it out, or give --racks without --rack"))


async def _carried_out(parsed: argparse.Namespace) -> CommandResult:
    words: Any = {"reason": parsed.reason, "submitter": f"{getpass.getuser()}@{socket.gethostname()}"[:256]}
    if selects(parsed) and parsed.order != FETCH:
        return await order_selected(parsed, words)
    async with rack_client(parsed) as rack:
        match parsed.order:
            case "status":
                return await _status(rack, as_json=parsed.json)
            case "pause" | "resume":
                paused = await rack.pause(paused=parsed.order == "pause", **words)
                return CommandResult(to_json({"paused": paused}) if parsed.json else _queue_line(paused))
            case "drain" | "undrain":
                ports = await rack.service(parsed.names, in_service=parsed.order == "undrain", **words)
                rows = {"ports": [plain(port) for port in ports]}
                return CommandResult(to_json(rows) if parsed.json else "".join(map(_port_line, ports)))
            case "reserve":
                window: Any = {"begins_at": parsed.begins_at, "user": parsed.user}
                made = (await rack.reserve(parsed.names, parsed.ends_at, **window, **words),)
                return _reserved(made, as_json=parsed.json)
            case "unreserve":
                gone = [await _unreserved(rack, reservation_id, words) for reservation_id in parsed.names]
                return _reserved(gone, as_json=parsed.json)
            case "fetch":
                named = parsed.names or await _ended(rack, parsed)
                jobs = [await rack.job(job_id) for job_id in named]
                return await asyncio.to_thread(_fetched, parsed, jobs)
            case _:
                jobs = [await changed(rack, parsed, job_id, words) for job_id in parsed.names]
                rows = {"jobs": [plain(job) for job in jobs]}
                return CommandResult(to_json(rows) if parsed.json else "".join(map(job_line, jobs)))


async def _unreserved(rack: RackClient, reservation_id: str, words: Any) -> ReservationStatus:
    gone = await rack.unreserve(reservation_id[:64], **words)
    if gone is None:
        what = f"there is no reservation {printable(reservation_id[:64])}"
        raise ConfigError(Problem("etloop rack unreserve", what, "see etloop rack status"))
    return gone


def _reserved(reservations: Sequence[ReservationStatus], *, as_json: bool) -> CommandResult:
    if as_json:
        return CommandResult(to_json({"reservations": [plain(each) for each in reservations]}))
    return CommandResult("".join(map(_reservation_line, reservations)))


async def _ended(rack: RackClient, parsed: argparse.Namespace) -> list[str]:
    """Return the jobs that were selected to be fetched. Raises `ConfigError` without one."""
    wanted = selection(parsed)
    found = [job.job_id for job in await selected_jobs(rack, wanted)]
    if not found:
        raise none_selected(parsed, wanted)
    return found


def _fetched(parsed: argparse.Namespace, jobs: Sequence[JobStatus]) -> CommandResult:
    """Download what jobs left. Raises `ConfigError` for one that has not ended, or a rack without HTTP, before any."""
    for job in jobs:
        if job.state not in ENDED:
            remedy = f"wait for it: etloop submit --follow {job.job_id}"
            raise ConfigError(
                Problem(f"job {job.job_id}", f"is {job.state} and has left nothing yet", remedy)
            )
        if not job.log_url:
            what = "the rack has no HTTP server to fetch anything from"
            raise ConfigError(Problem(f"job {job.job_id}", what, "add http: to its controller.yaml"))
    web = RackWeb(parsed.token_file, parsed.ca)
    out = parsed.out or Path()
    found = [(job, web.fetch(job.job_id, job.results_url, job.log_url, out)) for job in jobs]
    if parsed.json:
        rows = [
            {
                "job_id": job.job_id,
                "run_directory": each.run_directory and str(each.run_directory),
                "log": str(each.log),
            }
            for job, each in found
        ]
        return CommandResult(to_json({"fetched": rows}))
    return CommandResult(
        "".join(f"{each.run_directory or 'no results were kept'}  {each.log}\n" for _, each in found)
    )


async def _status(rack: RackClient, *, as_json: bool) -> CommandResult:
    controller, inventory = await rack.controller(), await rack.inventory()
    if as_json:
        return CommandResult(to_json({"controller": plain(controller), "inventory": plain(inventory)}))
    head = f"controller {controller.state}, etloop {controller.version}\n"
    if controller.rig_refused:
        since = f"the one of {controller.rig_read_at} is served"
        head += f"rig refused, {since}: {printable(' '.join(controller.rig_refused.split()))}\n"
    agents = "".join(_agent_lines(inventory))
    return CommandResult(
        head
        + _queue_line(controller.paused)
        + agents
        + "".join(map(_port_line, inventory.ports))
        + "".join(map(_reservation_line, inventory.reservations))
    )


def _queue_line(paused: str) -> str:
    return f"queue {printable(paused) or 'open'}\n"


def _agent_lines(inventory: InventoryResponse) -> Sequence[str]:
    stands = {True: "present", False: "absent"}
    return [f"agent {one.name}  {stands[one.present]}, {one.runs} runs\n" for one in inventory.agents]


def _reservation_line(made: ReservationStatus) -> str:
    why = f": {made.reason}" if made.reason else ""
    window = f"from {made.begins_at} until {made.ends_at}"
    line = f"reservation {made.reservation_id}  {', '.join(made.ports)} for {made.user or 'nobody'} {window}, by {made.who}{why}"
    return printable(line) + "\n"


def _port_line(port: PortStatus) -> str:
    stands = printable(port.out_of_service) or "in service"
    job = f", leased to job {port.job_id}" if port.job_id else ""
    return f"port {port.label}  {format_rate(port.link_bps)}  {stands}{job}\n"
