"""The command line of `etloop schema`."""

from __future__ import annotations

import argparse
from typing import Final

from etloop.cli.parser import Command

FORMATS: Final = ("scenario", "rig", "topology", "sweep", "controller", "users", "racks", "card")
"""Files that people write."""
MESSAGES: Final = (
    "agent-process",
    "agent-status",
    "cancel-request",
    "cancel-response",
    "change-request",
    "change-response",
    "controller-status",
    "inventory-request",
    "inventory-response",
    "job-status",
    "list-request",
    "list-response",
    "pause-request",
    "pause-response",
    "progress-status",
    "reservation-response",
    "reserve-request",
    "result-status",
    "service-request",
    "service-response",
    "submit-request",
    "submit-response",
    "unreserve-request",
)
"""Between a rack and its clients (docs/rack-api)."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add of which file."""
    what = f"of which file: {', '.join(FORMATS)}; summary, of a run; or of which message of a rack, such as submit-request"
    choices = (*FORMATS, "summary", *MESSAGES)
    parser.add_argument("format", choices=choices, metavar="FORMAT", help=what)


COMMAND: Final = Command(
    "  etloop schema scenario > scenario.schema.json",
    add_arguments,
    "inputs.schema:carried_out",
    offers_json=False,
)
