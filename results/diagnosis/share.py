"""Estimates which share of the completion time a finding explains, where its rule did not.

Decides the estimates: a slow port costs the time that its queue was not empty, times what it lacks of its rate; a pause costs
the time that it lasted; an incast lasts as long as the queue of its port is not empty; a mapping costs the time that packets
wait between switches, times the share of their bytes that could stay on one. Other kinds have no estimate.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.results.schema.findings import Finding, FindingKind, PlaceKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.results.diagnosis.evidence import Evidence

    Floats = NDArray[np.float64]

_PAUSED: Final = frozenset({FindingKind.PFC_DEADLOCK, FindingKind.PFC_STORM})


def with_shares(findings: tuple[Finding, ...], evidence: Evidence) -> tuple[Finding, ...]:
    """Return the findings with `share` where it can be estimated and is not known."""
    times = evidence.samples.time_ns
    whole_ns = evidence.duration_ns or (int(times.max() - times.min()) if len(times) else 0)
    if not whole_ns or not evidence.ports.names:
        return findings
    queued = np.minimum(queued_ns(evidence) / whole_ns, 1.0)
    paused = np.minimum(_paused_ns(evidence) / whole_ns, 1.0)
    row_of_port = {name: row for row, name in enumerate(evidence.ports.names)}
    result = []
    for finding in findings:
        rows = [
            row_of_port[end]
            for place in finding.places
            for end in (place.name, place.peer)
            if end in row_of_port
        ]
        share = None
        if finding.kind is FindingKind.SLOW_LINK:
            share = _most(queued, rows, _lacking(finding))
        elif finding.kind is FindingKind.JOB_INCAST:
            share = _most(queued, rows)
        elif finding.kind is FindingKind.PLACEMENT:
            between = np.flatnonzero(evidence.ports.peer_row >= 0).tolist()
            share = _most(queued, between, _avoidable(finding))
        elif finding.kind in _PAUSED:
            hosts = [name.name for name in finding.places if name.kind is PlaceKind.HOST]
            rows += [row for row, peer in enumerate(evidence.ports.peers) if peer in hosts]
            share = _most(paused, rows)
        result.append(finding if finding.share is not None else replace(finding, share=share))
    return tuple(result)


def queued_ns(evidence: Evidence) -> Floats:
    """Return how long the fullest queue of each port was not empty, by its samples (float64, one per port)."""
    samples = evidence.samples
    queued = samples.value("queued_bytes") > 0
    is_step = (samples.lane[1:] == samples.lane[:-1]) & queued[1:] & queued[:-1]
    gaps_ns = np.diff(samples.time_ns)[is_step].astype(np.float64)
    of_lane = np.bincount(samples.lane[1:][is_step], gaps_ns, len(evidence.lanes.port)).astype(np.float64)
    return _largest_of_port(evidence, of_lane)


def _paused_ns(evidence: Evidence) -> Floats:
    return _largest_of_port(evidence, np.nan_to_num(evidence.lanes.counter("queue_paused_ns")))


def _largest_of_port(evidence: Evidence, of_lane: Floats) -> Floats:
    result = np.zeros(len(evidence.ports.names))
    np.maximum.at(result, evidence.lanes.port, of_lane)
    return result


def _lacking(finding: Finding) -> float:
    """Return the share of its stated rate that a port lacks, by the first fact with an expected rate."""
    for fact in finding.evidence:
        if fact.expected and fact.unit == "bit/s":
            return max(0.0, 1.0 - fact.value / fact.expected)
    return 0.0


def _avoidable(finding: Finding) -> float:
    """Return the share of the bytes between switches that another mapping would not send."""
    for fact in finding.evidence:
        if fact.expected is not None and fact.unit == "bytes" and fact.value > 0:
            return max(0.0, 1.0 - fact.expected / fact.value)
    return 0.0


def _most(shares: Floats, rows: list[int], factor: float = 1.0) -> float | None:
    return float(shares[rows].max()) * factor if rows else None
