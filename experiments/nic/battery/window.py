"""How much a requester sends without an acknowledgement, and where it asks for one."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from etloop.contract.base.clock import NS_PER_MS, NS_PER_S
from etloop.experiments.nic.battery.experiment import Experiment
from etloop.experiments.nic.link.figures import Figure, count, unseen, word
from etloop.experiments.nic.link.probe import Connection, Probe, distance, is_data

MESSAGE_PACKETS: Final = 2048
QUIET_NS: Final = 5 * NS_PER_MS
"""Of a card that has begun to repeat."""
PATIENCE_NS: Final = NS_PER_S
"""For it to begin: longer than its timeout."""


def run(probe: Probe) -> tuple[Figure, ...]:
    """Have the card write a message of 2,048 packets, and answer nothing until it rests."""
    connection = probe.connect()
    connection.nic.write(connection.end, MESSAGE_PACKETS * connection.settings.path_mtu)
    seen = _unanswered(connection)
    connection.close()
    if not seen:
        return (unseen("unacknowledged_window", "packets", "nothing came"),)
    last = max(number for number, _ in seen) + 1
    asked = sorted({number for number, asks in seen if asks})
    window = count("unacknowledged_window", last)
    if last == MESSAGE_PACKETS:
        window = word("unacknowledged_window", f"more than {MESSAGE_PACKETS} packets")
    gaps = {
        later - earlier
        for earlier, later in pairwise([-1, *(one for one in asked if one < MESSAGE_PACKETS - 1)])
    }
    if not gaps:
        return window, word("ack_request_every", f"none within {last} packets")
    # The first may count from another packet than the others.
    usual = {gap for gap in gaps if gap == max(gaps)} if len(gaps) <= 2 else gaps
    if len(usual) == 1:
        return window, count("ack_request_every", usual.pop())
    return window, word("ack_request_every", f"{min(gaps)} to {max(gaps)} packets")


def _unanswered(connection: Connection) -> list[tuple[int, bool]]:
    """The packets that come, by number, and whether each asks for an acknowledgement.

    A card rests once it repeats what it sent. One that is only silent may still be on its way, as a virtual machine is that
    waits for a processor.
    """
    seen: list[tuple[int, bool]] = []
    numbers: set[int] = set()
    repeats = False
    while len(seen) < 2 * MESSAGE_PACKETS:
        patience_ns = QUIET_NS if repeats else PATIENCE_NS
        arrival = connection.receive(connection.wire.now_ns() + patience_ns)
        if arrival is None:
            break
        if is_data(arrival):
            number = distance(arrival.packet.psn, connection.settings.send_psn)
            repeats = repeats or number in numbers
            numbers.add(number)
            seen.append((number, arrival.packet.ack_req))
    return seen


EXPERIMENT: Final = Experiment(
    name="window",
    provokes=f"a write of {MESSAGE_PACKETS} packets that nobody acknowledges",
    reads="how many different packets come before it rests, and which of them ask for an acknowledgement",
    clause="Linux, drivers/infiniband/sw/rxe: 128 unacknowledged, every 64 asks; mlx5: every 2^log_ack_req_freq",
    figures={
        "unacknowledged_window": "packets",
        "ack_request_every": "packets",
    },
    run=run,
)
