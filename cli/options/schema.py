"""The command line of `etloop schema`."""

from __future__ import annotations

import argparse
from typing import Final

from etloop.cli.parser import Command

FORMATS: Final = ("scenario", "rig", "topology", "sweep", "controller", "users", "racks", "card")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add of which file."""
    parser.add_argument("format", choices=FORMATS, help="of which file")


COMMAND: Final = Command(
    "  etloop schema scenario > scenario.schema.json",
    add_arguments,
    "inputs.schema:carried_out",
    offers_json=False,
)
