"""Every algorithm in virtual time beside its closed form: `python -m etloop.bench.closed_forms` prints the table, --check judges.

The network is ideal: every port sends and receives one packet at a time at the speed of its link, any path takes the
same time, nothing is lost. docs/closed_forms.md derives the formulas; they are written here once more, as code.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from etloop.controller.inputs.rig import parse_rig
from etloop.controller.inputs.scenario.scenario import parse_scenario
from etloop.controller.plan.plan import make_plan
from etloop.traffic.collectives.algorithms.deepep import TOKEN
from etloop.traffic.collectives.algorithms.halving_doubling import Folding
from etloop.traffic.collectives.core.hosts import hosts_of, tree_place
from etloop.traffic.simulation import SimulationSettings, simulate
from etloop.workload.trace.program import Communicator, Job, OpKind, Program, RankProgram
from etloop.workload.trace.trace import CollectiveKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

LINK_BPS: Final = 100_000_000_000
SCALE_UP_BPS: Final = 3_600_000_000_000
LATENCY_NS: Final = 2_000
SCALE_UP_LATENCY_NS: Final = 1_000
TRANSMIT_QUEUE_NS: Final = 1_000
PATH_MTU: Final = 4096
PACKET_OVERHEAD_BYTES: Final = 20 + 14 + 20 + 8 + 12 + 4 + 4
"""Preamble and gap, Ethernet, IPv4, UDP, BTH, ICRC, FCS."""
RETH_BYTES: Final = 16
ACK_BYTES: Final = PACKET_OVERHEAD_BYTES + 4
TOLERANCE: Final = 0.02
MIB: Final = 1 << 20
TREE_CHUNK_BYTES: Final = MIB // 2
"""Of NCCL's trees and chains, on Simple."""


def wire_ns(message_bytes: float) -> float:
    """w(m): how long m bytes of payload hold a link, headers of full packets included."""
    return message_bytes * (1 + PACKET_OVERHEAD_BYTES / PATH_MTU) * 8e9 / LINK_BPS


def inside_ns(message_bytes: float) -> float:
    """u(m): how long m bytes hold a rank's way into its host."""
    return message_bytes * 8e9 / SCALE_UP_BPS


@dataclass(frozen=True, slots=True)
class Point:
    """One operation: n ranks, g a host, S bytes put in by each rank (the own shard of an all-gather)."""

    ranks: int
    per_host: int
    size_bytes: int

    @property
    def hosts(self) -> int:
        """h."""
        return self.ranks // self.per_host

    @property
    def block(self) -> float:
        """S / n."""
        return self.size_bytes / self.ranks

    @property
    def steps(self) -> int:
        """ceil(lg n)."""
        return (self.ranks - 1).bit_length()


@dataclass(frozen=True, slots=True)
class Form:
    """One algorithm of one collective, with what its time is made of for large messages."""

    collective: str
    algorithm: str
    shaping: str
    bandwidth: Callable[[Point], float]
    """Nanoseconds that follow from bytes."""
    latencies: Callable[[Point], float]
    """How many times the latency of the network is paid, one after another."""
    ranks: tuple[int, ...] = (4, 5, 8)
    per_host: int = 1
    pins: str = ""
    """Further keys of the collective's section."""

    def closed_ns(self, point: Point) -> float:
        """T."""
        return self.bandwidth(point) + self.latencies(point) * LATENCY_NS


def _blocks_with_bit(ranks: int, bit: int) -> int:
    return sum(way >> bit & 1 for way in range(ranks))


def _halved_all_reduce(point: Point) -> float:
    """Halves of the buffer down to 1/p and back, p the power of two inside; a folded pair moves all of it before and after."""
    fold = Folding(point.ranks)
    exchanged = 2 * (fold.inside - 1) / fold.inside * point.size_bytes
    return wire_ns(exchanged + (2 * point.size_bytes if fold.folded else 0))


