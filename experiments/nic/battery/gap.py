"""Measures a responder's reaction to a missing packet: NAK latency, number of NAKs, and whether it keeps the packets
after the gap.
"""

from __future__ import annotations

from typing import Final

from etloop.experiments.nic.battery.experiment import Experiment
from etloop.experiments.nic.link.figures import Finding, by_number, latency, unseen, word
from etloop.experiments.nic.link.probe import ACK, NAK_SEQUENCE, Connection, Probe, distance
from etloop.experiments.nic.link.wire import Arrival

REPEATS: Final = 15
EARLY: Final = 4
"""Packets sent after the gap."""


def run(probe: Probe) -> tuple[Finding, ...]:
    """Leave a packet out, send four packets after it, and then the missing one."""
    floor_ns = probe.floor_ns()
    times_ns: list[int] = []
    naks: list[int] = []
    early_kept: list[bool] = []
    connection = probe.connect()
    psn = 0
    for _ in range(REPEATS):
        left_ns = connection.write(psn + 1)
        first = connection.until(_is_nak)
        if first is not None:
            times_ns.append(first.at_ns - left_ns)
        for number in range(2, EARLY + 1):
            connection.write(psn + number)
        naks.append((first is not None) + sum(map(_is_nak, connection.collect())))
        connection.write(psn)
        reached = _last_acknowledged(connection)
        if reached is None:
            break
        early_kept.append(reached >= psn + EARLY)
        # Continue with the PSN that the card expects, whatever it kept.
        psn = reached + 1
    connection.close()
    naks_word = "once" if set(naks) == {1} else "for every early packet" if set(naks) == {EARLY} else None
    naks_word = naks_word or f"{min(naks)} to {max(naks)} times"
    resolution_ns = probe.wire.resolution_ns
    repeats = by_number("gap", "Time from a gap to the NAK", "repeat (number)", "time (us)", times_ns, 1e3)
    nak_figure = latency("gap_to_nak", times_ns, floor_ns, resolution_ns, "no NAK came for a missing packet")
    if not early_kept:
        return (
            nak_figure,
            word("naks_per_gap", naks_word, len(naks)),
            unseen("early_packets", "", "no acknowledgement after the missing packet"),
            *repeats,
        )
    early = "kept" if all(early_kept) else "dropped" if not any(early_kept) else "kept at times"
    return (
        nak_figure,
        word("naks_per_gap", naks_word, len(naks)),
        word("early_packets", early, len(early_kept)),
        *repeats,
    )


def _is_nak(arrival: Arrival) -> bool:
    return arrival.packet.opcode == ACK and arrival.packet.syndrome == NAK_SEQUENCE


def _last_acknowledged(connection: Connection) -> int | None:
    """Return the number of the last packet that the card has acknowledged; None if it sent no ACK."""
    acknowledged = [
        distance(arrival.packet.psn, connection.settings.receive_psn)
        for arrival in connection.collect()
        if arrival.packet.opcode == ACK and arrival.packet.syndrome & 0xE0 == 0
    ]
    return max(acknowledged) if acknowledged else None


EXPERIMENT: Final = Experiment(
    name="gap",
    provokes=f"{REPEATS} gaps of one packet, with {EARLY} packets behind each; then the missing one",
    reads="NAKs, their times, and the PSN that the card acknowledges once the gap is filled",
    clause="IBTA 1.4 volume 1, 9.7.5.2.8: one NAK a gap, packets behind it are dropped",
    figures={
        "gap_to_nak": "ns",
        "naks_per_gap": "",
        "early_packets": "",
    },
    run=run,
)
