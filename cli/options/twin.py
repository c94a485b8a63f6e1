"""The command line of `etloop twin`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from etloop.cli.parser import Command, add_scenario_and_rig, add_strict
from etloop.cli.values import quantity, whole
from etloop.contract.base.units import parse_duration_ns


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what is run, on which switches, and how."""
    add_scenario_and_rig(parser, without_rig="a port for each attachment of --topology")
    add_strict(parser)
    parser.add_argument(
        "--topology",
        type=Path,
        metavar="FILE",
        help="the switches (docs/device.md), if scenario and rig do not name them",
    )
    parser.add_argument(
        "--device",
        default="",
        metavar="PROFILE",
        help="all switches are of this profile (etloop dut list, or FILE) unless the topology says otherwise",
    )
    parser.add_argument(
        "--level",
        choices=("packet", "flow"),
        default="packet",
        help="flow: without packets, for jobs too large for them: times only, marks and drops unknown (docs/flow_level.md)",
    )
    parser.add_argument(
        "--hosts",
        choices=("cards", "software"),
        help="what sends: network cards (default), or agents over udp, packet and xdp ports, which keep less under way",
    )
    parser.add_argument("--out", type=Path, metavar="RUN_DIR", help="keep the results in this new directory")
    parser.add_argument(
        "--seed", type=whole, metavar="N", help="seed of the switches instead of those in the topology"
    )
    parser.add_argument(
        "--sample",
        type=quantity(parse_duration_ns),
        metavar="TIME",
        help="how often queues are written down, with --out (default 10us, longer for long jobs)",
    )
    parser.add_argument(
        "--limit",
        type=quantity(parse_duration_ns),
        metavar="TIME",
        help="virtual time after which the job is given up (default 1h)",
    )


COMMAND: Final = Command(
    "  etloop twin scenario.yaml --topology topology.yaml                      a port for each of its attachments\n"
    "  etloop twin scenario.yaml --rig rig.yaml --topology topology.yaml\n"
    "  etloop twin scenario.yaml --rig rig.yaml --topology topology.yaml --seed 7 --out twin1/\n"
    "  etloop twin scenario.yaml --rig rig.yaml --topology topology.yaml --level flow     a job too large for packets",
    add_arguments,
    "twin:twin_command",
)
