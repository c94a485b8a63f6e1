"""The command line of `etloop capture`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from etloop.cli.parser import Command

if TYPE_CHECKING:
    from etloop.cli.result import CommandResult


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add which capture."""
    parser.add_argument("file", type=Path, metavar="FILE", help="what `etloop-agent run --capture` wrote")


def run(parsed: argparse.Namespace) -> CommandResult:
    """Print the capture. Raises `ConfigError` for a file that is none."""
    from etloop.cli.commands.capture import capture_command

    return capture_command(parsed.file)


COMMAND: Final = Command("  etloop capture captures/run-r1-a-p0.pcapng", add_arguments, run)
