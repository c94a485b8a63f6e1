"""`etloop schema`: the JSON Schema of a file format, by which editors check files while they are written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from etloop.cli.result import CommandResult

if TYPE_CHECKING:
    import argparse


def carried_out(parsed: argparse.Namespace) -> CommandResult:
    """Print the schema of a format."""
    schemas = Path(__file__).parents[2] / "schemas"
    return CommandResult((schemas / f"{parsed.format}.json").read_text(encoding="utf-8"))
