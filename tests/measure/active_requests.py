"""What a data packet costs agents with 1,000 active requests of a serving workload, beside one of a training job.

    python -m tests.measure.active_requests [--virtual] [--requests 1000] [--tokens 64] [--turns 7] [--check]

Two agents on loopback carry both in turn, in an order that changes with every turn: requests that arrive at once and whose KV
caches (128 KiB a token) are all under way together, and scatters of as many bytes to one rank, which cross the network in the
same direction (an agent that only receives polls more often for each packet) in messages of the same size (NCCL's grouped sends:
a message costs a grant and calls of its own). A cost is the CPU time of both agents, from before
the run until after it, by data packet of 4,096 bytes; the time of a run of one request, or of one scatter, is taken off.
--virtual: the agents' engine in virtual time, without kernel and control messages, for machines that are not idle.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

import yaml

import etloop
from etloop.controller.plan.serving_jobs import required_load
from etloop.controller.run.derived_rig import derived_rig
from etloop.controller.run.execution import SilentWatcher
from etloop.controller.run.prepare import InputFile, Prepared, PrepareOptions, RunInputs, prepare
from etloop.controller.run.serving import serve_in_twin
from etloop.controller.run.twin import TwinExecution, TwinHosts
from etloop.traffic.twin import TwinSettings
from tests.measure.harness import Bar, Options, Row, Values, measure, table
from tests.support.first_light import commands

BAR: Final = 0.95
"""Smallest speed of a packet with active requests, over that with a training job."""
PACKET_BYTES: Final = 4096
TOKEN_BYTES: Final = 1 << 17
"""KV cache of a token of Llama 3.1 8B."""
_TRANSPORT: Final = {"path_mtu": PACKET_BYTES}
_MOST_ACTIVE: Final = 65536
_TOPOLOGY: Final = b"single: {ports: [a/p0, b/p0], rate: 100Gbps}"


def serving(requests: int, tokens: int) -> dict[str, Any]:
    """Return a workload of requests of so many tokens that arrive at once."""
    load = {
        "model": "llama-3.1-8b",
        "prefill": {"instances": 1},
        "decode": {"instances": 1, "sequences": _MOST_ACTIVE},
        "kv": {"unit": "block", "blocks": 1024},
        "compute": {"prefill": ["1 1us"], "decode": ["1 1ms"]},
        "requests": {
            "rate": 1_000_000,
            "arrivals": "constant",
            "count": requests,
            "input": tokens,
            "output": 2,
        },
    }
    return {"workload": {"serving": load}, "transport": _TRANSPORT, **_limits()}


def training(exchanges: int, tokens: int) -> dict[str, Any]:
    """Return scatters that send the bytes of a cache from one rank to another."""
    collective = {"kind": "scatter", "ranks": 2, "size": f"{2 * tokens * TOKEN_BYTES}B", "count": exchanges}
    return {"workload": {"collective": collective}, "transport": _TRANSPORT, **_limits()}


def _limits() -> dict[str, Any]:
    return {"mapping": {"placement": "round_robin"}, "limits": {"gather_timeout": "60s"}}


class Agents:
    """Two agents, and what they have cost."""

    def __init__(self, place: commands.Place, processes: Sequence[int], tokens: int) -> None:
        self._tokens = tokens
        self._rig = place.rig(ranks_per_agent=1)
        self._place = place
        self._processes = processes
        self._runs = 0

    def serve(self, requests: int) -> tuple[int, int]:
        """Serve requests; return CPU time in ns and data packets."""
        before_ns = self._cpu_ns()
        run = etloop.serve(self._scenario(serving(requests, self._tokens)), self._rig, level="rig")
        assert run.failure == ""
        assert run.figures.finished == requests
        return self._cpu_ns() - before_ns, run.figures.kv_bytes // PACKET_BYTES

    def train(self, exchanges: int) -> tuple[int, int]:
        """Run scatters; return CPU time in ns and data packets."""
        before_ns = self._cpu_ns()
        out = self._place.directory / f"run{self._runs}"
        etloop.run_rig(self._scenario(training(exchanges, self._tokens)), self._rig, out, with_twin=False)
        return self._cpu_ns() - before_ns, exchanges * self._tokens * TOKEN_BYTES // PACKET_BYTES

    def _scenario(self, values: dict[str, Any]) -> Path:
        self._runs += 1
        return self._place.write(f"scenario{self._runs}.yaml", yaml.safe_dump(values))

    def _cpu_ns(self) -> int:
        ticks = 0
        for process in self._processes:
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks * 10**9 // os.sysconf("SC_CLK_TCK")


class Virtual:
    """The engine of two agents in virtual time."""

    def __init__(self, directory: Path, tokens: int) -> None:
        self._tokens = tokens
        self._directory = directory

    def serve(self, requests: int) -> tuple[int, int]:
        """Serve requests; return CPU time in ns and data packets."""
        prepared = self._prepared(serving(requests, self._tokens))
        load = required_load(prepared.scenario)
        begin_ns = time.process_time_ns()
        run = serve_in_twin(prepared, load, TwinSettings(), TwinHosts.SOFTWARE, "packet", SilentWatcher())
        spent_ns = time.process_time_ns() - begin_ns
        assert run.failure == ""
        return spent_ns, run.figures.kv_bytes // PACKET_BYTES

    def train(self, exchanges: int) -> tuple[int, int]:
        """Run scatters; return CPU time in ns and data packets."""
        prepared = self._prepared(training(exchanges, self._tokens))
        execution = TwinExecution(TwinSettings(), TwinHosts.SOFTWARE)
        begin_ns = time.process_time_ns()
        executed = execution.execute(prepared, "", SilentWatcher(), None)
        spent_ns = time.process_time_ns() - begin_ns
        assert executed.twin is not None
        assert executed.twin.failure == ""
        return spent_ns, exchanges * self._tokens * TOKEN_BYTES // PACKET_BYTES

    def _prepared(self, values: dict[str, Any]) -> Prepared:
        topology = InputFile(self._directory / "topology.yaml", _TOPOLOGY)
        scenario = InputFile(self._directory / "scenario.yaml", yaml.safe_dump(values).encode())
        inputs = RunInputs(scenario, derived_rig(topology), topology)
        return prepare(inputs, PrepareOptions(keeps_case=False))


def cost_ns(run: Callable[[int], tuple[int, int]], count: int) -> float:
    """Return the CPU time of a data packet, without that of a run of a single message."""
    base_ns, base_packets = run(1)
    spent_ns, packets = run(count)
    return (spent_ns - base_ns) / (packets - base_packets)


COLUMNS: Final = table("turn|>4; requests ns|>12.0f; training ns|>11.0f; speed over training|>19.3f")
OPTIONS: Final[Options] = {
    "--requests": {"type": int, "default": 1000, "help": "active requests"},
    "--tokens": {"type": int, "default": 64, "help": "tokens of a prompt"},
    "--turns": {"type": int, "default": 7, "help": "alternating turns"},
    "--virtual": {"action": "store_true", "help": "in virtual time"},
}


def rows(chosen: argparse.Namespace) -> Iterator[Values]:
    """Yield the costs of every turn."""
    with tempfile.TemporaryDirectory() as directory:
        if chosen.virtual:
            yield from _turns(Virtual(Path(directory), chosen.tokens), chosen)
            return
        place = commands.free_place(Path(directory))
        with commands.agents(place) as live:
            yield from _turns(
                Agents(place, [agent.process.pid for agent in live.values()], chosen.tokens), chosen
            )


def _turns(carrier: Agents | Virtual, chosen: argparse.Namespace) -> Iterator[Values]:
    pairs = [(carrier.serve, chosen.requests), (carrier.train, chosen.requests)]
    for run, count in pairs:
        run(count)  # memory, modules and connections of the first run
    for turn in range(chosen.turns):
        costs = {run.__name__: cost_ns(run, count) for run, count in pairs[:: 1 - 2 * (turn % 2)]}
        yield turn, costs["serve"], costs["train"], costs["train"] / costs["serve"]


def bars(measured: Sequence[Row]) -> list[Bar]:
    """Return the median of the turns' ratios."""
    speed = median(row["speed over training"] for row in measured)
    return [(f"median speed over training {speed:.3f}, bar {BAR}", speed >= BAR)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure all turns; return the exit code."""
    return measure(__doc__, rows, COLUMNS, bars, OPTIONS, arguments)


if __name__ == "__main__":
    sys.exit(main())
