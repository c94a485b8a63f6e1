"""The command line of `etloop inspect`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from etloop.cli.parser import Command
from etloop.cli.trace_options import add_trace, settings_of
from etloop.cli.values import quantity
from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.units import parse_duration_ns, parse_rate_bps

if TYPE_CHECKING:
    from etloop.cli.result import CommandResult


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


def run(parsed: argparse.Namespace) -> CommandResult:
    """Tell what the job is. Raises `TraceError` where files cannot be read, or the trace cannot be replayed."""
    from etloop.cli.commands.inspect import inspect_command
    from etloop.cli.progress import reading_bar
    from etloop.workload.inspect.critical_path import IdealNetwork

    if parsed.link == 0:
        raise ConfigError(Problem("--link", "is 0", "state the speed of a link, such as 400Gbps"))
    default = IdealNetwork()
    network = IdealNetwork(
        default.link_bps if parsed.link is None else parsed.link,
        default.latency_ns if parsed.latency is None else parsed.latency,
    )
    with reading_bar() as bar:
        return inspect_command(
            parsed.trace,
            parsed.groups,
            settings_of(parsed),
            network,
            parsed.svg,
            as_json=parsed.json,
            progress=bar,
        )


COMMAND: Final = Command(
    "  etloop inspect job/\n  etloop inspect trace.tar.zst --link 400Gbps --svg traffic.svg",
    add_arguments,
    run,
)
