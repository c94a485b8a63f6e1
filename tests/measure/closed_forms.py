"""Compare every algorithm in virtual time with its closed form: `python -m tests.measure.closed_forms [--check]`.

The network is ideal: every port sends and receives one packet at a time at link rate, all paths have the same latency, and no
packet is lost. docs/closed_forms.md derives the formulas; this is the same as code.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.traffic.collectives.algorithms.deepep import TOKEN
from etloop.traffic.collectives.algorithms.halving_doubling import Folding
from etloop.traffic.collectives.core.hosts import hosts_of, tree_place
from etloop.traffic.simulation import SimulationSettings, simulate
from etloop.workload.trace.trace import CollectiveKind
from tests.measure.harness import Bar, Options, Row, Values, measure, table
from tests.measure.one_operation import plan_one_operation

LINK_BPS: Final = 100_000_000_000
SCALE_UP_BPS: Final = 3_600_000_000_000
LATENCY_NS: Final = 2_000
SCALE_UP_LATENCY_NS: Final = 1_000
TRANSMIT_QUEUE_NS: Final = 1_000
PATH_MTU: Final = 4096
PACKET_OVERHEAD_BYTES: Final = 20 + 14 + 20 + 8 + 12 + 4 + 4
"""Bytes of preamble and gap, Ethernet, IPv4, UDP, BTH, ICRC, FCS."""
RETH_BYTES: Final = 16
ACK_BYTES: Final = PACKET_OVERHEAD_BYTES + 4
TOLERANCE: Final = 0.02
MIB: Final = 1 << 20
TREE_CHUNK_BYTES: Final = MIB // 2
"""Chunk of NCCL's trees and chains with protocol Simple."""


def wire_ns(message_bytes: float) -> float:
    """Return w(m): time in ns that m bytes of payload occupy a link, headers of full packets included."""
    return message_bytes * (1 + PACKET_OVERHEAD_BYTES / PATH_MTU) * 8e9 / LINK_BPS


def inside_ns(message_bytes: float) -> float:
    """Return u(m): time in ns that m bytes occupy a rank's scale-up link."""
    return message_bytes * 8e9 / SCALE_UP_BPS


@dataclass(frozen=True, slots=True)
class Point:
    """One operation: n ranks, g per host, S input bytes of each rank (the own shard of an all-gather)."""

    ranks: int
    per_host: int
    size_bytes: int

    @property
    def hosts(self) -> int:
        """Return h, the number of hosts."""
        return self.ranks // self.per_host

    @property
    def block(self) -> float:
        """Return S / n, the bytes of a block."""
        return self.size_bytes / self.ranks

    @property
    def steps(self) -> int:
        """Return ceil(lg n)."""
        return (self.ranks - 1).bit_length()


@dataclass(frozen=True, slots=True)
class Form:
    """One algorithm of one collective, with the terms of its time for large messages."""

    collective: str
    algorithm: str
    shaping: str
    bandwidth: Callable[[Point], float]
    """Bandwidth term in ns."""
    latencies: Callable[[Point], float]
    """Number of network latencies in sequence."""
    ranks: tuple[int, ...] = (4, 5, 8)
    per_host: int = 1
    pins: str = ""
    """Further keys of the collective's section."""

    def closed_ns(self, point: Point) -> float:
        """Return T, the time in ns."""
        return self.bandwidth(point) + self.latencies(point) * LATENCY_NS


def _blocks_with_bit(ranks: int, bit: int) -> int:
    return sum(way >> bit & 1 for way in range(ranks))


def _halved_all_reduce(point: Point) -> float:
    """Return ns of halves of the buffer down to 1/p and back, p the power of two inside; a folded pair moves all of it
    before and after.
    """
    fold = Folding(point.ranks)
    exchanged = 2 * (fold.inside - 1) / fold.inside * point.size_bytes
    return wire_ns(exchanged + (2 * point.size_bytes if fold.folded else 0))


