"""The command line of `etloop controller`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from etloop.cli.parser import Command


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


COMMAND: Final = Command(
    "  etloop controller --config examples/rack/controller.yaml",
    add_arguments,
    "rack:controller_command",
    offers_json=False,
)
