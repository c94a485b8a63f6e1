"""The command line of `etloop capture`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from etloop.cli.parser import Command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add which capture."""
    parser.add_argument("file", type=Path, metavar="FILE", help="what `etloop-agent run --capture` wrote")


COMMAND: Final = Command(
    "  etloop capture captures/run-r1-a-p0.pcapng", add_arguments, "capture:capture_command"
)
