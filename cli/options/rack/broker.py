"""Options of commands that ask a rack: its broker, its name, and who asks."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_rack_arguments(parser: argparse.ArgumentParser) -> None:
    """Add where the rack is, and what its broker wants to know."""
    parser.add_argument(
        "--broker", default="", metavar="HOST[:PORT]", help="MQTT broker of the rack (default 127.0.0.1:1883)"
    )
    parser.add_argument(
        "--rack",
        default="",
        metavar="NAME",
        help="name of the rack on its broker (default rack); without --broker a rack of racks.yaml, if there is one",
    )
    add_racks_arguments(parser)
    parser.add_argument("--username", default="", metavar="USER", help="of the broker")
    parser.add_argument("--password-file", type=Path, metavar="FILE", help="holds the password")
    parser.add_argument(
        "--ca", type=Path, metavar="FILE", help="authority that the broker's certificate is checked by"
    )


def add_token_argument(parser: argparse.ArgumentParser) -> None:
    """Add what the rack's HTTP server wants to know."""
    parser.add_argument(
        "--token-file", type=Path, metavar="FILE", help="holds the token for the rack's HTTP server"
    )


def add_racks_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the file that names racks, and which of them are meant by their labels."""
    parser.add_argument(
        "--racks",
        type=Path,
        metavar="FILE",
        help="racks.yaml (default: $ETLOOP_RACKS, or etloop/racks.yaml in the user's configuration directory)",
    )
    parser.add_argument(
        "--rack-label",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="only racks that racks.yaml labels so (repeatable)",
    )
