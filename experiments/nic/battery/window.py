"""Measures how much a requester sends without an acknowledgement, and where it asks for one."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from etloop.contract.base.clock import NS_PER_MS, NS_PER_S
from etloop.experiments.nic.battery.experiment import Experiment
from etloop.experiments.nic.link.figures import Figure, count, unseen, word
from etloop.experiments.nic.link.probe import Connection, Probe, distance, is_data

MESSAGE_PACKETS: Final = 2048
QUIET_NS: Final = 5 * NS_PER_MS
"""Silence after which a card that has begun to retransmit is done."""
PATIENCE_NS: Final = NS_PER_S
"""Longest wait for the first retransmission: longer than its timeout."""


def run(probe: Probe) -> tuple[Figure, ...]:
    """Have the card write a message of 2,048 packets, and do not answer until it stops."""
    connection = probe.connect()
    connection.nic.write(connection.end, MESSAGE_PACKETS * connection.settings.path_mtu)
    packets = _receive_unanswered(connection)
    connection.close()
    if not packets:
        return (unseen("unacknowledged_window", "packets", "no packet arrived"),)
    last = max(number for number, _ in packets) + 1
    asking_numbers = sorted({number for number, asks in packets if asks})
    window = count("unacknowledged_window", last)
    if last == MESSAGE_PACKETS:
        window = word("unacknowledged_window", f"more than {MESSAGE_PACKETS} packets")
    gaps = {
        later - earlier
        for earlier, later in pairwise(
            [-1, *(number for number in asking_numbers if number < MESSAGE_PACKETS - 1)]
        )
    }
    if not gaps:
        return window, word("ack_request_every", f"none within {last} packets")
    # The first gap may be counted from another packet than the other gaps.
    usual = {gap for gap in gaps if gap == max(gaps)} if len(gaps) <= 2 else gaps
    if len(usual) == 1:
        return window, count("ack_request_every", usual.pop())
    return window, word("ack_request_every", f"{min(gaps)} to {max(gaps)} packets")


def _receive_unanswered(connection: Connection) -> list[tuple[int, bool]]:
    """Return the packets that arrive: number, and whether it asks for an acknowledgement.

    A card is done once it retransmits. A card that is only silent may still have packets in flight, for example a
    virtual machine that waits for a processor.
    """
    packets: list[tuple[int, bool]] = []
    numbers: set[int] = set()
    repeats = False
    while len(packets) < 2 * MESSAGE_PACKETS:
        patience_ns = QUIET_NS if repeats else PATIENCE_NS
        arrival = connection.receive(connection.wire.now_ns() + patience_ns)
        if arrival is None:
            break
        if is_data(arrival):
            number = distance(arrival.packet.psn, connection.settings.send_psn)
            repeats = repeats or number in numbers
            numbers.add(number)
            packets.append((number, arrival.packet.ack_req))
    return packets


EXPERIMENT: Final = Experiment(
    name="window",
    provokes=f"an unacknowledged write of {MESSAGE_PACKETS} packets",
    reads="number of different packets until it stops, and which of them request an acknowledgement",
    clause="Linux, drivers/infiniband/sw/rxe: 128 unacknowledged, every 64th requests an ACK; mlx5: every 2^log_ack_req_freq",
    figures={
        "unacknowledged_window": "packets",
        "ack_request_every": "packets",
    },
    run=run,
)
