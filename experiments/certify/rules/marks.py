"""Measures ECN marking from queues that are filled and then released: at which lengths packets were marked.

Decides the estimate: the marking curve (Kmin, Kmax, Pmax) of greatest likelihood over the intervals between samples in which
the queue drained. Expected is the curve of most ports of the same place in the fabric.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.base.late_dataclass import dataclass
from etloop.experiments.certify.rules.classes import used_queue
from etloop.experiments.certify.rules.parts import Answer, host_names, switches_or_cables
from etloop.results.diagnosis.marking import MarkingCurve
from etloop.results.diagnosis.tiers import role_numbers
from etloop.results.schema.findings import Fact, Finding, FindingKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.results.diagnosis.evidence import Evidence

FACTOR: Final = 1.5
"""Factor between the Kmin of a port and that of its peers from which on it is wrong."""
LEAST_ERRORS: Final = 3.0
"""Standard errors of the Kmin of one port, by the spread of its peers, between the two as well."""
LEAST_EXPECTED: Final = 10.0
"""Marks that the peers' curve predicts from which on none at all is a fault."""
LEAST_SURE: Final = 100.0
"""Marks, found or expected, from which on the curve of a port is compared with that of its peers."""
LEAST_GAIN: Final = 25.0
"""Gain in log-likelihood of the curve of a port over that of its peers from which on they differ."""
LEAST_MARKS: Final = 20
"""Marks of a port from which on its curve is estimated."""
MOST_PACKETS: Final = 64
"""Packets between two readings of a queue above which its length in between is not known."""
LARGEST_FRAME_BYTES: Final = 4_200
"""Difference by which a reading in the middle of a frame is off."""
REMEDY: Final = "give the queue of data the ECN thresholds of the other switches"
_UNMARKED: Final = 0.03
"""Share of packets above Kmax that carry no mark."""
_MOSTLY: Final = 0.5
_STEPS: Final = 32


@dataclass(frozen=True, slots=True, eq=False)
class PortMarks:
    """Intervals of a port's data queue (float64, one per interval)."""

    length_bytes: NDArray[np.float64]
    """Mean of the lengths read before and after."""
    most_bytes: NDArray[np.float64]
    """Upper bound of the length: all arrivals before all departures."""
    packets: NDArray[np.float64]
    """Sent."""
    marked: NDArray[np.float64]
    total_marked: float
    """Packets that the queue marked in the whole step, also between the intervals."""


def look(evidence: Evidence, is_held: NDArray[np.bool_] | None = None) -> Answer:
    """Return switches and cables that mark at other queue lengths than their peers. `is_held`: by rig port, whether the host
    held its queue; then only ports to such hosts count, and only while no packet arrived."""
    by_port = marks_of_ports(evidence, is_held)
    curves = {port: fit_curve(marks) for port, marks in by_port.items() if marks.marked.sum() >= LEAST_MARKS}
    if is_held is not None and not curves:
        return Answer(untested="no reading found a held queue that marked packets")
    if not curves:
        return _marking_at_all(evidence)
    tier = role_numbers(evidence)
    findings = []
    for number in np.unique(tier).tolist():
        ports = [port for port in by_port if tier[port] == number]
        findings += _of_tier(evidence, {port: by_port[port] for port in ports}, curves)
    names = host_names(evidence)
    figures = {
        names[port]: {"kmin_bytes": curve.kmin_bytes, "kmax_bytes": curve.kmax_bytes}
        for port, curve in curves.items()
        if port in names
    }
    return Answer(tuple(findings), figures)


def _marking_at_all(evidence: Evidence) -> Answer:
    """Return the ports that marked no packet where their peers marked many, from totals alone."""
    lanes = evidence.lanes
    queue = used_queue(evidence)
    rows = np.flatnonzero(lanes.number == queue[lanes.port])
    packets, marked = (
        np.nan_to_num(lanes.counter(name)[rows]) for name in ("queue_packets", "queue_ecn_marked_packets")
    )
    if marked.sum() < LEAST_MARKS:
        longest = float(np.max(np.nan_to_num(lanes.counter("queue_watermark_bytes")), initial=0))
        return Answer(untested=f"no port marked packets; the longest queue held {longest / 1e3:.0f} kB")
    tier = role_numbers(evidence)[lanes.port[rows]]
    silent = []
    for number in np.unique(tier).tolist():
        of_tier = np.flatnonzero(tier == number)
        typical = float(np.median(marked[of_tier] / np.maximum(packets[of_tier], 1)))
        silent += [
            int(lanes.port[rows[row]])
            for row in of_tier.tolist()
            if marked[row] == 0 and packets[row] * typical >= LEAST_EXPECTED
        ]
    findings = []
    for place, ports in switches_or_cables(evidence, silent, lanes.port[rows].tolist()).items():
        fact = Fact("queue_ecn_marked_packets", 0.0, "packets", None, len(ports))
        sentence = f"{place} marks no packet in an incast; its peers mark theirs"
        findings.append(Finding(FindingKind.ECN_OFF, (place,), sentence, (fact,), 1.0, REMEDY))
    return Answer(tuple(findings))


