"""What the flow level costs: processor time and memory of collectives over up to 1,024 ranks.

    python -m tests.measure.flow_level [--ranks 256,1024] [--check]

Every rank has a port of its own at 400 Gb/s and is run, like others or not; the network is ideal unless another is named. Each
line is measured in a process of its own. Time is that of the virtual run alone, from the assignment in memory to its records;
planning has its own column. Memory is the growth of the process's peak during the run: the native copy of the plan and all
state.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.assignment import Assignment
from etloop.controller.plan.plan import Plan
from etloop.traffic.flow_level import FlowLevelSettings, FlowNetwork, flow_level, ideal_network
from etloop.traffic.flow_network import network_of
from etloop.traffic.topology.topology_file import parse_topology
from etloop.workload.trace.trace import CollectiveKind
from tests.measure.harness import Bar, Options, Row, Values, in_fresh_process, integers, measure, table
from tests.measure.one_operation import plan_one_operation
from tests.measure.processes import status

MIB: Final = 1 << 20
LINK_GBPS: Final = 400


@dataclass(frozen=True, slots=True)
class Case:
    """One collective, with the bar for 1,024 ranks."""

    name: str
    kind: CollectiveKind
    pins: str
    message_bytes: int
    per_host: int = 1
    bar_s: float | None = None
    leaves: bool = False
    """True: a leaf-spine network with 32 ports per leaf, not oversubscribed, with ECMP; False: an ideal network."""


CASES: Final = (
    Case(
        "ring all-reduce",
        CollectiveKind.ALL_REDUCE,
        "plain, all_reduce: {algorithm: ring}",
        1024 * MIB,
        1,
        10,
    ),
    Case("all-to-all, NCCL", CollectiveKind.ALL_TO_ALL, "nccl", 64 * MIB, 1, 60),
    Case("all-reduce as NCCL chooses, 8 a host", CollectiveKind.ALL_REDUCE, "nccl", 256 * MIB, 8),
    Case("all-to-all, NCCL, leaf-spine", CollectiveKind.ALL_TO_ALL, "nccl", 64 * MIB, 1, 180, leaves=True),
)
PORTS_OF_A_LEAF: Final = 32
MEMORY_BAR: Final = 1.25
"""Largest ratio of the memory with sixteen times the bytes of the all-to-all, and the same number of live flows."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of one case at one size."""

    planned_s: float
    run_s: float
    """CPU time of the run."""
    wall_s: float
    grown_bytes: int
    virtual_ns: int
    messages: int
    live_flows: int
    connections: int
    settlings: int
    looks: int


def planned(case: Case, ranks: int) -> Plan:
    """Return the plan of the collective over this number of ranks."""
    nics = f", nics_per_host: {case.per_host}" if case.per_host > 1 else ""
    scenario = f"collectives: {{shaping: {case.pins}}}\nmapping: {{ranks_per_host: {case.per_host}{nics}}}\n"
    return plan_one_operation(scenario, case.kind, ranks, case.message_bytes, link_gbps=LINK_GBPS)


def leaf_spine(assignment: Assignment) -> FlowNetwork:
    """Return a network of at least two leaves of up to 32 ports, and half as many spines."""
    names = tuple(port.name for port in assignment.ports)
    ports_per_leaf = min(PORTS_OF_A_LEAF, len(names) // 2)
    leaves = [names[first : first + ports_per_leaf] for first in range(0, len(names), ports_per_leaf)]
    spines = max(1, len(leaves) // 2)
    described = ", ".join(f"{{ports: [{', '.join(leaf)}]}}" for leaf in leaves)
    text = (
        f"leaf_spine: {{rate: {LINK_GBPS}Gbps, uplink_rate: {LINK_GBPS * ports_per_leaf // spines}Gbps, spines: {spines}, "
        f"leaf: {{balancing: ecmp}}, leaves: [{described}]}}\n"
    )
    return network_of(assignment, names, parse_topology(text.encode(), "topology.yaml"))


def cost_of(case: Case, ranks: int) -> Cost:
    """Return the cost, measured in this process."""
    begin_s = time.process_time()
    assignment = planned(case, ranks).whole()
    network = leaf_spine(assignment) if case.leaves else ideal_network(assignment)
    planned_s = time.process_time() - begin_s
    before_bytes = _forget_peak()
    begin_s, begin_wall_s = time.process_time(), time.monotonic()
    outcome = flow_level(assignment, network, FlowLevelSettings(folds=False))
    run_s, wall_s = time.process_time() - begin_s, time.monotonic() - begin_wall_s
    if outcome.failure:
        raise SystemExit(outcome.failure)
    return Cost(
        planned_s=planned_s,
        run_s=run_s,
        wall_s=wall_s,
        grown_bytes=status(os.getpid(), "VmHWM") * 1024 - before_bytes,
        virtual_ns=outcome.end_ns,
        messages=outcome.messages,
        live_flows=outcome.most_live_flows,
        connections=len(assignment.connections.src_rank),
        settlings=outcome.settlings,
        looks=outcome.looks,
    )


def _forget_peak() -> int:
    """Reset the peak memory of this process to its present memory, and return that in bytes (proc(5), clear_refs;
    glibc).
    """
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return status(os.getpid(), "VmRSS") * 1024


COLUMNS: Final = table(
    "|36s; ranks|>5; plan s|>8.1f; run s|>8.1f; wall s|>8.1f; messages|>9; ns each|>9.0f; "
    "connections|>11; live flows|>10; MiB|>6.0f; virtual ms|>11.3f"
)
OPTIONS: Final[Options] = {
    "--ranks": {"type": integers, "default": "256,1024", "help": "numbers of ranks, with commas"}
}


def rows(chosen: argparse.Namespace) -> Iterator[Values]:
    """Yield the cost of every case with every number of ranks."""
    for case in CASES:
        for ranks in chosen.ranks:
            cost = in_fresh_process(cost_of, case, ranks)
            seconds = (cost.planned_s, cost.run_s, cost.wall_s)
            messages = (cost.messages, 1e9 * cost.run_s / cost.messages, cost.connections, cost.live_flows)
            figures = (case.name, ranks, *seconds, *messages, cost.grown_bytes / MIB, cost.virtual_ns / 1e6)
            yield figures


def bars(measured: Sequence[Row]) -> list[Bar]:
    """Return the bars of the CPU time of each case, and that of memory with more messages."""
    limits = {case.name: case.bar_s for case in CASES if case.bar_s is not None}
    times = [
        (f"{row['']}, {row['ranks']} ranks: {row['run s']:.1f} s, bar {limit}", row["run s"] <= limit)
        for row in measured
        if (limit := limits.get(row[""])) is not None and row["ranks"] <= 1024
    ]
    case = CASES[1]
    large_case = replace(case, message_bytes=16 * case.message_bytes)
    small, large = in_fresh_process(cost_of, case, 64), in_fresh_process(cost_of, large_case, 64)
    ratio = large.grown_bytes / small.grown_bytes
    memory = (
        f"memory with {large.messages / small.messages:.0f} times the messages and "
        f"{large.live_flows / small.live_flows:.0f} times the live flows: {ratio:.2f} times (bar {MEMORY_BAR})"
    )
    return [*times, (memory, ratio <= MEMORY_BAR)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure all cases; return the exit code."""
    return measure(__doc__, rows, COLUMNS, bars, OPTIONS, arguments)


if __name__ == "__main__":
    sys.exit(main())
