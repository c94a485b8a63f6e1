"""Options of commands that make many runs in virtual time in several processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etloop.cli.arguments.values import parse_size, parse_whole
from etloop.results.schema.run_output import Output

if TYPE_CHECKING:
    from argparse import ArgumentParser


def add_processes(parser: ArgumentParser, condition: str = "") -> None:
    """Add the number of processes and their memory; `condition` begins both help texts."""
    parser.add_argument(
        "--jobs",
        type=parse_whole,
        metavar="N",
        help=f"{condition}processes (default: all cores that this process may use)",
    )
    parser.add_argument(
        "--memory",
        type=parse_size,
        metavar="SIZE",
        help=f"{condition}memory of all processes together (default: three quarters of free memory)",
    )


def add_output(parser: ArgumentParser, default: Output, help_text: str) -> None:
    """Add the files that every run writes."""
    parser.add_argument("--output", type=Output, choices=tuple(Output), default=default, help=help_text)


def add_overcommit(parser: ArgumentParser) -> None:
    """Add the permission to run a lab beyond the rates of this host."""
    parser.add_argument(
        "--allow-overcommit",
        action="store_true",
        help="with --lab: run even if this host cannot sustain the rates",
    )