def _exchanged(fold: Folding, begin: int, distances: Iterable[int], sent: Callable[[int, int], int]) -> int:
    """Blocks one after another on the longest way through the steps. Numbers that stand for two positions begin when
    `begin` blocks have come; a pair's step lasts as long as the longer of its halves (`sent(number, distance)`)."""
    over = [begin if number < fold.folded else 0 for number in range(fold.inside)]
    for distance in distances:
        lasts = [sent(number, distance) for number in range(fold.inside)]
        pairs = [(number, number ^ distance) for number in range(fold.inside)]
        over = [max(over[one], over[two]) + max(lasts[one], lasts[two]) for one, two in pairs]
    return max(over)


def _halved_reduce_scatter(point: Point) -> float:
    """In each step a number sends the blocks of its peer's half of the window; folded, a whole buffer before and a block
    after."""
    fold = Folding(point.ranks)

    def sent(number: int, distance: int) -> int:
        first = (number ^ distance) & -distance
        return len(fold.stands_for(range(first, first + distance)))

    distances = [1 << step for step in reversed(range(fold.steps))]
    blocks = _exchanged(fold, point.ranks, distances, sent) + (1 if fold.folded else 0)
    return wire_ns(blocks * point.block)


def _doubled_all_reduce(point: Point) -> float:
    """The whole buffer in every step, and before and after for a folded pair."""
    fold = Folding(point.ranks)
    return wire_ns((fold.steps + (2 if fold.folded else 0)) * point.size_bytes)


def _doubled_all_gather(point: Point) -> float:
    """In each step a number sends the shards of all that it has heard of; folded, one before and all others after."""
    fold = Folding(point.ranks)

    def sent(number: int, distance: int) -> int:
        first = number & -distance
        return len(fold.stands_for(range(first, first + distance)))

    shards = _exchanged(fold, 1, [1 << step for step in range(fold.steps)], sent)
    return wire_ns((shards + (point.ranks - 1 if fold.folded else 0)) * point.size_bytes)


def _busiest_of_trees(point: Point) -> float:
    """What the busiest position sends in both trees together, half of the buffer in each, and the hops between it and the
    leaves: its link has nothing to do before their first chunk has come up, and they wait for the last one to come down."""
    hosts = hosts_of(point.ranks, 1)

    def height(position: int, second: bool) -> int:
        children = tree_place(hosts, position, second=second, head=0).children
        return 1 + max(height(child, second) for child in children) if children else 0

    loads = []
    for position in range(point.ranks):
        places = [tree_place(hosts, position, second=second, head=0) for second in (False, True)]
        halves = sum(len(place.children) + (place.parent >= 0) for place in places)
        loads.append((halves, max(height(position, second) for second in (False, True))))
    halves, hops = max(loads)
    return wire_ns(halves * point.size_bytes / 2 + 2 * hops * TREE_CHUNK_BYTES)


