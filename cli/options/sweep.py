"""The command line of `etloop sweep`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from etloop.cli.options.compare import add_settings
from etloop.cli.parser import Command, add_strict
from etloop.cli.values import whole

EXIT_CODES: Final = (
    "0 all runs whole and no verdict worse than pass, 20 one inconclusive, 30 one failed, 50 one broke off, "
    "65 files, rig or lab cannot be used, 130 Ctrl-C"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the sweep, where it runs, and how its runs are compared."""
    parser.add_argument("sweep", type=Path, metavar="SWEEP", help="sweep.yaml (docs/experiments.md)")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="directory of the results; only --dry-run needs none"
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--twin", action="store_true", help="in virtual time, on the switches of the topology")
    where.add_argument("--lab", action="store_true", help="through switches of software that it brings up")
    where.add_argument("--rig", type=Path, metavar="FILE", help="on this rig, whose agents run")
    parser.add_argument("--resume", action="store_true", help="go on with a sweep that ended early")
    parser.add_argument(
        "--repeats", type=whole, metavar="N", help="runs of every point, instead of the file's"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="lay all points out and list them, run nothing"
    )
    parser.add_argument(
        "--no-ideal",
        action="store_true",
        help="do not work out for every run what an ideal network would have done",
    )
    parser.add_argument(
        "--allow-overcommit", action="store_true", help="with --lab: at rates that this host does not hold"
    )
    parser.add_argument(
        "--allow-plugins",
        action="store_true",
        help="with --lab: its agents compile and run congestion controls that scenarios bring",
    )
    add_strict(parser)
    add_settings(parser)
    parser.epilog = f"{parser.epilog}\n\nexit codes: {EXIT_CODES}"


COMMAND: Final = Command(
    "  etloop sweep examples/congestion_control/sweep.yaml --twin --out study/\n"
    "  etloop sweep sweep.yaml --rig rig.yaml --out study/ --resume",
    add_arguments,
    "sweep:sweep_command",
)