def _longest_path_blocks(
    fold: Folding, begin: int, distances: Iterable[int], sent: Callable[[int, int], int]
) -> int:
    """Return the number of blocks in sequence on the longest path through the steps.

    Numbers of two positions begin when `begin` blocks have arrived; a pair's step lasts as long as the longer of its
    halves (`sent(number, distance)`).
    """
    end_blocks = [begin if number < fold.folded else 0 for number in range(fold.inside)]
    for distance in distances:
        step_blocks = [sent(number, distance) for number in range(fold.inside)]
        pairs = [(number, number ^ distance) for number in range(fold.inside)]
        end_blocks = [
            max(end_blocks[low], end_blocks[high]) + max(step_blocks[low], step_blocks[high])
            for low, high in pairs
        ]
    return max(end_blocks)


def _halved_reduce_scatter(point: Point) -> float:
    """Return ns if in each step a number sends the blocks of its peer's half of the window.

    A folded pair moves a whole buffer before and a block after.
    """
    fold = Folding(point.ranks)

    def blocks_sent(number: int, distance: int) -> int:
        first = (number ^ distance) & -distance
        return len(fold.stands_for(range(first, first + distance)))

    distances = [1 << step for step in reversed(range(fold.steps))]
    blocks = _longest_path_blocks(fold, point.ranks, distances, blocks_sent) + (1 if fold.folded else 0)
    return wire_ns(blocks * point.block)


def _doubled_all_reduce(point: Point) -> float:
    """Return ns of the whole buffer in every step, and before and after for a folded pair."""
    fold = Folding(point.ranks)
    return wire_ns((fold.steps + (2 if fold.folded else 0)) * point.size_bytes)


def _doubled_all_gather(point: Point) -> float:
    """Return ns if in each step a number sends all shards that it holds; a folded pair moves one before and all others
    after.
    """
    fold = Folding(point.ranks)

    def shards_sent(number: int, distance: int) -> int:
        first = number & -distance
        return len(fold.stands_for(range(first, first + distance)))

    shards = _longest_path_blocks(fold, 1, [1 << step for step in range(fold.steps)], shards_sent)
    return wire_ns((shards + (point.ranks - 1 if fold.folded else 0)) * point.size_bytes)


