"""What a queue pair costs: memory each, and processor time of a packet, with 10 to 10,000 of them in one agent.

    python -m tests.measure.queue_pairs [--counts 10,100,1000,10000] [--check]

One rank sends messages of one and of four packets in turn on all its queue pairs, so that the state of a packet's queue pair
is not in the cache. The whole engine runs in virtual time, which excludes the kernel. Each count is measured in a process of
its own; memory is the growth of the process compared with the smallest count.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.traffic.simulation import SimulationSettings, simulate
from tests.measure.harness import (
    Bar,
    Options,
    Row,
    Values,
    in_fresh_process,
    integers,
    measure,
    peak_bytes,
    table,
)
from tests.support.traffic.assignments_by_hand import TRANSPORT, HandOp, assignment

COUNTS: Final = (10, 100, 1_000, 10_000)
MESSAGES: Final = 40_000
MOST_PER_CONNECTION: Final = 100
"""Most queue pairs of one rank to another; further ones go to further ranks."""
MESSAGE_BYTES: Final = (4_096, 16_384)
PACKET_COST_BAR: Final = 2.0
"""Largest ratio of the CPU time of a packet with the most queue pairs to that with the fewest."""
MEMORY_BAR_BYTES: Final = 8_192
"""Largest memory of one queue pair, both ends together."""
TURNS: Final = 3


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost with one number of queue pairs."""

    queue_pairs: int
    packets: int
    packet_ns: float
    """CPU time of a packet, both ends and the virtual network; the best of several turns."""
    peak_bytes: int
    """Peak memory of the process."""


def cost_of(queue_pairs: int) -> Cost:
    """Return the cost with this number of queue pairs, measured in this process."""
    peers = -(-queue_pairs // MOST_PER_CONNECTION)
    qps_per_peer = queue_pairs // peers
    # Message k goes to peer k mod n, the zero-based index among that peer's; sizes change with every round.
    sizes = [MESSAGE_BYTES[k // peers % len(MESSAGE_BYTES)] for k in range(MESSAGES)]
    sends = tuple(
        HandOp("send", size, peer=1 + k % peers, sequence=k // peers) for k, size in enumerate(sizes)
    )
    receives = [
        tuple(HandOp("recv", size, peer=0, sequence=k) for k, size in enumerate(sizes[peer::peers]))
        for peer in range(peers)
    ]
    transport = replace(TRANSPORT, path_mtu_bytes=4096, timeout_ns=640_000_000, window_packets=0)
    job = assignment((sends, *receives), qps_each=qps_per_peer, transport=transport)
    best_ns = 0
    packets = 0
    for _ in range(TURNS):
        begin_ns = time.process_time_ns()
        outcome = simulate(job, SimulationSettings())
        spent_ns = time.process_time_ns() - begin_ns
        if outcome.failure:
            raise SystemExit(outcome.failure)
        packets = outcome.packets
        best_ns = min(best_ns or spent_ns, spent_ns)
    return Cost(qps_per_peer * peers, packets, best_ns / packets, peak_bytes())


COLUMNS: Final = table(
    "queue pairs|>11; packets|>9; ns per packet|>15.0f; over the fewest|>17.2f; bytes per queue pair|>22"
)
OPTIONS: Final[Options] = {
    "--counts": {
        "type": integers,
        "default": ",".join(map(str, COUNTS)),
        "help": "numbers of queue pairs, with commas",
    }
}


def rows(chosen: argparse.Namespace) -> Iterator[Values]:
    """Yield the cost of every count, compared with the first."""
    least: Cost | None = None
    for count in chosen.counts:
        cost = in_fresh_process(cost_of, count)
        least = least or cost
        more = cost.queue_pairs - least.queue_pairs
        pair_bytes = max(cost.peak_bytes - least.peak_bytes, 0) // more if more >= 1_000 else None
        ratio = cost.packet_ns / least.packet_ns
        figures = (cost.queue_pairs, cost.packets, cost.packet_ns, ratio, pair_bytes)
        yield figures


def bars(measured: Sequence[Row]) -> list[Bar]:
    """Return the highest cost of a packet and of a queue pair."""
    ratio = max(row["over the fewest"] for row in measured)
    pair_bytes = max(row["bytes per queue pair"] or 0 for row in measured)
    return [
        (
            f"CPU time of a packet: {ratio:.2f} times that of the fewest, bar {PACKET_COST_BAR}",
            ratio <= PACKET_COST_BAR,
        ),
        (
            f"memory of a queue pair: {pair_bytes} bytes, bar {MEMORY_BAR_BYTES}",
            pair_bytes <= MEMORY_BAR_BYTES,
        ),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure all counts; return the exit code."""
    return measure(__doc__, rows, COLUMNS, bars, OPTIONS, arguments)


if __name__ == "__main__":
    sys.exit(main())