def marks_of_ports(evidence: Evidence, is_held: NDArray[np.bool_] | None = None) -> dict[int, PortMarks]:
    """Return by port of the device the intervals in which its data queue drained. `is_held`: as for `look`."""
    samples, lanes = evidence.samples, evidence.lanes
    queued, sent, sent_bytes, marked = (
        samples.value(name) for name in ("queued_bytes", "tx_packets", "tx_bytes", "marked_packets")
    )
    queue = used_queue(evidence)
    total_marked = np.nan_to_num(lanes.counter("queue_ecn_marked_packets"))
    by_port = {}
    for lane in np.unique(samples.lane).tolist():
        port = int(lanes.port[lane])
        if lanes.number[lane] != queue[port]:
            continue
        host = int(evidence.ports.host[port])
        if is_held is not None and (host < 0 or not is_held[host]):
            continue
        rows = evidence.samples_of_lane(lane)
        length, packets, marks = queued[rows], np.diff(sent[rows]), np.diff(marked[rows])
        drains = (np.diff(length) <= 0) & (packets > 0) & (packets <= MOST_PACKETS) & (length[:-1] > 0)
        if is_held is not None:
            drains &= np.abs(np.diff(length) + np.diff(sent_bytes[rows])) <= LARGEST_FRAME_BYTES
        middle = (length[1:] + length[:-1]) / 2
        most = length[1:] + np.diff(sent_bytes[rows])
        if drains.any():
            by_port[port] = PortMarks(
                middle[drains], most[drains], packets[drains], marks[drains], float(total_marked[lane])
            )
    return by_port


def fit_curve(marks: PortMarks) -> MarkingCurve:
    """Return the curve of greatest likelihood: Kmax where most packets become marked, then Kmin over a grid, with Pmax solved
    for each."""
    length, packets, marked = marks.length_bytes, marks.packets, marks.marked
    # Above Kmax only acknowledgements are unmarked, which are few.
    sparse = length[marked < _MOSTLY * packets]
    kmax = float(sparse.max()) if len(sparse) else float(length.max())
    below = length <= kmax
    best, curve = -np.inf, MarkingCurve(0.0, kmax, 1.0)
    for kmin in np.linspace(0, kmax, _STEPS, endpoint=False).tolist():
        weight = (
            float(packets[below] @ np.clip((length[below] - kmin) / (kmax - kmin), 0, 1)) if kmax else 0.0
        )
        pmax = min(1.0, float(marked[below].sum()) / weight) if weight else 1.0
        likelihood = _likelihood(marks, MarkingCurve(kmin, kmax, pmax))
        if likelihood > best:
            best, curve = likelihood, MarkingCurve(kmin, kmax, pmax)
    return curve


def _deviation(
    marks: PortMarks, curve: MarkingCurve | None, peers: MarkingCurve, factor: float
) -> FindingKind | None:
    """Return how the marking of a port differs from the curve of its peers; None if it does not, or not certainly.

    `factor`: between two Kmin from which on they differ.
    """
    expected = float((marks.packets * peers.share(marks.length_bytes)).sum())
    seen = float(marks.marked.sum())
    if seen == 0:
        is_off = marks.total_marked == 0 and expected >= LEAST_EXPECTED
        return FindingKind.ECN_OFF if is_off else None
    if curve is None or max(seen, expected) < LEAST_SURE:
        return None
    if _likelihood(marks, curve) - _likelihood(marks, peers) < LEAST_GAIN:
        return None
    # A queue that was never as long as the Kmin of the peers marks nothing by their curve, however it fluctuated.
    early = float(marks.marked[marks.most_bytes < peers.kmin_bytes / factor].sum())
    if curve.kmin_bytes * factor < peers.kmin_bytes and early >= LEAST_EXPECTED and seen > 2 * expected:
        return FindingKind.ECN_EARLY
    if curve.kmin_bytes > factor * peers.kmin_bytes and 2 * seen < expected:
        return FindingKind.ECN_LATE
    return None


def _least_factor(curves: list[MarkingCurve]) -> float:
    """Return the factor from the Kmin of the peers from which on that of a port is wrong: beyond `FACTOR`, and beyond the
    error of an estimate, which the spread of the peers shows."""
    logs = np.log(np.maximum([curve.kmin_bytes for curve in curves], 1.0))
    deviation = 1.4826 * float(np.median(np.abs(logs - np.median(logs))))
    return max(FACTOR, float(np.exp(LEAST_ERRORS * deviation)))


def _likelihood(marks: PortMarks, curve: MarkingCurve) -> float:
    chance = np.clip(curve.share(marks.length_bytes), 1e-3, 1 - _UNMARKED)
    misses = marks.packets - marks.marked
    return float((marks.marked * np.log(chance) + misses * np.log1p(-chance)).sum())


def _of_tier(
    evidence: Evidence, by_port: dict[int, PortMarks], curves: dict[int, MarkingCurve]
) -> list[Finding]:
    of_tier = [curves[port] for port in by_port if port in curves]
    if len(of_tier) < 3:
        return []
    peers = MarkingCurve(
        *(float(np.median([getattr(curve, name) for curve in of_tier])) for name in MarkingCurve.__slots__)
    )
    factor = _least_factor(of_tier)
    wrong: dict[FindingKind, list[int]] = {}
    for port, marks in by_port.items():
        kind = _deviation(marks, curves.get(port), peers, factor)
        if kind is not None:
            wrong.setdefault(kind, []).append(port)
    findings = []
    for kind, ports in wrong.items():
        for place, rows in switches_or_cables(evidence, ports, by_port).items():
            found_at = curves.get(rows[0])
            words = "marks nothing" if found_at is None else f"marks from {found_at.kmin_bytes / 1e3:.0f} kB"
            sentence = f"{place} {words}; its peers mark from {peers.kmin_bytes / 1e3:.0f} kB"
            value = 0.0 if found_at is None else found_at.kmin_bytes
            fact = Fact("kmin_bytes", value, "bytes", peers.kmin_bytes, len(rows))
            findings.append(Finding(kind, (place,), sentence, (fact,), 1.0, REMEDY))
    return findings
