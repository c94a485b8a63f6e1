"""The command line of `etloop bench`."""

from __future__ import annotations

import argparse
from typing import Final

from etloop.cli.parser import Command
from etloop.cli.values import queue_pair_counts, turns
from etloop.contract.model.transport_kinds import TRANSPORT_KINDS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add which benchmarks, for how long, on which ports."""
    parser.add_argument(
        "benchmark",
        nargs="?",
        default="all",
        choices=("wire", "pacing", "turnaround", "collective", "messages", "scale", "all"),
        help="which one (default all)",
    )
    parser.add_argument(
        "--backend",
        choices=("udp", "packet", "xdp"),
        help="the port of wire, pacing and scale (default: all that can be measured)",
    )
    parser.add_argument(
        "--queue-pairs",
        type=queue_pair_counts,
        metavar="N,...",
        help="of wire, each measured (default 1,100,1000)",
    )
    parser.add_argument(
        "--kind",
        choices=tuple(TRANSPORT_KINDS),
        default="rocev2",
        help="of wire: what carries the messages; mrc and uet need packet or xdp ports (default rocev2)",
    )
    seconds, repetitions = 2, 5
    parser.add_argument(
        "--seconds",
        type=turns,
        default=seconds,
        metavar="N",
        help=f"length of one measurement (default {seconds})",
    )
    parser.add_argument(
        "--repeat",
        type=turns,
        default=repetitions,
        metavar="N",
        help=f"turns of each (default {repetitions})",
    )
    parser.add_argument(
        "--small",
        action="store_true",
        help="only see that it works, in about a minute, whatever --seconds and --repeat say",
    )
    parser.add_argument(
        "--realtime",
        action="store_true",
        help="engines with real-time threads, as by etloop-agent run --realtime",
    )
    parser.add_argument(
        "--clear-cores",
        action="store_true",
        help="of pacing, with --realtime: other threads leave the sender's core, as by etloop-agent run --clear-cores",
    )
    parser.add_argument("--check", action="store_true", help="exit with 30 when a bar is not met")


COMMAND: Final = Command(
    "  etloop bench\n  etloop bench wire --seconds 5 --repeat 9 --json", add_arguments, "bench:bench"
)
