"""The command line of `etloop lint`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from etloop.cli.parser import Command
from etloop.cli.trace_options import add_trace, settings_of

if TYPE_CHECKING:
    from etloop.cli.result import CommandResult


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add which trace is checked, and whether it is repaired."""
    add_trace(parser)
    parser.add_argument(
        "--fix",
        type=Path,
        metavar="OUT_DIR",
        help="also write the trace as .et files, repaired by named rules",
    )


def run(parsed: argparse.Namespace) -> CommandResult:
    """Check the trace. Raises `TraceError` where files cannot be read at all."""
    from etloop.cli.progress import reading_bar
    from etloop.runtime.linear_algebra import one_blas_thread

    with one_blas_thread():
        from etloop.cli.commands.lint import fix_command, lint_command

    settings = settings_of(parsed)
    with reading_bar() as bar:
        if parsed.fix is not None:
            return fix_command(
                parsed.trace, parsed.groups, settings, parsed.fix, as_json=parsed.json, progress=bar
            )
        return lint_command(parsed.trace, parsed.groups, settings, as_json=parsed.json, progress=bar)


COMMAND: Final = Command(
    "  etloop lint job/\n  etloop lint trace.tar.zst --size-unit elements --element-bytes 2 --json",
    add_arguments,
    run,
)
