"""The command line of `etloop demo`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from etloop.cli.parser import Command
from etloop.cli.values import whole


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add where the demo goes and what it runs on."""
    parser.add_argument(
        "--out", type=Path, default=Path("demo-run"), metavar="DIR", help="where the results go"
    )
    parser.add_argument("--iterations", type=whole, default=5, metavar="N", help="passes over the job")
    parser.add_argument("--loopback", action="store_true", help="two agents over loopback, without a switch")


COMMAND: Final = Command(
    "  etloop demo --out demo-run --iterations 5", add_arguments, "demo:demo_command", offers_json=False
)
