"""The command line of `etloop lint`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from etloop.cli.parser import Command
from etloop.cli.trace_options import add_trace


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add which trace is checked, and whether it is repaired."""
    add_trace(parser)
    parser.add_argument(
        "--fix",
        type=Path,
        metavar="OUT_DIR",
        help="also write the trace as .et files, repaired by named rules",
    )


COMMAND: Final = Command(
    "  etloop lint job/\n  etloop lint trace.tar.zst --size-unit elements --element-bytes 2 --json",
    add_arguments,
    "lint:lint_command",
)
