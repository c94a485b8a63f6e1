"""The command line of `etloop run`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from etloop.cli.parser import Command, add_scenario_and_rig, add_strict
from etloop.cli.values import listening_address

DEFAULT_WEB: Final = ("127.0.0.1", 0)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what is run, where to, and what else is to be done about it."""
    add_scenario_and_rig(parser)
    parser.add_argument(
        "--out", type=Path, required=True, metavar="RUN_DIR", help="new directory for the results"
    )
    parser.add_argument("--no-progress", action="store_true", help="draw nothing while it runs")
    parser.add_argument(
        "--web",
        nargs="?",
        type=listening_address,
        const=DEFAULT_WEB,
        metavar="ADDRESS:PORT",
        help="also show the run as a page that becomes the report, to anybody who reaches the address "
        "(default 127.0.0.1 and a free port)",
    )
    parser.add_argument(
        "--no-twin", action="store_true", help="do not work out afterwards what the run should have taken"
    )
    add_strict(parser)


COMMAND: Final = Command(
    "  etloop run scenario.yaml --rig rig.yaml --out run1/\n"
    "  and on each agent's machine: etloop-agent run --controller tcp://HOST:PORT --name NAME",
    add_arguments,
    "run:run_command",
)
