"""What a queue pair costs: memory each, and processor time of a packet, with 10 to 10,000 of them in one agent.

    python -m tests.measure.queue_pairs [--counts 10,100,1000,10000] [--check]

One rank sends messages of one and of four packets in turn on all its queue pairs, so that the state of a packet's queue pair
is not in the cache. The whole engine runs in virtual time, which excludes the kernel. Each count is measured in a process of
its own; memory is the growth of the process compared with the smallest count. --check ends with 30 when a bar is not met.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.traffic.simulation import SimulationSettings, simulate
from tests.measure.processes import BAR_MISSED, measured_apart, peak_bytes, print_figures
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


def measure(queue_pairs: int) -> Cost:
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table of all counts; return 30 if --check finds a missed bar, else 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--counts", default=",".join(map(str, COUNTS)), help="how many queue pairs, with commas"
    )
    parser.add_argument("--check", action="store_true", help="end with 30 when a bar is not met")
    parser.add_argument("--only", type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.only is not None:
        print_figures(measure(chosen.only))
        return 0
    module = "tests.measure.queue_pairs"
    costs = [measured_apart(Cost, module, "--only", count) for count in chosen.counts.split(",")]
    least = costs[0]
    met = True
    print("queue pairs   packets   ns per packet   over the fewest   bytes per queue pair")
    for cost in costs:
        more = cost.queue_pairs - least.queue_pairs
        each_bytes = max(cost.peak_bytes - least.peak_bytes, 0) // more if more >= 1_000 else None
        ratio = cost.packet_ns / least.packet_ns
        met &= ratio <= PACKET_COST_BAR and (each_bytes or 0) <= MEMORY_BAR_BYTES
        bytes_text = "-" if each_bytes is None else str(each_bytes)
        print(
            f"{cost.queue_pairs:>11} {cost.packets:>9} {cost.packet_ns:>15.0f} {ratio:>17.2f} {bytes_text:>22}"
        )
    return 0 if met or not chosen.check else BAR_MISSED


if __name__ == "__main__":
    sys.exit(main())
