"""The command line of `etloop examples`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from etloop.cli.parser import Command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add which ones, and where to."""
    parser.add_argument("names", nargs="*", metavar="NAME", help="example to copy; without: list them all")
    parser.add_argument("--all", action="store_true", help="copy every one of them")
    what = "directory to copy into, made if it is not there; each example is a directory in it"
    parser.add_argument(
        "--to", type=Path, default=Path("examples"), metavar="DIR", help=f"{what} (default examples)"
    )


COMMAND: Final = Command(
    "  etloop examples\n  etloop examples flows laptop --to try/",
    add_arguments,
    "inputs.examples:carried_out",
)
