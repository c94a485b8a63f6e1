"""How fast the twin is: packet-hops a second of processor time, over several networks and jobs.

    python -m tests.measure.twin [--repeat 3] [--megabytes 64] [--check]

A packet-hop is a packet put on a link, by a network card or by a switch. Every port has 100 Gb/s. Time is that of the thread
that runs the job in virtual time, from the assignment in memory to its records, the best of the repetitions; planning is not
in it. --check ends with 30 when the slowest case is below the bar.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.assignment import Assignment
from etloop.contract.model.topology import Topology
from etloop.traffic.topology.topology_file import parse_topology
from etloop.traffic.twin import TwinOutcome, TwinSettings, twin
from etloop.workload.trace.trace import CollectiveKind
from tests.measure.one_operation import plan_one_operation
from tests.measure.processes import BAR_MISSED

BAR_HOPS_PER_S: Final = 2_000_000
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


def measure(case: Case, message_bytes: int, repeat: int) -> tuple[TwinOutcome, float]:
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table of all cases; return 30 if --check finds a missed bar, else 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeat", type=int, default=3, help="runs of each, the best counts")
    parser.add_argument("--megabytes", type=int, default=64, help="what a rank puts in")
    parser.add_argument("--check", action="store_true", help="end with 30 when a bar is not met")
    chosen = parser.parse_args(arguments)
    slowest = float("inf")
    print(f"{'':36s} {'ranks':>5} {'packets':>9} {'hops':>9} {'s':>7} {'M hops/s':>9} {'virtual ms':>11}")
    for case in CASES:
        outcome, spent_s = measure(case, chosen.megabytes * MIB, chosen.repeat)
        rate = outcome.hops / spent_s
        slowest = min(slowest, rate)
        virtual_ms = (outcome.end_ns - outcome.start_ns) / 1e6
        print(
            f"{case.name:36s} {case.ranks:>5} {outcome.packets:>9} {outcome.hops:>9} {spent_s:>7.2f} {rate / 1e6:>9.2f} "
            f"{virtual_ms:>11.3f}",
            flush=True,
        )
    met = slowest >= BAR_HOPS_PER_S
    print(f"slowest {slowest / 1e6:.2f} M hops/s, bar {BAR_HOPS_PER_S / 1e6:.0f}")
    return 0 if met or not chosen.check else BAR_MISSED


if __name__ == "__main__":
    sys.exit(main())
