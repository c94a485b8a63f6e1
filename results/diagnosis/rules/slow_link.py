"""Finds ports that drain below the rate that the rig or the topology states, or below their peers.

Decides what a drain rate is: bytes that left a queue between two readings at both of which it was not empty, while no
pause held it. A port whose host states a greater rate than the device has is slow by description alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from etloop.results.diagnosis.rule import Found, found, no_evidence
from etloop.results.schema.findings import Fact, Finding, FindingKind, Place, PlaceKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.results.diagnosis.evidence import Evidence


def drain_bps(evidence: Evidence) -> NDArray[np.float64]:
    """Return the rate at which each port drained while its queues held packets (float64, bit/s), NaN if never."""
    samples, lanes = evidence.samples, evidence.lanes
    port = lanes.port[samples.lane]
    queued, sent, paused = (samples.value(name) for name in ("queued_bytes", "tx_bytes", "paused_ns"))
    step = (samples.lane[1:] == samples.lane[:-1]) & (queued[1:] > 0) & (queued[:-1] > 0)
    step &= np.nan_to_num(paused[1:] - paused[:-1]) == 0
    rows = np.flatnonzero(step)
    gap_ns = samples.time_ns[rows + 1] - samples.time_ns[rows]
    rate = (sent[rows + 1] - sent[rows]) * 8e9 / np.maximum(gap_ns, 1)
    rates = np.full(len(evidence.ports.names), np.nan)
    for number in np.unique(port[rows]).tolist():
        of_port = rate[port[rows] == number]
        rates[number] = float(np.percentile(of_port, 90)) if len(of_port) >= 3 else np.nan
    return rates


def look(evidence: Evidence) -> Found:
    """Return ports below the rate that the rig states for their cable."""
    kind = FindingKind.SLOW_LINK
    ports, hosts = evidence.ports, evidence.hosts
    if not ports.names:
        return no_evidence(kind, "no counters of the device")
    rates = drain_bps(evidence)
    findings = []
    for row in np.flatnonzero(ports.host >= 0).tolist():
        stated = float(hosts.link_bps[ports.host[row]])
        if rates[row] < 0.97 * stated:
            place = Place(PlaceKind.PORT, ports.names[row], ports.peers[row])
            sentence = (
                f"{place} drains at {rates[row] / 1e9:.4g} Gb/s; the rig states {stated / 1e9:.4g} Gb/s"
            )
            fact = Fact("drain_bps", float(rates[row]), "bit/s", stated)
            findings.append(
                Finding(kind, (place,), sentence, (fact,), 1.0, "reseat the cable, check speed and FEC")
            )
    return found(kind, tuple(findings))
