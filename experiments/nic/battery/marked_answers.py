"""Measures a requester's reaction to acknowledgements that a switch marked."""

from __future__ import annotations

from typing import Final

from etloop.experiments.nic.battery.experiment import Experiment
from etloop.experiments.nic.link.figures import Figure, unseen, word
from etloop.experiments.nic.link.probe import CNP, Probe, is_data

PACKETS: Final = 400


def run(probe: Probe) -> tuple[Figure, ...]:
    """Have the card write, and mark every acknowledgement sent to it."""
    connection = probe.connect()
    connection.nic.write(connection.end, PACKETS * connection.settings.path_mtu)
    marked = notified = 0
    while marked < PACKETS:
        arrival = connection.until(lambda received: is_data(received) or received.packet.opcode == CNP)
        if arrival is None:
            break
        if is_data(arrival):
            connection.answer(arrival.packet.psn, ce=True)
            marked += 1
        else:
            notified += 1
    notified += sum(arrival.packet.opcode == CNP for arrival in connection.collect())
    connection.close()
    if not marked:
        return (unseen("marked_acknowledgements", "", "no packet of the write arrived"),)
    return (word("marked_acknowledgements", "notified" if notified else "ignored", marked),)


EXPERIMENT: Final = Experiment(
    name="marked_answers",
    provokes=f"a write of {PACKETS} packets, each acknowledged by a packet marked Congestion Experienced",
    reads="whether the card answers them with CNPs",
    clause="IBTA 1.4 annex A17.9: CNPs go to the sender of the marked packet; marked ACKs are not specified",
    figures={
        "marked_acknowledgements": "",
    },
    run=run,
)
