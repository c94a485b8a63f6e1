"""Arguments of commands that send requests to a rack: its broker, its name, credentials, job filters."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_rack_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the rack's broker and name, and the credentials for the broker."""
    parser.add_argument(
        "--broker", default="", metavar="HOST[:PORT]", help="MQTT broker of the rack (default 127.0.0.1:1883)"
    )
    parser.add_argument(
        "--rack",
        default="",
        metavar="NAME",
        help="name of the rack on its broker (default rack); without --broker: a rack of racks.yaml, if that file exists",
    )
    add_racks_arguments(parser)
    parser.add_argument("--username", default="", metavar="USER", help="user name for the broker")
    parser.add_argument(
        "--password-file", type=Path, metavar="FILE", help="file with the password for the broker"
    )
    parser.add_argument(
        "--ca", type=Path, metavar="FILE", help="CA certificate that verifies the broker's certificate (PEM)"
    )


def add_token_argument(parser: argparse.ArgumentParser) -> None:
    """Add the token for the rack's HTTP server."""
    parser.add_argument(
        "--token-file", type=Path, metavar="FILE", help="file with the token for the rack's HTTP server"
    )


def add_racks_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the file that lists racks, and the selection of racks by label."""
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
        help="only racks with this label in racks.yaml (repeatable)",
    )


def add_job_filters(parser: argparse.ArgumentParser, jobs: str) -> None:
    """Add the selection of jobs by state, owner and label; `jobs` begins the help of each."""
    from etloop.controller.rack.job import JobState

    states = [state.value for state in JobState]
    parser.add_argument(
        "--state", choices=states, action="append", default=[], help=f"{jobs} in this state (repeatable)"
    )
    parser.add_argument("--owner", default="", metavar="USER", help=f"{jobs} of this user")
    help_text = f"{jobs} with this label (repeatable)"
    parser.add_argument("--label", action="append", default=[], metavar="NAME=VALUE", help=help_text)
