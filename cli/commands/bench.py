"""Measure the engine next to the plain kernel path of this machine."""

from __future__ import annotations

import argparse
from typing import Final

from etloop.cli.arguments.inputs import add_json
from etloop.cli.arguments.values import parse_queue_pair_counts, parse_repetitions
from etloop.cli.result import CommandResult, to_json
from etloop.contract.model.transport_kinds import TRANSPORT_KINDS
from etloop.runtime.module_loading import quick_loading

EXAMPLE: Final = "  etloop bench\n  etloop bench wire --seconds 5 --repeat 9 --json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the benchmarks, their length and their ports."""
    add_json(parser)
    parser.add_argument(
        "benchmark",
        nargs="?",
        default="all",
        choices=("wire", "pacing", "turnaround", "collective", "dependent", "messages", "scale", "all"),
        help="benchmark to run (default all)",
    )
    parser.add_argument(
        "--backend",
        choices=("udp", "packet", "xdp"),
        help="port backend of wire, pacing and scale (default: all that this host supports)",
    )
    parser.add_argument(
        "--queue-pairs",
        type=parse_queue_pair_counts,
        metavar="N,...",
        help="wire: numbers of queue pairs to measure (default 1,100,1000)",
    )
    parser.add_argument(
        "--kind",
        choices=tuple(TRANSPORT_KINDS),
        default="rocev2",
        help="wire: transport; mrc and uet need packet or xdp ports (default rocev2)",
    )
    seconds, repetitions = 2, 5
    parser.add_argument(
        "--seconds",
        type=parse_repetitions,
        default=seconds,
        metavar="N",
        help=f"seconds per measurement (default {seconds})",
    )
    parser.add_argument(
        "--repeat",
        type=parse_repetitions,
        default=repetitions,
        metavar="N",
        help=f"repetitions of each measurement (default {repetitions})",
    )
    parser.add_argument(
        "--small",
        action="store_true",
        help="smoke test of about a minute; ignores --seconds and --repeat",
    )
    parser.add_argument(
        "--realtime",
        action="store_true",
        help="run the engines with real-time threads, as etloop-agent run --realtime does",
    )
    parser.add_argument(
        "--clear-cores",
        action="store_true",
        help="pacing, with --realtime: move other threads off the sender's core, as etloop-agent run --clear-cores does",
    )
    parser.add_argument("--check", action="store_true", help="exit with 30 if a bound is not met")


def run(parsed: argparse.Namespace) -> CommandResult:
    """Run the benchmarks that the command line names. Raise `ConfigError`, and as `run_bench` does."""
    with quick_loading():
        from etloop.bench.engine.figures import as_json_value, render
        from etloop.bench.engine.rounds import SMALL_LENGTHS, full_lengths
        from etloop.bench.engine.suite import Benchmark, run_bench
        from etloop.bench.engine.wire import ALL_PORTS, WirePorts
        from etloop.contract.base.errors import ConfigError, ExitCode, Problem
        from etloop.contract.model.assignment import PortBackend

    if parsed.clear_cores and not parsed.realtime:
        raise ConfigError(Problem("--clear-cores", "needs real-time threads", "add --realtime"))
    if parsed.kind != "rocev2" and (parsed.benchmark != "wire" or parsed.backend == "udp"):
        problem = (
            "needs a source port per packet, which udp ports cannot set"
            if parsed.backend == "udp"
            else "applies only to wire"
        )
        raise ConfigError(
            Problem("--kind", problem, f"run wire --kind {parsed.kind}, with --backend packet or xdp if any")
        )
    ports = WirePorts(
        (PortBackend[parsed.backend.upper()],) if parsed.backend else ALL_PORTS.backends,
        parsed.queue_pairs or ALL_PORTS.queue_pairs,
        TRANSPORT_KINDS[parsed.kind],
    )
    lengths = SMALL_LENGTHS if parsed.small else full_lengths(parsed.seconds, parsed.repeat)
    benchmarks = tuple(Benchmark) if parsed.benchmark == "all" else (Benchmark(parsed.benchmark),)
    report = run_bench(benchmarks, lengths, ports, realtime=parsed.realtime, clear_cores=parsed.clear_cores)
    failed = parsed.check and not report.met
    return CommandResult(
        to_json(as_json_value(report)) if parsed.json else render(report),
        ExitCode.VERDICT_FAILED if failed else ExitCode.PASS,
    )
