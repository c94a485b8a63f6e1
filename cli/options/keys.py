"""The command line of `etloop keys`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from etloop.cli.parser import Command

if TYPE_CHECKING:
    from etloop.cli.result import CommandResult


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what is done with which keys."""
    parser.add_argument("action", choices=("make", "allow", "revoke", "list"), help="what to do")
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="names of agents or of the controller; for allow also .key files brought from elsewhere",
    )
    parser.add_argument(
        "--dir",
        type=Path,
        default=Path("keys"),
        metavar="DIR",
        help="key directory (default keys/); the allow-list is DIR/allowed",
    )
    parser.add_argument("--keep", action="store_true", help="make: leave pairs that exist as they are")


def run(parsed: argparse.Namespace) -> CommandResult:
    """Carry the command out. Raises `ConfigError`, before anything is changed, with everything that is wrong."""
    from etloop.cli.commands.keys import carried_out

    return carried_out(parsed)


COMMAND: Final = Command(
    "  etloop keys make controller a b --dir keys\n  etloop keys allow a b --dir keys", add_arguments, run
)
