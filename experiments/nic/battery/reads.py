"""Measures a responder's answers to RDMA READs and atomics."""

from __future__ import annotations

from typing import Final

from etloop.experiments.nic.battery.experiment import Experiment
from etloop.experiments.nic.link.answers import answers
from etloop.experiments.nic.link.figures import Figure, latency, word
from etloop.experiments.nic.link.probe import READ_RESPONSES, Connection, Probe

REPEATS: Final = 15
PACKETS: Final = 8


def run(probe: Probe) -> tuple[Figure, ...]:
    """Ask for small READs, for one of eight packets twice, and for an atomic."""
    floor_ns = probe.floor_ns()
    connection = probe.connect()
    times_ns = []
    for psn in range(REPEATS):
        left_ns = connection.read(psn, 64)
        first = connection.until(lambda arrival: arrival.packet.opcode in READ_RESPONSES)
        if first is None:
            break
        times_ns.append(first.at_ns - left_ns)
    resolution_ns = probe.wire.resolution_ns
    latency_figure = latency("read_response", times_ns, floor_ns, resolution_ns, "no READ response arrived")
    if not times_ns:
        connection.close()
        return (latency_figure,)
    answered_first = _read(connection, REPEATS)
    answered_again = _read(connection, REPEATS)
    connection.fetch_add(REPEATS + PACKETS)
    result = answers(connection)
    connection.close()
    return (
        latency_figure,
        word("read_of_several", "answered whole" if answered_first else "not answered whole"),
        word("duplicate_read", "answered again" if answered_again else "not answered again"),
        word(
            "fetch_add",
            "answered" if result == [f"result {REPEATS + PACKETS}"] else ", ".join(result) or "silence",
        ),
    )


def _read(connection: Connection, psn: int) -> bool:
    """Return whether a READ of several packets is answered by exactly those packets."""
    connection.read(psn, PACKETS * connection.settings.path_mtu)
    return answers(connection) == [f"response {number}" for number in range(psn, psn + PACKETS)]


EXPERIMENT: Final = Experiment(
    name="reads",
    provokes=f"{REPEATS} READs of 64 bytes, one of {PACKETS} packets that is requested twice, and a fetch-and-add",
    reads="the time to the first response, and whether responses are complete and are repeated",
    clause="IBTA 1.4 volume 1, 9.7.5.1.5 and 9.7.5.1.6: duplicate READs are executed again",
    figures={
        "read_response": "ns",
        "read_of_several": "",
        "duplicate_read": "",
        "fetch_add": "",
    },
    run=run,
)
