"""The command line of `etloop plan`."""

from __future__ import annotations

import argparse
from typing import Final

from etloop.cli.parser import Command, add_scenario_and_rig


def add_plan(parser: argparse.ArgumentParser) -> None:
    """Add the command line."""
    add_scenario_and_rig(parser)
    parser.add_argument(
        "--summary",
        action="store_true",
        help="on paper: count connections without numbering them, of jobs of any size",
    )


COMMAND: Final = Command(
    "  etloop plan examples/loopback/scenario.yaml --rig examples/loopback/rig.yaml",
    add_plan,
    "run:plan_command",
)
