"""The command line of `etloop rack`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from etloop.cli.options.rack.broker import add_rack_arguments, add_token_argument
from etloop.cli.parser import Command
from etloop.controller.rack.job import JobState

ORDERS: Final = {
    "status": "show ports, agents and whether the queue is paused",
    "drain": "let no job have these ports from now on (AGENT/PORT, or AGENT for all of its ports)",
    "undrain": "take ports back into service, drained or not to be prepared",
    "reserve": "keep ports for one user's jobs (--for), or for nobody's, until a time",
    "unreserve": "take reservations back, by their ids",
    "pause": "let no job start; those that run go on",
    "resume": "let jobs start again",
    "hold": "keep queued jobs from starting",
    "release": "let held jobs start",
    "priority": "give queued jobs another priority",
    "cancel": "end jobs that have not ended",
    "requeue": "queue ended jobs again, as new jobs",
    "fetch": "download what ended jobs left, and their logs",
}
"""What may be ordered, and what it does."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the order, what it is about, and the rack."""
    meanings = "; ".join(f"{name}: {meaning}" for name, meaning in ORDERS.items())
    parser.add_argument("order", choices=tuple(ORDERS), metavar="ORDER", help=meanings)
    parser.add_argument("names", nargs="*", metavar="NAME", help="ports, agents or jobs that it is about")
    parser.add_argument(
        "--label",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="instead of names: every job so labelled (repeatable) to which the order can be given",
    )
    parser.add_argument(
        "--owner", default="", metavar="USER", help="instead of names: every job of that user"
    )
    parser.add_argument(
        "--state",
        choices=[state.value for state in JobState],
        action="append",
        default=[],
        help="instead of names: every job in that state (repeatable)",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="with --label, --owner or --state: only show which jobs would be given the order",
    )
    parser.add_argument("--to", type=int, default=0, metavar="N", help="the new priority (default 0)")
    parser.add_argument("--reason", default="", metavar="TEXT", help="why; jobs that wait say it")
    parser.add_argument(
        "--for", default="", dest="user", metavar="USER", help="whose jobs get reserved ports"
    )
    parser.add_argument(
        "--from",
        default="",
        dest="begins_at",
        metavar="TIME",
        help="when a reservation begins (default: now)",
    )
    parser.add_argument(
        "--until", default="", dest="ends_at", metavar="TIME", help="when it ends, such as 2026-11-24T18:00Z"
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="where fetch puts a directory and a log for each job (default .)",
    )
    add_rack_arguments(parser)
    add_token_argument(parser)


COMMAND: Final = Command(
    '  etloop rack drain a/p0 --reason "cable swap" --broker rack:1883\n'
    "  etloop rack reserve a --for ann --until 2026-11-24T18:00Z\n"
    "  etloop rack hold JOB\n"
    "  etloop rack fetch JOB --out results\n"
    "  etloop rack cancel --owner ann --state queued --racks racks.yaml --dry-run\n"
    "  etloop rack status --json",
    add_arguments,
    "rack:rack_command",
)
