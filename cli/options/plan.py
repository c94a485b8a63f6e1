"""The command line of `etloop plan`."""

from __future__ import annotations

import argparse
from typing import Final

from etloop.cli.parser import Command, add_scenario_and_rig


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the two files and how much is planned."""
    add_scenario_and_rig(parser)
    parser.add_argument(
        "--summary",
        action="store_true",
        help="the same figures without numbering connections: for jobs larger than queue pair numbers, as far as 16,384 ranks",
    )


COMMAND: Final = Command(
    "  etloop plan examples/loopback/scenario.yaml --rig examples/loopback/rig.yaml",
    add_arguments,
    "run:plan_command",
)
