"""The command line of `etloop dut`: list, show, check, counters, fabric."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from etloop.cli.parser import Command
from etloop.cli.values import quantity
from etloop.contract.base.clock import NS_PER_S
from etloop.contract.base.units import parse_duration_ns

_PROFILE: Final = "name of a shipped profile, or a file that ends in .yaml"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions, each with its own options."""
    actions = parser.add_subparsers(title="actions", dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="the shipped profiles")
    show = actions.add_parser("show", help="all that a profile states, with sources")
    show.add_argument("profile", metavar="PROFILE", help=_PROFILE)
    check = actions.add_parser(
        "check", help="what contradicts itself in a profile, or what a job or a rig contradicts in it"
    )
    check.add_argument(
        "profile", nargs="?", metavar="PROFILE", help=f"{_PROFILE} (default: the one that the rig names)"
    )
    check.add_argument("--scenario", type=Path, metavar="FILE", help="scenario.yaml")
    check.add_argument("--rig", type=Path, metavar="FILE", help="rig.yaml")
    fabric = actions.add_parser(
        "fabric", help="what an InfraGraph description says: hosts, switches, ranks; as rig and mapping"
    )
    fabric.add_argument("description", type=Path, metavar="FILE", help="infrastructure, YAML or JSON")
    fabric.add_argument(
        "--annotations", type=Path, metavar="FILE", help="ranks, addresses, profiles of nodes"
    )
    fabric.add_argument("--out", type=Path, metavar="DIR", help="write rig.yaml and mapping.yaml there")
    counters = actions.add_parser("counters", help="what the device of a rig counts now, or as it moves")
    counters.add_argument(
        "--rig", type=Path, required=True, metavar="FILE", help="rig.yaml with dut.counters"
    )
    counters.add_argument(
        "--watch",
        action="store_true",
        help="again and again: on a terminal rates in place, else what moved each time; ends with Ctrl-C",
    )
    counters.add_argument(
        "--every",
        type=quantity(parse_duration_ns),
        default=NS_PER_S,
        metavar="TIME",
        help="between two readings of --watch (default 1s)",
    )
    linux = actions.add_parser(
        "linux-counters",
        help="read interfaces of this host for a reader elsewhere: a line in, a line of JSON out",
    )
    linux.add_argument("interfaces", nargs="*", metavar="INTERFACE", help="default: all but the loopback")
    for action in (listing, show, check, fabric, counters):
        action.add_argument("--json", action="store_true", help="answer in JSON, for programs")


COMMAND: Final = Command(
    "  etloop dut show sonic-tomahawk5\n"
    "  etloop dut check sonic-tomahawk5 --scenario scenario.yaml --rig rig.yaml\n"
    "  etloop dut counters --rig rig.yaml --watch",
    add_arguments,
    "dut:dut_command",
    offers_json=False,
)
