"""The command line of `etloop demo`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from etloop.cli.parser import Command
from etloop.cli.result import CommandResult
from etloop.cli.values import whole


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add where the demo goes and what it runs on."""
    parser.add_argument(
        "--out", type=Path, default=Path("demo-run"), metavar="DIR", help="where the results go"
    )
    parser.add_argument("--iterations", type=whole, default=5, metavar="N", help="passes over the job")
    parser.add_argument("--loopback", action="store_true", help="two agents over loopback, without a switch")


def run(parsed: argparse.Namespace) -> CommandResult:
    """Run the demo. Raises an `InputError` where this machine cannot."""
    from etloop.cli.commands.demo import run_demo

    return CommandResult(
        "", run_demo(parsed.out, parsed.iterations, as_json=parsed.json, loopback=parsed.loopback)
    )


COMMAND: Final = Command("  etloop demo --out demo-run --iterations 5", add_arguments, run, offers_json=False)
