"""Which switches mark nothing, too early or too late, and which curve their marks show."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from etloop.results.diagnosis.marking import (
    MarkedIntervals,
    MarkingCurve,
    estimate_curve,
    marked_intervals,
)
from etloop.results.diagnosis.rules.ecn_marking import look
from etloop.results.schema.findings import FindingKind
from tests.results.diagnosis.given_switches import (
    DCQCN,
    FRAME_BYTES,
    Sample,
    evidence_of,
    four_leaves,
    outcomes,
    topology_of,
)

STANDING = {"queue_packets": 3000, "queue_watermark_bytes": 2_000_000}
"""A queue at 100 Gb/s that was longer than the default Kmax, 1.6 MB."""


def series(queued_bytes: int, marks_per_interval: int, intervals: int = 100) -> list[Sample]:
    """Return samples of a queue of constant length that sends 30 packets in 10 us."""
    return [(n * 10_000, queued_bytes, n * 30, n * marks_per_interval) for n in range(intervals + 1)]


def test_switch_with_ecn_off_is_found_where_its_queue_was_long() -> None:
    """The peers' curve gives at least 10 marks from the watermark alone."""
    evidence = evidence_of(
        topology_of(four_leaves("queues: {3: {ecn: {enabled: false}}}")),
        lanes={("leaf0/0", 3): STANDING, ("leaf1/0", 3): STANDING | {"queue_ecn_marked_packets": 200}},
    )
    (finding,) = look(evidence).findings
    assert (finding.kind, finding.places[0].name) == (FindingKind.ECN_OFF, "leaf0")
    assert finding.evidence[0].expected is not None
    assert finding.evidence[0].expected > 100


def test_ecn_off_below_kmin_is_not_exercised() -> None:
    """No queue grew: nothing shows whether it marks."""
    evidence = evidence_of(topology_of(four_leaves("queues: {3: {ecn: {enabled: false}}}")))
    result = look(evidence)
    assert not result.findings
    assert set(outcomes(result).values()) == {"not_exercised"}


def test_control_that_needs_no_marks_is_not_judged() -> None:
    """Swift measures delay."""
    evidence = evidence_of(
        topology_of(four_leaves("queues: {3: {ecn: {enabled: false}}}")),
        replace(DCQCN, algorithm="swift", reacts_to_marks=False),
        {("leaf0/0", 3): STANDING},
    )
    assert set(outcomes(look(evidence)).values()) == {"not_exercised"}


def test_marks_of_a_short_queue_are_early() -> None:
    """Peers mark from 400 kB on; this switch marked half of the packets at 50 kB."""
    evidence = evidence_of(
        topology_of(four_leaves("queues: {3: {ecn: {kmin: 8KiB, kmax: 64KiB, pmax: 100%}}}")),
        lanes={
            ("leaf0/0", 3): {
                "queue_packets": 3000,
                "queue_watermark_bytes": 60_000,
                "queue_ecn_marked_packets": 1500,
            }
        },
        samples={("leaf0/0", 3): series(50_000, 15)},
    )
    (finding,) = look(evidence).findings
    assert (finding.kind, finding.places[0].name) == (FindingKind.ECN_EARLY, "leaf0")
    assert {fact.name for fact in finding.evidence} >= {"configured_kmin_bytes", "estimated_kmin_bytes"}


def test_thresholds_beyond_the_queue_are_late_at_all_equal_switches() -> None:
    """All switches alike: the default for the rate is the reference, and one finding names the switches that had queues."""
    text = "single: {rate: 100Gbps, ports: [a/p0, b/p0, c/p0], switch: {queues: {3: {ecn: {kmin: 3MB, kmax: 9MB}}}}}"
    (finding,) = look(evidence_of(topology_of(text), lanes={("switch/0", 3): STANDING})).findings
    assert finding.kind is FindingKind.ECN_LATE


def test_thresholds_above_the_default_kmax_are_late_although_a_standing_queue_is_marked() -> None:
    """A queue that stays above any threshold is marked anyway; the configured Kmin shows the fault."""
    text = "single: {rate: 100Gbps, ports: [a/p0, b/p0, c/p0], switch: {queues: {3: {ecn: {kmin: 1700kB, kmax: 1800kB}}}}}"
    lanes = {("switch/0", 3): STANDING | {"queue_ecn_marked_packets": 2800}}
    (finding,) = look(evidence_of(topology_of(text), lanes=lanes)).findings
    assert finding.kind is FindingKind.ECN_LATE


def test_packets_that_arrived_marked_are_not_expected_to_be_marked_again() -> None:
    """A spine whose packets were all marked by leaves counts no marks of its own."""
    marked = STANDING | {"queue_ecn_marked_packets": 2900}
    lanes = {(f"leaf{n}/0", 3): marked for n in range(4)} | {("spine/0", 3): STANDING}
    topology = topology_of(four_leaves())
    assert topology.port_name(topology.links[0].a) == "leaf0/0"
    assert not look(evidence_of(topology, lanes=lanes)).findings


@pytest.mark.parametrize("seed", range(3))
def test_estimated_thresholds_are_near_those_that_marked(seed: int) -> None:
    """Kmin within a factor of 1.5 from 30 rises of the queue through the curve, read with 5 % of noise."""
    draw = np.random.default_rng(seed)
    kmin_bytes, kmax_bytes = np.sort(draw.uniform(100e3, 1500e3, 2)).tolist()
    true = MarkingCurve(kmin_bytes, kmax_bytes, float(draw.uniform(0.1, 0.6)))
    queued = np.tile(np.arange(0, 2_000_000, 20_000.0), 30)
    packets = np.full(len(queued), 10.0)
    marks = draw.binomial(10, true.share(queued)).astype(float)
    read = queued * draw.normal(1, 0.05, len(queued))
    estimate = estimate_curve(
        MarkedIntervals(np.zeros(len(queued), np.int64), packets, marks, read, read, packets * FRAME_BYTES),
        FRAME_BYTES,
    )
    assert estimate is not None
    assert true.kmin_bytes / 1.5 < estimate.curve.kmin_bytes < true.kmin_bytes * 1.5
    assert estimate.least_kmin_bytes <= estimate.curve.kmin_bytes <= estimate.most_kmin_bytes


def test_intervals_end_with_their_lane() -> None:
    """The first sample of a lane does not continue the lane before it."""
    evidence = evidence_of(
        topology_of(four_leaves()),
        samples={("leaf0/0", 3): series(0, 0, 2), ("leaf0/1", 3): series(0, 0, 2)},
    )
    assert len(marked_intervals(evidence).packets) == 4
