"""How fast the twin is: packet-hops a second of processor time, over several networks and jobs.

    python -m tests.measure.twin [--repeat 3] [--megabytes 64] [--check]

A packet-hop is a packet put on a link, by a network card or by a switch. Every port has 100 Gb/s. Time is that of the thread
that runs the job in virtual time, from the assignment in memory to its records, the best of the repetitions; without
planning. The bar applies to the slowest case.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.assignment import Assignment
from etloop.contract.model.topology import Topology
from etloop.traffic.topology.topology_file import parse_topology
from etloop.traffic.twin import TwinOutcome, TwinSettings, twin
from etloop.workload.trace.trace import CollectiveKind
from tests.measure.harness import Bar, Options, Row, Values, measure, table
from tests.measure.one_operation import plan_one_operation

BAR_MHOPS_PER_S: Final = 2
MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Case:
    """One collective on one network; `leaves` of 0: a single switch."""

    name: str
    kind: CollectiveKind
    ranks: int
    leaves: int
    spines: int
    preset: str
    control: str


CASES: Final = (
    Case("ring all-reduce, one switch", CollectiveKind.ALL_REDUCE, 8, 0, 0, "lossless", "none"),
    Case("all-to-all, one switch, PFC", CollectiveKind.ALL_TO_ALL, 16, 0, 0, "lossless", "none"),
    Case("all-to-all, one switch, DCQCN", CollectiveKind.ALL_TO_ALL, 16, 0, 0, "lossless", "dcqcn"),
    Case("all-to-all, 4 leaves and 4 spines", CollectiveKind.ALL_TO_ALL, 32, 4, 4, "lossless", "dcqcn"),
    Case("all-to-all, 8 leaves and 4 spines", CollectiveKind.ALL_TO_ALL, 64, 8, 4, "lossless", "dcqcn"),
)


def planned(case: Case, message_bytes: int) -> tuple[Assignment, Topology]:
    """Return the job, and its network."""
    names = [f"p{rank}" for rank in range(case.ranks)]
    scenario = (
        "collectives: {shaping: plain}\nmapping: {ranks_per_host: 1}\n"
        f"transport: {{cc: {{algorithm: {case.control}}}}}\n"
    )
    plan = plan_one_operation(scenario, case.kind, case.ranks, message_bytes)
    return plan.whole(), parse_topology(_topology(case, names).encode(), "topology.yaml")


def _topology(case: Case, names: list[str]) -> str:
    attached = [f"a/{name}" for name in names]
    settings = f"{{preset: {case.preset}}}"
    if case.leaves == 0:
        return f"single: {{ports: [{', '.join(attached)}], rate: 100Gbps, switch: {settings}}}\n"
    ports_per_leaf = case.ranks // case.leaves
    leaves = ", ".join(
        f"{{ports: [{', '.join(attached[first : first + ports_per_leaf])}]}}"
        for first in range(0, case.ranks, ports_per_leaf)
    )
    return f"leaf_spine: {{rate: 100Gbps, spines: {case.spines}, leaves: [{leaves}], leaf: {settings}, spine: {settings}}}\n"


def run_twin(case: Case, message_bytes: int, repeat: int) -> tuple[TwinOutcome, float]:
    """Return the outcome, and the least CPU time of a run in seconds."""
    assignment, topology = planned(case, message_bytes)
    ports = tuple(port.name for port in assignment.ports)
    least_s = float("inf")
    for _ in range(repeat):
        begin_s = time.thread_time()
        outcome = twin(assignment, ports, topology, TwinSettings())
        least_s = min(least_s, time.thread_time() - begin_s)
        if outcome.failure:
            raise SystemExit(f"{case.name}: {outcome.failure}")
    return outcome, least_s


COLUMNS: Final = table("|36s; ranks|>5; packets|>9; hops|>9; s|>7.2f; M hops/s|>9.2f; virtual ms|>11.3f")
OPTIONS: Final[Options] = {
    "--repeat": {"type": int, "default": 3, "help": "runs of each case; the best counts"},
    "--megabytes": {"type": int, "default": 64, "help": "input of a rank in MiB"},
}


def rows(chosen: argparse.Namespace) -> Iterator[Values]:
    """Yield the rate of every case."""
    for case in CASES:
        outcome, spent_s = run_twin(case, chosen.megabytes * MIB, chosen.repeat)
        virtual_ms = (outcome.end_ns - outcome.start_ns) / 1e6
        figures = (
            case.name,
            case.ranks,
            outcome.packets,
            outcome.hops,
            spent_s,
            outcome.hops / spent_s / 1e6,
            virtual_ms,
        )
        yield figures


def bars(measured: Sequence[Row]) -> list[Bar]:
    """Return the rate of the slowest case."""
    slowest = min(row["M hops/s"] for row in measured)
    return [(f"slowest {slowest:.2f} M hops/s, bar {BAR_MHOPS_PER_S}", slowest >= BAR_MHOPS_PER_S)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure all cases; return the exit code."""
    return measure(__doc__, rows, COLUMNS, bars, OPTIONS, arguments)


if __name__ == "__main__":
    sys.exit(main())
