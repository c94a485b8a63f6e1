"""What a responder does about a packet that is missing: how soon it says so, how often, and whether it keeps what follows."""

from __future__ import annotations

from typing import Final

from etloop.experiments.nic.battery.experiment import Experiment
from etloop.experiments.nic.link.figures import Finding, by_number, latency, unseen, word
from etloop.experiments.nic.link.probe import ACK, NAK_SEQUENCE, Connection, Probe, distance
from etloop.experiments.nic.link.wire import Arrival

REPEATS: Final = 15
EARLY: Final = 4
"""Packets behind the gap."""


def run(probe: Probe) -> tuple[Finding, ...]:
    """Leave a packet out, send four behind it, and then the one that is missing."""
    floor_ns = probe.floor_ns()
    times_ns: list[int] = []
    naks: list[int] = []
    kept: list[bool] = []
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
        reached = _reached(connection)
        if reached is None:
            break
        kept.append(reached >= psn + EARLY)
        # Whatever was kept, what follows is where the card is.
        psn = reached + 1
    connection.close()
    said = "once" if set(naks) == {1} else "for every early packet" if set(naks) == {EARLY} else None
    said = said or f"{min(naks)} to {max(naks)} times"
    resolution_ns = probe.wire.resolution_ns
    repeats = by_number("gap", "Time from a gap to the NAK", "repeat (number)", "time (us)", times_ns, 1e3)
    found = latency("gap_to_nak", times_ns, floor_ns, resolution_ns, "no NAK came for a missing packet")
    if not kept:
        return (
            found,
            word("naks_per_gap", said, len(naks)),
            unseen("early_packets", "", "no answer to what was missing"),
            *repeats,
        )
    early = "kept" if all(kept) else "dropped" if not any(kept) else "kept at times"
    return found, word("naks_per_gap", said, len(naks)), word("early_packets", early, len(kept)), *repeats


def _is_nak(arrival: Arrival) -> bool:
    return arrival.packet.opcode == ACK and arrival.packet.syndrome == NAK_SEQUENCE


def _reached(connection: Connection) -> int | None:
    """Up to which packet the card has acknowledged; None if it says nothing."""
    answers = [
        distance(one.packet.psn, connection.settings.receive_psn)
        for one in connection.collect()
        if one.packet.opcode == ACK and one.packet.syndrome & 0xE0 == 0
    ]
    return max(answers) if answers else None


EXPERIMENT: Final = Experiment(
    name="gap",
    provokes=f"{REPEATS} gaps of one packet, with {EARLY} packets behind each; then the missing one",
    reads="NAKs and their times, and up to where the card acknowledges when the gap is filled",
    clause="IBTA 1.4 volume 1, 9.7.5.2.8: one NAK a gap, what follows it is dropped",
    figures={
        "gap_to_nak": "ns",
        "naks_per_gap": "",
        "early_packets": "",
    },
    run=run,
)
