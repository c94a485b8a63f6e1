"""The command line of `etloop controller`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from etloop.cli.parser import Command

if TYPE_CHECKING:
    from etloop.cli.result import CommandResult


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the rack's configuration."""
    parser.add_argument(
        "--config", type=Path, required=True, metavar="FILE", help="controller.yaml: rig, directories, limits"
    )
    parser.add_argument(
        "--embedded-broker",
        action="store_true",
        help="also be the MQTT broker (3.1.1, on a loopback address), for a rack on one machine",
    )


def run(parsed: argparse.Namespace) -> CommandResult:
    """Serve the rack. Raises `ConfigError` before it listens, if what the file says cannot be used."""
    from etloop.cli.commands.rack import controller_command

    return controller_command(parsed)


COMMAND: Final = Command(
    "  etloop controller --config examples/rack/controller.yaml", add_arguments, run, offers_json=False
)
