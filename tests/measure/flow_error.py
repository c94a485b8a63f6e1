"""How far the flow level is from the packet level: the same job over the same network, both ways.

    python -m tests.measure.flow_error [--large] [--check]

Every rank has a port of its own at 100 Gb/s, a microsecond away. Behind one switch there is no congestion control; jobs through
leaves and spines are drawn by seed, with transports and switches that send one flow by many paths. Positive differences: flows
take longer than packets. --large adds jobs that take some seconds on the packet level.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.assignment import Assignment
from etloop.contract.model.topology import Topology
from etloop.traffic.flow_level import flow_level
from etloop.traffic.flow_network import network_of
from etloop.traffic.topology.topology_file import parse_topology
from etloop.traffic.twin import TwinSettings, twin
from etloop.workload.trace.trace import CollectiveKind
from tests.measure.harness import Bar, Options, Row, Values, measure, table
from tests.measure.one_operation import plan_one_operation

BAR: Final = 0.05
KIB: Final = 1 << 10


@dataclass(frozen=True, slots=True)
class Case:
    """One collective; `shaping` and `transport` are the scenario's values without their braces."""

    kind: CollectiveKind
    ranks: int
    message_bytes: int
    shaping: str
    transport: str = "window_packets: 4096, cc: {algorithm: none}"
    leaves: int = 0
    """0: one switch."""
    spines: int = 0
    balancing: str = "ecmp"


def ring(ranks: int, kib: int, channels: int) -> Case:
    """Return an all-reduce over rings with this number of channels."""
    pins = f"nccl, all_reduce: {{algorithm: ring, protocol: simple, channels: {channels}}}"
    return Case(CollectiveKind.ALL_REDUCE, ranks, kib * KIB, pins)


def as_nccl(kind: CollectiveKind, ranks: int, kib: int) -> Case:
    """Return a collective with NCCL's choices."""
    return Case(kind, ranks, kib * KIB, "nccl")


CASES: Final = (
    *(ring(8, 1024, channels) for channels in (1, 2, 4, 8)),
    *(ring(32, 1024, channels) for channels in (1, 2, 3, 4, 6, 8)),
    *(ring(16, 16384, channels) for channels in (1, 2, 8)),
    as_nccl(CollectiveKind.ALL_REDUCE, 32, 1024),
    as_nccl(CollectiveKind.ALL_REDUCE, 64, 1024),
    as_nccl(CollectiveKind.ALL_GATHER, 16, 4096),
    as_nccl(CollectiveKind.ALL_TO_ALL, 16, 4096),
)
LARGE: Final = (
    ring(64, 16384, 4),
    ring(128, 4096, 8),
    as_nccl(CollectiveKind.ALL_REDUCE, 128, 4096),
    as_nccl(CollectiveKind.ALL_REDUCE, 128, 65536),
    as_nccl(CollectiveKind.ALL_TO_ALL, 64, 16384),
)


SPRAYED: Final = ("rotation", "oblivious", "recycled", "penalties")
"""Choices of entropy."""
IN_ANY_ORDER: Final = "window_packets: 1024, out_of_order: accept, cc: {algorithm: none}"


def spread(seed: int) -> Case:
    """Return a drawn collective through a leaf-spine without oversubscription, where packets of a flow take many paths."""
    draw = random.Random(seed)
    leaves, hosts = draw.choice((2, 3, 4)), draw.choice((2, 4, 8))
    entropy = draw.choice(SPRAYED)
    transport, balancing = draw.choice(
        (
            (f"kind: uet, uet: {{entropy: {entropy}}}, ack: {{dscp: 48}}", "ecmp"),
            (f"kind: mrc, mrc: {{entropy: {entropy}}}, ack: {{dscp: 48}}", "structured"),
            (f"kind: uet, uet: {{entropy: {entropy}}}, ack: {{dscp: 48}}", "adaptive"),
            (IN_ANY_ORDER, "adaptive"),
        )
    )
    ranks, spines = leaves * hosts, hosts * draw.choice((1, 2))
    kib = ranks * draw.choice((128, 512))
    # Rings of many channels differ for other reasons (docs/flow_level.md).
    case = draw.choice(
        (ring(ranks, kib, draw.choice((1, 2))), as_nccl(CollectiveKind.ALL_TO_ALL, ranks, kib))
    )
    return replace(case, transport=transport, leaves=leaves, spines=spines, balancing=balancing)


