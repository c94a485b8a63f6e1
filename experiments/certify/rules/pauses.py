"""Looks for drops and odd pauses in incasts: a lossless class pauses its senders, by one priority, and drops nothing."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from etloop.experiments.certify.rules.parts import Answer, host_names, switches_or_cables
from etloop.results.schema.findings import Fact, Finding, FindingKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.results.diagnosis.evidence import Evidence


def look(evidence: Evidence) -> Answer:
    """Return switches and cables that drop lossless packets or pause another priority."""
    lanes = evidence.lanes
    if not len(lanes.port):
        return Answer(untested="no counters of the device's queues")
    drops = _by_port(evidence, "queue_dropped_packets") + _by_port(evidence, "group_dropped_packets")
    pauses = lanes.counter("pfc_tx")
    findings = [*_dropping(evidence, drops), *_other_priority(evidence, pauses)]
    per_port = _by_port(evidence, "pfc_tx")
    figures = {
        name: {"pauses": float(per_port[port]), "dropped": float(drops[port])}
        for port, name in host_names(evidence).items()
    }
    untested = ""
    if not per_port.any() and not drops.any():
        most = np.nan_to_num(lanes.counter("queue_watermark_bytes"))
        untested = (
            f"no queue was paused; the longest queue held {float(np.max(most, initial=0)) / 1e3:.0f} kB"
        )
    return Answer(tuple(findings), figures, untested)


def _by_port(evidence: Evidence, counter: str) -> NDArray[np.float64]:
    values = np.nan_to_num(evidence.lanes.counter(counter))
    return np.bincount(evidence.lanes.port, values, len(evidence.ports.names)).astype(np.float64)


def _dropping(evidence: Evidence, drops: NDArray[np.float64]) -> list[Finding]:
    if not evidence.needs.needs_lossless:
        return []
    bad = np.flatnonzero(drops > 0).tolist()
    sent = _by_port(evidence, "queue_packets")
    tested = np.flatnonzero(sent > 0).tolist()
    findings = []
    for place, rows in switches_or_cables(evidence, bad, tested).items():
        count = float(drops[list(rows)].sum())
        sentence = f"{place} dropped {count:.0f} packets of a class that must be lossless"
        fact = Fact("dropped_packets", count, "packets", 0.0)
        remedy = "enable PFC for the priority of data, with headroom for the length of the cable"
        findings.append(Finding(FindingKind.BUFFER_DROPS, (place,), sentence, (fact,), 1.0, remedy))
    return findings


def _other_priority(evidence: Evidence, pauses: NDArray[np.float64]) -> list[Finding]:
    """Return switches that pause another priority than most switches do."""
    lanes, ports = evidence.lanes, evidence.ports
    rows = np.flatnonzero(np.nan_to_num(pauses) > 0).tolist()
    priority_of = {(ports.switch[lanes.port[row]], int(lanes.number[row])) for row in rows}
    votes = Counter(number for _, number in priority_of)
    if len(votes) < 2:
        return []
    expected, _ = votes.most_common(1)[0]
    bad = sorted({int(lanes.port[row]) for row in rows if lanes.number[row] != expected})
    tested = sorted({int(lanes.port[row]) for row in rows})
    findings = []
    for place, bad_ports in switches_or_cables(evidence, bad, tested).items():
        numbers = sorted(
            {
                int(lanes.number[row])
                for row in rows
                if lanes.port[row] in bad_ports and lanes.number[row] != expected
            }
        )
        sentence = (
            f"{place} pauses priority {', '.join(map(str, numbers))}; the other switches pause {expected}"
        )
        fact = Fact("priority", numbers[0], "", expected, len(bad_ports))
        remedy = f"map the priority group of data to priority {expected}"
        findings.append(Finding(FindingKind.DATA_CLASS, (place,), sentence, (fact,), 1.0, remedy))
    return findings
