"""The command line of `etloop racks`."""

from __future__ import annotations

import argparse
from typing import Final

from etloop.cli.options.rack.broker import add_racks_arguments
from etloop.cli.parser import Command
from etloop.cli.values import quantity, whole
from etloop.contract.base.clock import NS_PER_S
from etloop.contract.base.units import parse_duration_ns
from etloop.controller.rack.job import JobState

ORDERS: Final = {
    "status": "show how each rack stands",
    "jobs": "list the newest jobs of all racks",
    "ports": "list the ports of all racks",
    "serve": "serve one page of all racks over HTTP until it is ended",
}
"""What may be asked."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what is asked, of which racks, and which jobs."""
    meanings = "; ".join(f"{name}: {meaning}" for name, meaning in ORDERS.items())
    parser.add_argument("order", choices=tuple(ORDERS), metavar="ORDER", help=meanings)
    add_racks_arguments(parser)
    parser.add_argument(
        "--rack", action="append", default=[], metavar="NAME", help="only this rack (repeatable)"
    )
    parser.add_argument(
        "--state",
        choices=[state.value for state in JobState],
        action="append",
        default=[],
        help="only jobs in this state (repeatable)",
    )
    parser.add_argument("--owner", default="", metavar="USER", help="only jobs of this user")
    parser.add_argument(
        "--label",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="only jobs so labelled (repeatable)",
    )
    parser.add_argument(
        "--limit",
        type=whole,
        default=100,
        metavar="N",
        help="the newest N jobs of each rack (default %(default)s)",
    )
    parser.add_argument(
        "--deadline",
        type=quantity(parse_duration_ns),
        default=5 * NS_PER_S,
        metavar="TIME",
        help="how long each rack may take to answer (default 5s)",
    )
    parser.add_argument(
        "--bind", default="", metavar="HOST:PORT", help="where serve listens (default 127.0.0.1:9430)"
    )
    parser.add_argument(
        "--insecure",
        action="store_true",
        help="let serve listen where other machines reach it: the page asks nobody who he is",
    )


COMMAND: Final = Command(
    "  etloop racks status --racks racks.yaml\n"
    "  etloop racks jobs --state running --label suite=nightly --json\n"
    "  etloop racks serve",
    add_arguments,
    "racks.listing:racks_command",
)