SPREAD: Final = tuple(spread(seed) for seed in range(16))


@dataclass(frozen=True, slots=True)
class Times:
    """Time of a job on both levels."""

    packets_ns: int
    flows_ns: int

    @property
    def difference(self) -> float:
        """Return the time on the flow level relative to that on the packet level, minus 1."""
        return self.flows_ns / self.packets_ns - 1


def planned(case: Case) -> tuple[Assignment, tuple[str, ...], Topology]:
    """Return the job, its ports and the switches between them."""
    scenario = (
        f"collectives: {{shaping: {case.shaping}}}\nmapping: {{ranks_per_host: 1}}\n"
        f"transport: {{{case.transport}}}\n"
    )
    assignment = plan_one_operation(scenario, case.kind, case.ranks, case.message_bytes).whole()
    names = tuple(port.name for port in assignment.ports)
    described = f"single: {{ports: [{', '.join(names)}], rate: 100Gbps, delay: 1us}}\n"
    if case.leaves:
        hosts = case.ranks // case.leaves
        leaves = [f"{{ports: [{', '.join(names[at : at + hosts])}]}}" for at in range(0, case.ranks, hosts)]
        described = (
            f"leaf_spine: {{rate: 100Gbps, delay: 1us, spines: {case.spines}, leaf: {{balancing: {case.balancing}}}, "
            f"leaves: [{', '.join(leaves)}]}}\n"
        )
    return assignment, names, parse_topology(described.encode(), "topology.yaml")


def shape_of(case: Case) -> str:
    """Return what is special about a case, in a few words."""
    if not case.leaves:
        return case.shaping
    return f"{case.leaves} leaves, {case.spines} spines, {case.balancing}; {case.transport.split(', ack')[0]}"


def both_levels(case: Case) -> Times:
    """Return the times of a job on both levels."""
    assignment, names, topology = planned(case)
    packets = twin(assignment, names, topology, TwinSettings())
    flows = flow_level(assignment, network_of(assignment, names, topology))
    for failure in (packets.failure, flows.failure):
        if failure:
            raise SystemExit(f"{case}: {failure}")
    return Times(packets.end_ns - packets.start_ns, flows.end_ns)


COLUMNS: Final = table(
    "|12s; ranks|>5; KiB|>6; packets us|>11.1f; flows us|>9.1f; differ %|>+9.1f;  shaping|s"
)
OPTIONS: Final[Options] = {"--large": {"action": "store_true", "help": "with jobs of 64 and 128 ranks"}}


def rows(chosen: argparse.Namespace) -> Iterator[Values]:
    """Yield the times of every case on both levels."""
    for case in (*CASES, *SPREAD, *(LARGE if chosen.large else ())):
        times = both_levels(case)
        us = (times.packets_ns / 1e3, times.flows_ns / 1e3)
        figures = (case.kind.name.lower(), case.ranks, case.message_bytes // KIB, *us, 100 * times.difference)
        yield (*figures, f" {shape_of(case)}")


def bars(measured: Sequence[Row]) -> list[Bar]:
    """Return the largest difference."""
    furthest = max(abs(row["differ %"]) for row in measured)
    return [(f"furthest {furthest:.1f} %, bar {100 * BAR:.0f}", furthest <= 100 * BAR)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure all cases; return the exit code."""
    return measure(__doc__, rows, COLUMNS, bars, OPTIONS, arguments)


if __name__ == "__main__":
    sys.exit(main())