def _busiest_of_trees(point: Point) -> float:
    """Return ns of the busiest position in both trees together.

    It sends half of the buffer in each tree. The hops to the leaves are added: its link is idle until the first chunk
    arrives from the leaves, and they wait for the last chunk.
    """
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
    """Return ns of an all-to-all with one write per token: a packet that is not full, a RETH, and an acknowledgement
    back.
    """
    tokens = (point.ranks - 1) * point.block / TOKEN.dispatch_bytes
    packets = -(-TOKEN.dispatch_bytes // PATH_MTU)
    token_bytes = TOKEN.dispatch_bytes + packets * PACKET_OVERHEAD_BYTES + RETH_BYTES + ACK_BYTES
    return tokens * token_bytes * 8e9 / LINK_BPS


def _both_phases(point: Point) -> float:
    """Return ns of every block but the own one twice: for the reduction, and back."""
    return wire_ns(2 * (point.ranks - 1) * point.block)


def _blocks(point: Point) -> float:
    """Return ns of every block but the own one."""
    return wire_ns((point.ranks - 1) * point.block)


def _buffers(point: Point) -> float:
    """Return ns of the input buffers of all other ranks."""
    return wire_ns((point.ranks - 1) * point.size_bytes)


def _bruck(point: Point) -> float:
    blocks = sum(_blocks_with_bit(point.ranks, step) for step in range(point.steps))
    return wire_ns(blocks * point.block)


def _chunks_along(point: Point) -> float:
    """Return ns of the buffer, chunk after chunk along a chain."""
    return wire_ns(point.size_bytes + (point.ranks - 2) * TREE_CHUNK_BYTES)


def _by_steps(point: Point) -> float:
    return wire_ns(point.steps * point.size_bytes)


def _two_levels(point: Point) -> float:
    inside = inside_ns(2 * (point.per_host - 1) * point.size_bytes / point.per_host)
    return inside + wire_ns(2 * (point.hosts - 1) * point.block)


def _two_level_exchange(point: Point) -> float:
    inside = inside_ns((point.per_host - 1) * point.hosts * point.block)
    return inside + wire_ns((point.hosts - 1) * point.per_host * point.block)


def _other_rails(point: Point) -> float:
    return wire_ns((point.ranks - point.per_host) * point.block)


def _times(count: int) -> Callable[[Point], float]:
    return lambda _: count


def _rounds(count: int) -> Callable[[Point], float]:
    return lambda point: count * (point.ranks - 1)


def _steps(count: int) -> Callable[[Point], float]:
    return lambda point: count * point.steps


def _ranks(point: Point) -> float:
    return point.ranks


_FOLDED: Final = (4, 5, 6, 8)
_ON_CHAINS: Final = "protocol: simple, channels: 1"

FORMS: Final = (
    Form("all_reduce", "ring", "plain", _both_phases, _rounds(4)),
    Form("all_reduce", "ring", "nccl", _both_phases, _times(0)),
    Form("all_gather", "ring", "plain", _buffers, _rounds(2)),
    Form("reduce_scatter", "ring", "plain", _blocks, _rounds(2)),
    Form("all_gather", "ring", "nccl", _buffers, _times(0)),
    Form("reduce_scatter", "ring", "nccl", _blocks, _times(0)),
    Form("all_gather", "bidirectional_ring", "nccl", _buffers, _times(0), pins="channels: 2"),
    Form("reduce_scatter", "bidirectional_ring", "nccl", _blocks, _times(0), pins="channels: 2"),
    Form("all_reduce", "bidirectional_ring", "nccl", _both_phases, _times(0), pins="channels: 2"),
    Form("all_reduce", "gloo_ring", "gloo", _both_phases, _rounds(2)),
    Form("all_reduce", "halving_doubling", "plain", _halved_all_reduce, _steps(4), _FOLDED),
    Form("reduce_scatter", "halving_doubling", "plain", _halved_reduce_scatter, _steps(3), (4, 5, 8, 12)),
    Form("all_reduce", "recursive_doubling", "plain", _doubled_all_reduce, _steps(2), _FOLDED),
    Form("all_gather", "recursive_doubling", "plain", _doubled_all_gather, _steps(3), (4, 5, 7, 8)),
    Form("all_gather", "pat", "plain", _buffers, _steps(2)),
    Form("reduce_scatter", "pat", "plain", _blocks, _steps(2)),
    Form(
        "all_reduce",
        "tree",
        "nccl",
        _busiest_of_trees,
        _steps(4),
        _FOLDED,
        pins="protocol: simple, channels: 2",
    ),
    Form("all_reduce", "direct", "plain", _both_phases, _times(4)),
    Form("all_gather", "direct", "plain", _buffers, _times(2)),
    Form("all_gather", "ce_direct", "plain", _buffers, _times(2)),
    Form("all_gather", "ce_ring", "plain", _buffers, _rounds(2), pins="channels: 2"),
    Form("all_gather", "rail_ring", "plain", _buffers, _rounds(2)),
    Form("reduce_scatter", "direct", "plain", _blocks, _times(2)),
    Form("reduce_scatter", "rail_a2a", "plain", _blocks, _times(2)),
    Form("all_to_all", "direct", "plain", _blocks, _times(2)),
    Form("all_to_all", "ce_direct", "plain", _blocks, _times(2)),
    Form("all_to_all", "deepep", "plain", _written_by_token, _times(2)),
    Form("all_gather", "pat", "nccl", _buffers, _steps(2)),
    Form("reduce_scatter", "pat", "nccl", _blocks, _steps(2)),
    Form("all_to_all", "p2p", "nccl", _blocks, _times(2)),
    Form("all_to_all", "pairwise", "plain", _blocks, _rounds(3)),
    Form("reduce_scatter", "pairwise", "plain", _blocks, _rounds(3)),
    Form("all_to_all", "scattered", "plain", _blocks, _times(2)),
    Form("all_to_all", "bruck", "plain", _bruck, _steps(2)),
    Form("all_gather", "bruck", "plain", _buffers, _steps(2)),
    Form("broadcast", "chain", "plain", _buffers, _ranks),
    Form("broadcast", "chain", "nccl", _chunks_along, _ranks, pins=_ON_CHAINS),
    Form("reduce", "chain", "plain", _buffers, _ranks),
    Form("reduce", "chain", "nccl", _chunks_along, _ranks, pins=_ON_CHAINS),
    Form("broadcast", "binomial", "plain", _by_steps, _steps(3)),
    Form("reduce", "binomial", "plain", _by_steps, _steps(2)),
    Form("gather", "binomial", "plain", _buffers, _steps(2)),
    Form("scatter", "binomial", "plain", _blocks, _steps(3)),
    Form("gather", "linear", "plain", _buffers, _times(3)),
    Form("scatter", "linear", "plain", _blocks, _times(3)),
    Form("all_reduce", "hierarchical", "plain", _two_levels, lambda p: 4 * (p.hosts - 1), (4, 8), 2),
    Form("all_to_all", "hierarchical", "plain", _two_level_exchange, _times(3), (4, 8), 2),
    Form("all_to_all", "pxn", "plain", _other_rails, _times(3), (4, 8), 2),
)


def scenario_of(form: Form) -> str:
    """Return the scenario that pins the algorithm."""
    pins = ", ".join(filter(None, (f"algorithm: {form.algorithm}", form.pins)))
    nics = f", nics_per_host: {form.per_host}" if form.per_host > 1 else ""
    return (
        f"mapping: {{placement: round_robin, ranks_per_host: {form.per_host}{nics}}}\n"
        f"scale_up: {{bandwidth: {SCALE_UP_BPS // 10**9}Gbps, latency: {SCALE_UP_LATENCY_NS}ns}}\n"
        "transport: {path_mtu: 4096, timeout: 10s, window_packets: 4096, ack_every: 16}\n"
        f"collectives: {{shaping: {form.shaping}, {form.collective}: {{{pins}}}}}\n"
    )


def simulated_ns(form: Form, point: Point) -> int:
    """Return the virtual time in ns of the operation, from the common start to the last completion."""
    kind = CollectiveKind[form.collective.upper()]
    plan = plan_one_operation(scenario_of(form), kind, point.ranks, point.size_bytes)
    assert form.algorithm in plan.tables.algorithms
    settings = SimulationSettings(
        latency_ns=LATENCY_NS, receiver_links=True, fair_links=True, transmit_queue_ns=TRANSMIT_QUEUE_NS
    )
    outcome = simulate(plan.assignments["a"], settings)
    assert outcome.failure == "", outcome.failure
    return int(outcome.ops["completed_ns"].max())


def compared(form: Form, ranks: int, buffer_bytes: int) -> tuple[Point, float, int]:
    """Return the operation whose largest buffer is `buffer_bytes`, with its time in ns by closed form and in virtual
    time.
    """
    size = buffer_bytes // ranks if form.collective in ("all_gather", "gather") else buffer_bytes
    point = Point(ranks, form.per_host, size)
    return point, form.closed_ns(point), simulated_ns(form, point)


COLUMNS: Final = table(
    "collective|15s; algorithm|19s; shaping|7s; n|>3; closed (us)|>13.1f; "
    "virtual (us)|>13.1f; difference %|>+13.2f"
)
OPTIONS: Final[Options] = {
    "--mib": {"type": int, "default": 64, "help": "largest buffer of a rank (default 64)"}
}


def rows(chosen: argparse.Namespace) -> Iterator[Values]:
    """Yield both times of every form with every number of ranks."""
    for form in FORMS:
        for ranks in form.ranks:
            _, closed_ns, virtual_ns = compared(form, ranks, chosen.mib * MIB)
            names = (form.collective, form.algorithm, form.shaping, ranks)
            figures = (closed_ns / 1e3, virtual_ns / 1e3, 100 * (virtual_ns / closed_ns - 1))
            yield (*names, *figures)


def bars(measured: Sequence[Row]) -> list[Bar]:
    """Return the largest difference."""
    worst = max(abs(row["difference %"]) for row in measured)
    return [(f"greatest difference {worst:.2f} %, bar {100 * TOLERANCE:.0f}", worst <= 100 * TOLERANCE)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare all forms; return the exit code."""
    return measure(__doc__, rows, COLUMNS, bars, OPTIONS, arguments)


if __name__ == "__main__":
    sys.exit(main())
