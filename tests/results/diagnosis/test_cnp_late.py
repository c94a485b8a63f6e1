"""Whether congestion notifications are lost or wait on their way back."""

from __future__ import annotations

import pytest

from etloop.results.diagnosis.rules.cnp_late import look
from etloop.results.schema.findings import FindingKind
from tests.results.diagnosis.given_switches import evidence_of, four_leaves, outcomes, topology_of


@pytest.mark.parametrize(
    ("sent", "handled", "outcome"),
    [(5, 0, "not_exercised"), (100, 100, "clear"), (100, 95, "clear"), (100, 60, "found")],
)
def test_lost_notifications_are_counted(sent: int, handled: int, outcome: str) -> None:
    """A few may be under way when the job ends."""
    result = look(evidence_of(topology_of(four_leaves()), cnps=(sent, handled)))
    assert outcomes(result)[FindingKind.CNP_LATE] == outcome


@pytest.mark.parametrize(("queued_bytes", "count"), [(78, 0), (6000, 1)])
def test_notifications_that_wait_name_their_queue(queued_bytes: int, count: int) -> None:
    """A mean queue of 6 kB that sends 10 packets in 100 us: 1.4 us a packet's bytes, by Little's law 14 us at this rate."""
    samples = {("leaf1/0", 6): [(n * 10_000, queued_bytes, n, 0) for n in range(30)]}
    lanes = {("leaf1/0", 6): {"queue_packets": 30.0}}
    findings = look(
        evidence_of(topology_of(four_leaves()), lanes=lanes, samples=samples, cnps=(30, 30))
    ).findings
    assert len(findings) == count
    assert all(finding.places[0].name == "leaf1/0" for finding in findings)