def _written_by_token(point: Point) -> float:
    """As all-to-alls, but every token is a write of its own: a packet that is not full, a RETH, an acknowledgement back."""
    tokens = (point.ranks - 1) * point.block / TOKEN.dispatch_bytes
    packets = -(-TOKEN.dispatch_bytes // PATH_MTU)
    token_bytes = TOKEN.dispatch_bytes + packets * PACKET_OVERHEAD_BYTES + RETH_BYTES + ACK_BYTES
    return tokens * token_bytes * 8e9 / LINK_BPS


FORMS: Final = (
    Form(
        "all_reduce",
        "ring",
        "plain",
        lambda p: wire_ns(2 * (p.ranks - 1) * p.block),
        lambda p: 4 * (p.ranks - 1),
    ),
    Form("all_reduce", "ring", "nccl", lambda p: wire_ns(2 * (p.ranks - 1) * p.block), lambda p: 0),
    Form(
        "all_gather",
        "ring",
        "plain",
        lambda p: wire_ns((p.ranks - 1) * p.size_bytes),
        lambda p: 2 * (p.ranks - 1),
    ),
    Form(
        "reduce_scatter",
        "ring",
        "plain",
        lambda p: wire_ns((p.ranks - 1) * p.block),
        lambda p: 2 * (p.ranks - 1),
    ),
    Form("all_gather", "ring", "nccl", lambda p: wire_ns((p.ranks - 1) * p.size_bytes), lambda p: 0),
    Form("reduce_scatter", "ring", "nccl", lambda p: wire_ns((p.ranks - 1) * p.block), lambda p: 0),
    Form(
        "all_gather",
        "bidirectional_ring",
        "nccl",
        lambda p: wire_ns((p.ranks - 1) * p.size_bytes),
        lambda p: 0,
        pins="channels: 2",
    ),
    Form(
        "reduce_scatter",
        "bidirectional_ring",
        "nccl",
        lambda p: wire_ns((p.ranks - 1) * p.block),
        lambda p: 0,
        pins="channels: 2",
    ),
    Form(
        "all_reduce",
        "bidirectional_ring",
        "nccl",
        lambda p: wire_ns(2 * (p.ranks - 1) * p.block),
        lambda p: 0,
        pins="channels: 2",
    ),
    Form(
        "all_reduce",
        "gloo_ring",
        "gloo",
        lambda p: wire_ns(2 * (p.ranks - 1) * p.block),
        lambda p: 2 * (p.ranks - 1),
    ),
    Form(
        "all_reduce",
        "halving_doubling",
        "plain",
        _halved_all_reduce,
        lambda p: 4 * p.steps,
        ranks=(4, 5, 6, 8),
    ),
    Form(
        "reduce_scatter",
        "halving_doubling",
        "plain",
        _halved_reduce_scatter,
        lambda p: 3 * p.steps,
        ranks=(4, 5, 8, 12),
    ),
    Form(
        "all_reduce",
        "recursive_doubling",
        "plain",
        _doubled_all_reduce,
        lambda p: 2 * p.steps,
        ranks=(4, 5, 6, 8),
    ),
    Form(
        "all_gather",
        "recursive_doubling",
        "plain",
        _doubled_all_gather,
        lambda p: 3 * p.steps,
        ranks=(4, 5, 7, 8),
    ),
    Form(
        "all_gather",
        "pat",
        "plain",
        lambda p: wire_ns((p.ranks - 1) * p.size_bytes),
        lambda p: 2 * p.steps,
    ),
    Form(
        "reduce_scatter",
        "pat",
        "plain",
        lambda p: wire_ns((p.ranks - 1) * p.block),
        lambda p: 2 * p.steps,
    ),
    Form(
        "all_reduce",
        "tree",
        "nccl",
        _busiest_of_trees,
        lambda p: 4 * p.steps,
        ranks=(4, 5, 6, 8),
        pins="protocol: simple, channels: 2",
    ),
    Form("all_reduce", "direct", "plain", lambda p: wire_ns(2 * (p.ranks - 1) * p.block), lambda p: 4),
    Form("all_gather", "direct", "plain", lambda p: wire_ns((p.ranks - 1) * p.size_bytes), lambda p: 2),
    Form("reduce_scatter", "direct", "plain", lambda p: wire_ns((p.ranks - 1) * p.block), lambda p: 2),
    Form("all_to_all", "direct", "plain", lambda p: wire_ns((p.ranks - 1) * p.block), lambda p: 2),
    Form("all_to_all", "deepep", "plain", _written_by_token, lambda p: 2),
    Form("all_gather", "pat", "nccl", lambda p: wire_ns((p.ranks - 1) * p.size_bytes), lambda p: 2 * p.steps),
    Form("reduce_scatter", "pat", "nccl", lambda p: wire_ns((p.ranks - 1) * p.block), lambda p: 2 * p.steps),
    Form("all_to_all", "p2p", "nccl", lambda p: wire_ns((p.ranks - 1) * p.block), lambda p: 2),
    Form(
        "all_to_all",
        "pairwise",
        "plain",
        lambda p: wire_ns((p.ranks - 1) * p.block),
        lambda p: 3 * (p.ranks - 1),
    ),
    Form(
        "reduce_scatter",
        "pairwise",
        "plain",
        lambda p: wire_ns((p.ranks - 1) * p.block),
        lambda p: 3 * (p.ranks - 1),
    ),
    Form("all_to_all", "scattered", "plain", lambda p: wire_ns((p.ranks - 1) * p.block), lambda p: 2),
    Form(
        "all_to_all",
        "bruck",
        "plain",
        lambda p: wire_ns(sum(_blocks_with_bit(p.ranks, k) for k in range(p.steps)) * p.block),
        lambda p: 2 * p.steps,
    ),
    Form(
        "all_gather", "bruck", "plain", lambda p: wire_ns((p.ranks - 1) * p.size_bytes), lambda p: 2 * p.steps
    ),
    Form("broadcast", "chain", "plain", lambda p: wire_ns((p.ranks - 1) * p.size_bytes), lambda p: p.ranks),
    Form(
        "broadcast",
        "chain",
        "nccl",
        lambda p: wire_ns(p.size_bytes + (p.ranks - 2) * TREE_CHUNK_BYTES),
        lambda p: p.ranks,
        pins="protocol: simple, channels: 1",
    ),
    Form("reduce", "chain", "plain", lambda p: wire_ns((p.ranks - 1) * p.size_bytes), lambda p: p.ranks),
    Form(
        "reduce",
        "chain",
        "nccl",
        lambda p: wire_ns(p.size_bytes + (p.ranks - 2) * TREE_CHUNK_BYTES),
        lambda p: p.ranks,
        pins="protocol: simple, channels: 1",
    ),
    Form(
        "broadcast",
        "binomial",
        "plain",
        lambda p: wire_ns(p.steps * p.size_bytes),
        lambda p: 3 * p.steps,
    ),
    Form(
        "reduce",
        "binomial",
        "plain",
        lambda p: wire_ns(p.steps * p.size_bytes),
        lambda p: 2 * p.steps,
    ),
    Form(
        "gather",
        "binomial",
        "plain",
        lambda p: wire_ns((p.ranks - 1) * p.size_bytes),
        lambda p: 2 * p.steps,
    ),
    Form(
        "scatter",
        "binomial",
        "plain",
        lambda p: wire_ns((p.ranks - 1) * p.block),
        lambda p: 3 * p.steps,
    ),
    Form("gather", "linear", "plain", lambda p: wire_ns((p.ranks - 1) * p.size_bytes), lambda p: 3),
    Form("scatter", "linear", "plain", lambda p: wire_ns((p.ranks - 1) * p.block), lambda p: 3),
    Form(
        "all_reduce",
        "hierarchical",
        "plain",
        lambda p: (
            inside_ns(2 * (p.per_host - 1) * p.size_bytes / p.per_host) + wire_ns(2 * (p.hosts - 1) * p.block)
        ),
        lambda p: 4 * (p.hosts - 1),
        ranks=(4, 8),
        per_host=2,
    ),
    Form(
        "all_to_all",
        "hierarchical",
        "plain",
        lambda p: (
            inside_ns((p.per_host - 1) * p.hosts * p.block) + wire_ns((p.hosts - 1) * p.per_host * p.block)
        ),
        lambda p: 3,
        ranks=(4, 8),
        per_host=2,
    ),
    Form(
        "all_to_all",
        "pxn",
        "plain",
        lambda p: wire_ns((p.ranks - p.per_host) * p.block),
        lambda p: 3,
        ranks=(4, 8),
        per_host=2,
    ),
)


def rig_and_scenario(form: Form, ranks: int) -> tuple[str, str]:
    """A port with one address for every rank, all on one agent; the algorithm pinned."""
    ports = "".join(
        f"      - {{name: p{rank}, addresses: 10.0.{rank}.1, link: 100Gbps}}\n" for rank in range(ranks)
    )
    pins = ", ".join(filter(None, (f"algorithm: {form.algorithm}", form.pins)))
    scenario = (
        "workload: {trace: none}\n"
        f"mapping: {{placement: round_robin, ranks_per_host: {form.per_host}"
        + (f", nics_per_host: {form.per_host}" if form.per_host > 1 else "")
        + "}\n"
        f"scale_up: {{bandwidth: {SCALE_UP_BPS // 10**9}Gbps, latency: {SCALE_UP_LATENCY_NS}ns}}\n"
        "transport: {path_mtu: 4096, timeout: 10s, window_packets: 4096, ack_every: 16}\n"
        f"collectives: {{shaping: {form.shaping}, {form.collective}: {{{pins}}}}}\n"
    )
    return f"agents:\n  - name: a\n    ports:\n{ports}", scenario


def one_operation(kind: CollectiveKind, ranks: int, message_bytes: int) -> Job:
    """A job of a single collective over all ranks."""
    program = Program(
        kind=np.array([OpKind.COLLECTIVE], np.uint8),
        collective=np.array([kind], np.int8),
        slot=np.zeros(1, np.int32),
        sequence=np.zeros(1, np.int32),
        message_bytes=np.array([message_bytes], np.int64),
        delay_ns=np.zeros(1, np.int64),
        dep_offsets=np.zeros(2, np.int64),
        deps=np.zeros(0, np.int32),
    )
    node_id = np.zeros(1, np.uint64)
    return Job(
        source="closed forms",
        communicators=(Communicator(0, "all", tuple(range(ranks))),),
        programs=(program,),
        ranks=tuple(RankProgram(rank, 0, (0,), (), node_id) for rank in range(ranks)),
        policy="data",
        edges={},
        notes=(),
    )


def simulated_ns(form: Form, point: Point) -> int:
    """Time of the operation in virtual time, from the common start to the last completion."""
    rig_text, scenario_text = rig_and_scenario(form, point.ranks)
    rig = parse_rig(rig_text.encode(), "rig.yaml", Path())
    scenario = parse_scenario(scenario_text.encode(), "scenario.yaml", Path())
    job = one_operation(CollectiveKind[form.collective.upper()], point.ranks, point.size_bytes)
    plan = make_plan(scenario, rig, job)
    assert form.algorithm in plan.tables.algorithms
    settings = SimulationSettings(
        latency_ns=LATENCY_NS, receiver_links=True, fair_links=True, transmit_queue_ns=TRANSMIT_QUEUE_NS
    )
    outcome = simulate(plan.assignments["a"], settings)
    assert outcome.failure == "", outcome.failure
    return int(outcome.ops["completed_ns"].max())


def compared(form: Form, ranks: int, buffer_bytes: int) -> tuple[Point, float, int]:
    """One line: the operation whose largest buffer is `buffer_bytes`, in closed form and in virtual time."""
    size = buffer_bytes // ranks if form.collective in ("all_gather", "gather") else buffer_bytes
    point = Point(ranks, form.per_host, size)
    return point, form.closed_ns(point), simulated_ns(form, point)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table; returns 30 where --check finds a difference above the tolerance."""
    parser = argparse.ArgumentParser(
        prog="python -m etloop.bench.closed_forms", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--mib", type=int, default=64, help="largest buffer of a rank (default 64)")
    parser.add_argument("--check", action="store_true", help="end with 30 when a difference is above 2 %%")
    parsed = parser.parse_args(arguments)
    print(
        f"{'collective':15s} {'algorithm':19s} {'shaping':7s}  {'n':>2s}  {'closed (us)':>12s}  {'virtual (us)':>12s}  difference"
    )
    worst = 0.0
    for form in FORMS:
        for ranks in form.ranks:
            _, closed, virtual = compared(form, ranks, parsed.mib * MIB)
            difference = virtual / closed - 1
            worst = max(worst, abs(difference))
            print(
                f"{form.collective:15s} {form.algorithm:19s} {form.shaping:7s}  {ranks:2d}  {closed / 1000:12.1f}  "
                f"{virtual / 1000:12.1f}  {100 * difference:+9.2f} %",
                flush=True,
            )
    print(f"greatest difference {100 * worst:.2f} %")
    return 30 if parsed.check and worst > TOLERANCE else 0


if __name__ == "__main__":
    sys.exit(main())
