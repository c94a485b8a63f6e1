"""The command line of `etloop controller`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from etloop.cli.parser import Command
from etloop.controller.rack.log_settings import LogLevel


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
    parser.add_argument(
        "--log-level",
        choices=[level.value for level in LogLevel],
        default=LogLevel.INFO.value,
        help="what the log has (default: %(default)s); SIGUSR1 has it say all from then on, SIGUSR2 this again",
    )


COMMAND: Final = Command(
    "  etloop controller --config examples/rack/controller.yaml",
    add_arguments,
    "rack:controller_command",
    offers_json=False,
)
