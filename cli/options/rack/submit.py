"""The command line of `etloop submit`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from etloop.cli.options.rack.broker import add_rack_arguments, add_token_argument
from etloop.cli.parser import Command
from etloop.cli.values import quantity
from etloop.contract.base.units import parse_duration_ns, parse_rate_bps


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the job, the rack, and what else is to be done with one or the other."""
    _add_job(parser)
    _add_choice_of_rack(parser)
    _add_terms(parser)
    _add_waiting(parser)
    _add_other_jobs(parser)
    add_rack_arguments(parser)
    add_token_argument(parser)


def _add_job(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "scenario", type=Path, nargs="?", metavar="SCENARIO", help="scenario.yaml of the new job"
    )
    wanted = parser.add_mutually_exclusive_group()
    wanted.add_argument(
        "--ports", default="", metavar="A/P,...", help="ports to run on (default: every port)"
    )
    wanted.add_argument("--port-count", type=int, default=0, metavar="N", help="any N ports instead")


def _add_choice_of_rack(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--any",
        action="store_true",
        help="submit to whichever rack of racks.yaml has what the scenario asks for and lets the job wait least",
    )
    parser.add_argument(
        "--least-link",
        type=quantity(parse_rate_bps),
        default=0,
        metavar="RATE",
        help="only ports of at least this speed",
    )
    parser.add_argument(
        "--backend",
        choices=("udp", "packet", "xdp", "verbs"),
        default="",
        help="with --any: only ports of this backend",
    )
    parser.add_argument(
        "--dut",
        default="",
        metavar="PROFILE",
        help="with --any: only racks whose device under test has this profile",
    )


def _add_terms(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--priority", type=int, default=0, metavar="N", help="higher starts first")
    parser.add_argument(
        "--key", default="", metavar="KEY", help="submit once: the same key again is the same job"
    )
    parser.add_argument("--label", action="append", default=[], metavar="NAME=VALUE", help="for your own use")
    parser.add_argument(
        "--time-limit",
        type=quantity(parse_duration_ns),
        default=0,
        metavar="TIME",
        help="longest the job may run",
    )
    parser.add_argument(
        "--strict", action="store_true", help="refuse what the profile of the device contradicts"
    )
    parser.add_argument(
        "--retries",
        type=int,
        default=0,
        metavar="N",
        help="queue the job again, at most N times, where the rack itself broke it",
    )
    parser.add_argument(
        "--upload",
        action="store_true",
        help="send the scenario's traces to the rack, which need not lie below its scenario root then",
    )


def _add_waiting(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--wait", action="store_true", help="wait for the end; exit with the job's own code")
    parser.add_argument(
        "--patience",
        type=quantity(parse_duration_ns),
        default=0,
        metavar="TIME",
        help="keep asking for so long while the rack cannot be reached, drains, or its queue is full (default: give up at once)",
    )
    parser.add_argument(
        "--wait-limit",
        type=quantity(parse_duration_ns),
        default=0,
        metavar="TIME",
        help="with --wait or --follow: cancel the job if it has not ended by then, its wait in the queue included",
    )


def _add_other_jobs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cancel", metavar="JOB", help="cancel a job instead")
    parser.add_argument("--follow", metavar="JOB", help="wait for a job submitted before instead")
    parser.add_argument("--list", action="store_true", help="list the newest jobs instead")


COMMAND: Final = Command(
    "  etloop submit scenario.yaml --broker rack:1883 --ports a/p0,b/p0 --wait\n"
    "  etloop submit scenario.yaml --any --port-count 2 --least-link 100Gbps\n"
    "  etloop submit --list --json",
    add_arguments,
    "submit:submit_command",
)
