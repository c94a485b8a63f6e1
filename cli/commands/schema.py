"""Print the JSON Schema of a file format or a rack message, for editors and clients."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from etloop.cli.result import CommandResult

EXAMPLE: Final = "  etloop schema scenario > scenario.schema.json"
FORMATS: Final = ("scenario", "rig", "topology", "sweep", "controller", "users", "racks", "card")
"""Files that users write."""
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
"""Messages between a rack and its clients (docs/rack-api)."""
_ROOT: Final = Path(__file__).parents[2]
_MESSAGE_FOLDERS: Final = (_ROOT / "cli" / "schemas" / "rack-api", _ROOT / "docs" / "rack-api")
"""Folders of the message schemas: in a wheel, and in a source tree."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the format."""
    help_text = (
        f"file format ({', '.join(FORMATS)}), summary (of a run), or a rack message, such as submit-request"
    )
    choices = (*FORMATS, "summary", *MESSAGES)
    parser.add_argument("format", choices=choices, metavar="FORMAT", help=help_text)


def run(parsed: argparse.Namespace) -> CommandResult:
    """Return the schema of a format."""

    return CommandResult(_schema_path(parsed.format).read_text(encoding="utf-8"))


def _schema_path(name: str) -> Path:
    if name == "summary":
        return _ROOT / "results" / "summary.schema.json"
    if name in MESSAGES:
        folder = next((path for path in _MESSAGE_FOLDERS if path.is_dir()), _MESSAGE_FOLDERS[0])
        return folder / f"{name}.schema.json"
    return _ROOT / "cli" / "schemas" / f"{name}.json"
