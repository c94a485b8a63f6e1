"""The command line of `etloop inspect`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from etloop.cli.parser import Command
from etloop.cli.trace_options import add_trace
from etloop.cli.values import quantity
from etloop.contract.base.units import parse_duration_ns, parse_rate_bps


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add which trace is told, and the network that it is held against."""
    add_trace(parser)
    parser.add_argument(
        "--link",
        type=quantity(parse_rate_bps),
        metavar="RATE",
        help="link of a rank on the ideal network (default 400Gbps)",
    )
    parser.add_argument(
        "--latency",
        type=quantity(parse_duration_ns),
        metavar="TIME",
        help="latency of a message on it (default 2us)",
    )
    parser.add_argument("--svg", type=Path, metavar="FILE", help="also write the bytes by pair as a picture")


COMMAND: Final = Command(
    "  etloop inspect job/\n  etloop inspect trace.tar.zst --link 400Gbps --svg traffic.svg",
    add_arguments,
    "inspect:inspect_command",
)
