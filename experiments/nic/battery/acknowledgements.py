"""Measures how many requests a responder answers with one acknowledgement."""

from __future__ import annotations

from typing import Final

from etloop.experiments.nic.battery.experiment import Experiment
from etloop.experiments.nic.link.figures import Figure, count, latency, unseen, word
from etloop.experiments.nic.link.probe import ACK, Probe

BURST: Final = 64
REPEATS: Final = 5
SINGLES: Final = 15


def run(probe: Probe) -> tuple[Figure, ...]:
    """Send bursts of 64 requests that ask for an ACK, then a burst of 64 that do not."""
    connection = probe.connect()
    psn = 0
    single_ns: list[int] = []
    for _ in range(SINGLES):
        left_ns = connection.write(psn)
        psn += 1
        answer = connection.until(lambda arrival: arrival.packet.opcode == ACK)
        if answer is not None:
            single_ns.append(answer.at_ns - left_ns)
        connection.collect()
    answers: list[int] = []
    for _ in range(REPEATS):
        for _ in range(BURST):
            connection.write(psn)
            psn += 1
        answers.append(sum(arrival.packet.opcode == ACK for arrival in connection.collect()))
    for _ in range(BURST):
        connection.write(psn, ack=False)
        psn += 1
    unasked = sum(arrival.packet.opcode == ACK for arrival in connection.collect())
    connection.close()
    round_trip = latency(
        "request_to_ack", single_ns, 0, probe.wire.resolution_ns, "no request was acknowledged"
    )
    unasked_figure = word("unasked_requests", "answered" if unasked else "not answered", 1)
    if not any(answers):
        return unseen("requests_per_ack", "ratio", "no burst was acknowledged"), round_trip, unasked_figure
    least, most = BURST / max(answers), BURST / max(min(answers), 1)
    if least == most and least == int(least):
        return count("requests_per_ack", int(least), "ratio", len(answers)), round_trip, unasked_figure
    middle = Figure(
        "requests_per_ack", "ratio", BURST * len(answers) / sum(answers), least, most, "", len(answers)
    )
    return middle, round_trip, unasked_figure


EXPERIMENT: Final = Experiment(
    name="acknowledgements",
    provokes=f"{REPEATS} bursts of {BURST} writes that all ask for an acknowledgement, {BURST} that do not, "
    f"{SINGLES} single ones",
    reads="number of acknowledgements for each burst and the time to one, which includes the round trip on the link",
    clause="IBTA 1.4 volume 1, 9.7.5.1: AckReq requests an ACK, one ACK may cover several",
    figures={
        "requests_per_ack": "ratio",
        "request_to_ack": "ns",
        "unasked_requests": "",
    },
    run=run,
)
