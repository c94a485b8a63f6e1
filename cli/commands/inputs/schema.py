"""`etloop schema`: prints the JSON Schema of a file or a message, with which editors check files while they are written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from etloop.cli.options.inputs.schema import MESSAGES
from etloop.cli.result import CommandResult

if TYPE_CHECKING:
    import argparse

_TOP: Final = Path(__file__).parents[3]
_OF_RACKS: Final = (_TOP / "cli" / "schemas" / "rack-api", _TOP / "docs" / "rack-api")
"""Folders of the schemas of messages: in a wheel, and in a source tree."""


def carried_out(parsed: argparse.Namespace) -> CommandResult:
    """Return the schema of a format."""
    return CommandResult(_place(parsed.format).read_text(encoding="utf-8"))


def _place(name: str) -> Path:
    if name == "summary":
        return _TOP / "results" / "summary.schema.json"
    if name in MESSAGES:
        folder = next((path for path in _OF_RACKS if path.is_dir()), _OF_RACKS[0])
        return folder / f"{name}.schema.json"
    return _TOP / "cli" / "schemas" / f"{name}.json"
