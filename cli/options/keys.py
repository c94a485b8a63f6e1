"""The command line of `etloop keys`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from etloop.cli.parser import Command


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


COMMAND: Final = Command(
    "  etloop keys make controller a b --dir keys\n  etloop keys allow a b --dir keys",
    add_arguments,
    "keys:carried_out",
)
