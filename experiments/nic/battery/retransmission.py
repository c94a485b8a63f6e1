"""Measures which packets a requester retransmits after a NAK, and how soon."""

from __future__ import annotations

from typing import Final

from etloop.experiments.nic.battery.experiment import Experiment
from etloop.experiments.nic.link.figures import Finding, by_number, latency, unseen, word
from etloop.experiments.nic.link.probe import NAK_SEQUENCE, Connection, Probe, distance, is_data

REPEATS: Final = 15
PACKETS: Final = 12
LOST: Final = 5
"""Distance of the packet that is reported lost."""


def run(probe: Probe) -> tuple[Finding, ...]:
    """Have the card write messages of twelve packets, and report the sixth of each lost."""
    floor_ns = probe.floor_ns()
    times_ns: list[int] = []
    kinds: list[str] = []
    connection = probe.connect()
    for number in range(REPEATS):
        first = number * PACKETS
        connection.nic.write(connection.end, PACKETS * connection.settings.path_mtu)
        if not _all_came(connection, first):
            break
        left_ns = connection.answer(first + LOST, NAK_SEQUENCE)
        again = connection.until(is_data)
        if again is None:
            kinds.append("nothing")
            break
        times_ns.append(again.at_ns - left_ns)
        kinds.append(_kind(connection, again.packet.psn, first))
        connection.answer(first + PACKETS - 1)
        connection.collect()
    connection.close()
    resolution_ns = probe.wire.resolution_ns
    latency_figure = latency(
        "nak_to_resend", times_ns, floor_ns, resolution_ns, "no packet was retransmitted after a NAK"
    )
    if not kinds:
        return unseen("recovery", "", "its messages arrived incomplete"), latency_figure
    recovery_word = kinds[0] if len(set(kinds)) == 1 else " or ".join(sorted(set(kinds)))
    curve = by_number(
        "retransmission",
        "Time from a NAK to the first retransmission",
        "repeat (number)",
        "time (us)",
        times_ns,
        1e3,
    )
    return word("recovery", recovery_word, len(kinds)), latency_figure, *curve


def _all_came(connection: Connection, first: int) -> bool:
    """Return whether all packets of a message have arrived."""
    missing = set(range(first, first + PACKETS))
    while missing:
        arrival = connection.until(is_data)
        if arrival is None:
            return False
        missing.discard(distance(arrival.packet.psn, connection.settings.send_psn))
    return True


def _kind(connection: Connection, psn: int, first: int) -> str:
    """Return the kind of retransmission, whose first packet has the number `psn`."""
    again = [psn] + [arrival.packet.psn for arrival in connection.collect() if is_data(arrival)]
    numbers = [distance(number, connection.settings.send_psn) - first for number in again]
    if numbers[0] != LOST:
        return f"from {numbers[0] - LOST:+d} of the lost one"
    if set(range(LOST, PACKETS)) <= set(numbers):
        return "go_back_n"
    return "selective_repeat" if set(numbers) == {LOST} else "some of the packets that followed"


EXPERIMENT: Final = Experiment(
    name="retransmission",
    provokes=f"{REPEATS} writes of {PACKETS} packets; a NAK reports the sixth of each as lost",
    reads="which packets are retransmitted, and the time from the NAK to the first",
    clause="IBTA 1.4 volume 1, 9.7: go-back-N; NVIDIA, Adaptive Retransmission: selective repeat if enabled",
    figures={
        "recovery": "",
        "nak_to_resend": "ns",
    },
    run=run,
)
