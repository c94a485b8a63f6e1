"""`etloop bench`: runs benchmarks and prints their figures; an unmet bound fails the command only with --check."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etloop.bench.engine.figures import as_json_value, render
from etloop.bench.engine.rounds import SMALL_LENGTHS, full_lengths
from etloop.bench.engine.suite import Benchmark, run_bench
from etloop.bench.engine.wire import ALL_PORTS, WirePorts
from etloop.cli.result import CommandResult, to_json
from etloop.contract.base.errors import ConfigError, ExitCode, Problem
from etloop.contract.model.assignment import PortBackend
from etloop.contract.model.transport_kinds import TRANSPORT_KINDS

if TYPE_CHECKING:
    import argparse


def bench(parsed: argparse.Namespace) -> CommandResult:
    """Run the benchmarks that the command line names. Raise `ConfigError`, and as `run_bench` does."""
    if parsed.clear_cores and not parsed.realtime:
        raise ConfigError(
            Problem("--clear-cores", "it clears cores for real-time threads", "say --realtime, too")
        )
    if parsed.kind != "rocev2" and (parsed.benchmark != "wire" or parsed.backend == "udp"):
        problem = (
            "kernel sockets do not let packets choose their source ports"
            if parsed.backend == "udp"
            else "it is of wire alone"
        )
        raise ConfigError(
            Problem("--kind", problem, f"say wire --kind {parsed.kind}, with --backend packet or xdp if any")
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
