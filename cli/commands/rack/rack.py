"""Drain ports, hold, reorder, requeue or cancel jobs, pause the queue, or show a rack's status."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from etloop.cli.arguments.inputs import add_json
from etloop.cli.arguments.rack import add_job_filters, add_rack_arguments, add_token_argument
from etloop.cli.result import CommandResult
from etloop.runtime.module_loading import quick_loading

EXAMPLE: Final = (
    '  etloop rack drain a/p0 --reason "cable swap" --broker rack:1883\n'
    "  etloop rack reserve a --for ann --until 2026-11-24T18:00Z\n"
    "  etloop rack hold JOB\n"
    "  etloop rack fetch JOB --out results\n"
    "  etloop rack cancel --owner ann --state queued --racks racks.yaml --dry-run\n"
    "  etloop rack status --json"
)
_KINDS: Final = {"unreserve": "reservations, by the ids that etloop rack status shows"}
_WITHOUT_NAMES: Final = ("pause", "resume", "status")
ORDERS: Final = {
    "status": "show ports, agents, reservations and whether the queue is paused",
    "drain": "stop leasing these ports to jobs (AGENT/PORT, or AGENT for all its ports)",
    "undrain": "return ports to service that were drained or failed their preparation",
    "reserve": "reserve ports for the jobs of one user (--for), or for no jobs, until a time",
    "unreserve": "cancel reservations by their ids",
    "pause": "start no more jobs; running jobs continue",
    "resume": "start jobs again",
    "hold": "do not start these queued jobs",
    "release": "allow held jobs to start",
    "priority": "change the priority of queued jobs",
    "cancel": "cancel queued or running jobs",
    "requeue": "queue ended jobs again, as new jobs",
    "fetch": "download the results and logs of ended jobs",
}
"""Order -> its meaning."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the order, its ports or jobs, and the rack."""
    add_json(parser)
    meanings = "; ".join(f"{name}: {meaning}" for name, meaning in ORDERS.items())
    parser.add_argument("order", choices=tuple(ORDERS), metavar="ORDER", help=meanings)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="ports, agents, jobs or reservations of the order"
    )
    add_job_filters(parser, "instead of names: all jobs")
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="with --label, --owner or --state: only list the selected jobs",
    )
    parser.add_argument("--to", type=int, default=0, metavar="N", help="new priority (default 0)")
    parser.add_argument("--reason", default="", metavar="TEXT", help="reason, shown with the waiting jobs")
    parser.add_argument(
        "--for", default="", dest="user", metavar="USER", help="user whose jobs may use the reserved ports"
    )
    parser.add_argument(
        "--from",
        default="",
        dest="begins_at",
        metavar="TIME",
        help="start of the reservation (default: now)",
    )
    parser.add_argument(
        "--until",
        default="",
        dest="ends_at",
        metavar="TIME",
        help="end of the reservation, such as 2026-11-24T18:00Z",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="fetch: directory for a run directory and a log per job (default .)",
    )
    add_rack_arguments(parser)
    add_token_argument(parser)


def run(parsed: argparse.Namespace) -> CommandResult:
    """Carry an order out. Raise `RequestRefused`, `RackUnreachable`, or `ConfigError` for bad arguments."""
    import asyncio

    with quick_loading():
        from etloop.cli.rack.job_orders import FETCH, JOB_STATES, selects_jobs, spans_racks
        from etloop.cli.rack.named_rack import use_named_rack
        from etloop.cli.rack.orders import carry_out_order
        from etloop.contract.base.errors import ConfigError, Problem
        from etloop.contract.base.printable import printable
        from etloop.controller.rack.mqtt.topics import is_job_id

    command_text = f"etloop rack {parsed.order}"
    if parsed.order in _WITHOUT_NAMES and parsed.names:
        raise ConfigError(Problem(command_text, "takes no names", "leave them out"))
    _refuse_selection(parsed)
    if parsed.order not in _WITHOUT_NAMES and not parsed.names and not selects_jobs(parsed):
        kind = "jobs" if parsed.order in JOB_STATES else _KINDS.get(parsed.order, "ports or agents")
        raise ConfigError(Problem(command_text, "names are missing", f"name {kind}"))
    if parsed.order != FETCH and (parsed.out or parsed.token_file):
        option = "--out" if parsed.out else "--token-file"
        raise ConfigError(Problem(option, "applies only to fetch", "leave it out"))
    if parsed.order != "reserve" and (parsed.user or parsed.begins_at or parsed.ends_at):
        raise ConfigError(Problem(command_text, "takes no --for, --from or --until", "leave them out"))
    if parsed.order == "reserve" and not parsed.ends_at:
        raise ConfigError(Problem("--until", "is missing", "give the end of the reservation"))
    if parsed.to and parsed.order != "priority":
        raise ConfigError(Problem("--to", "applies only to priority", "leave it out"))
    for job_id in parsed.names if parsed.order in JOB_STATES else ():
        if not is_job_id(job_id):
            problem = f'"{printable(job_id[:64])}" is not a job id'
            raise ConfigError(Problem(command_text, problem, "see etloop submit --list"))
    if not spans_racks(parsed):
        use_named_rack(parsed)
    return asyncio.run(carry_out_order(parsed))


def _refuse_selection(parsed: argparse.Namespace) -> None:
    """Raise `ConfigError` for a selection of jobs that the order does not support, or that spans racks by mistake."""
    from etloop.cli.rack.job_orders import FETCH, JOB_STATES, parse_selection, selects_jobs, spans_racks
    from etloop.contract.base.errors import ConfigError, Problem

    option = "--label" if parsed.label else "--owner" if parsed.owner else "--state"
    if selects_jobs(parsed) and (parsed.names or parsed.order not in JOB_STATES):
        raise ConfigError(Problem(option, "selects jobs instead of names", "give one or the other"))
    if selects_jobs(parsed):
        parse_selection(parsed)
    if parsed.dry_run and (not selects_jobs(parsed) or parsed.order == FETCH):
        problem = "applies only to orders with --label, --owner or --state"
        raise ConfigError(Problem("--dry-run", problem, "leave it out"))
    if spans_racks(parsed) and (not selects_jobs(parsed) or parsed.order == FETCH):
        problem = "addresses all racks of the file, and this order needs one"
        raise ConfigError(
            Problem("--racks", problem, "add --rack NAME, or select jobs by --label, --owner or --state")
        )
    if parsed.rack_label and not spans_racks(parsed):
        problem = "chooses among racks, but one is named"
        raise ConfigError(Problem("--rack-label", problem, "leave it out, or give --racks without --rack"))
