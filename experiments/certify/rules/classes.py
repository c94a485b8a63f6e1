"""Decides which queue the packets of one DSCP leave by, port by port.

Decides the expected queue: the one of most switches, because a certification needs no description of the device. A switch
that uses another queue hides its ECN marks and pauses from later steps.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.experiments.certify.rules.parts import Answer, host_names, switches_or_cables
from etloop.results.schema.findings import Fact, Finding, FindingKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.results.diagnosis.evidence import Evidence

LEAST_PACKETS: Final = 20
"""Packets in one queue of a port from which on it counts as used."""


def look_at_data(evidence: Evidence) -> Answer:
    """Return switches and cables by which data leave by another queue than elsewhere."""
    return _look(evidence, FindingKind.DATA_CLASS, evidence.needs.data_dscp)


def look_at_notifications(evidence: Evidence) -> Answer:
    """Return the same for the DSCP of congestion notifications, which the data of this step have."""
    return _look(evidence, FindingKind.CNP_CLASS, evidence.needs.data_dscp)


def used_queue(evidence: Evidence) -> NDArray[np.int64]:
    """Return by port of the device the number of the queue that sent most packets (int64), -1 for an idle port."""
    lanes, ports = evidence.lanes, evidence.ports
    packets = np.nan_to_num(lanes.counter("queue_packets"))
    most = np.full(len(ports.names), float(LEAST_PACKETS - 1))
    queue = np.full(len(ports.names), -1, np.int64)
    for port, number, sent in zip(lanes.port.tolist(), lanes.number.tolist(), packets.tolist(), strict=True):
        if sent > most[port]:
            most[port], queue[port] = sent, number
    return queue


def _look(evidence: Evidence, kind: FindingKind, dscp: int) -> Answer:
    ports = evidence.ports
    queue = used_queue(evidence)
    tested = np.flatnonzero(queue >= 0).tolist()
    if not tested:
        return Answer(untested="no counters of the device's queues")
    votes = Counter({ports.switch[port]: int(queue[port]) for port in tested}.values())
    expected, count = votes.most_common(1)[0]
    bad = [port for port in tested if queue[port] != expected]
    others = sum(votes.values()) - count
    findings = []
    for place, rows in switches_or_cables(evidence, bad, tested).items():
        seen = int(queue[rows[0]])
        sentence = f"{place} sends DSCP {dscp} by queue {seen}; {count} of {count + others} switches use queue {expected}"
        facts = (Fact("queue", seen, "", expected, len(rows)),)
        remedy = f"map DSCP {dscp} to the class of queue {expected} on {ports.switch[rows[0]]}"
        ambiguous = count <= others
        findings.append(Finding(kind, (place,), sentence, facts, 1.0, remedy, is_ambiguous=ambiguous))
    names = host_names(evidence)
    figures = {names[port]: {"queue": float(queue[port])} for port in tested if port in names}
    return Answer(tuple(findings), figures if kind is FindingKind.DATA_CLASS else {})
