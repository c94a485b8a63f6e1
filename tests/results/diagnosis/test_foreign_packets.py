"""Packets that no agent sent are named as such, and are neither the device's nor an effect of anything."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from etloop.results.diagnosis.evidence import Evidence
from etloop.results.diagnosis.rules import foreign_packets
from etloop.results.schema.findings import ROLES, Examined, FindingKind, Role
from etloop.results.schema.losses import NEVER_SENT
from etloop.results.schema.summary import ConsistencyCheck, ConsistencyResult


def evidence_of(*checks: ConsistencyCheck) -> Evidence:
    return cast("Evidence", SimpleNamespace(run=SimpleNamespace(summary=SimpleNamespace(checks=checks))))


@pytest.mark.parametrize("kind", ["NAKs", "CNPs"])
def test_forged_packets_are_found_with_their_queue_pair(kind: str) -> None:
    example = f"rank 0 -> rank 1: rank 0 received 200 {kind} that its peer did not send"
    check = ConsistencyCheck(NEVER_SENT, ConsistencyResult.FAIL, 9_000, 200, (example,))
    (finding,) = foreign_packets.look(evidence_of(check)).findings
    assert finding.sentence == (
        f"200 packets were received that no agent sent, such as {example}: they are not the device's"
    )
    assert [(fact.name, fact.value) for fact in finding.evidence] == [("never_sent", 200.0)]
    assert ROLES[FindingKind.FOREIGN_PACKETS] is Role.EMULATOR


@pytest.mark.parametrize(
    ("checks", "examined"),
    [
        ((ConsistencyCheck(NEVER_SENT, ConsistencyResult.PASS, 9_000, 0, ()),), Examined.CLEAR),
        ((), Examined.NO_EVIDENCE),
    ],
)
def test_without_them_nothing_is_found(checks: tuple[ConsistencyCheck, ...], examined: Examined) -> None:
    found = foreign_packets.look(evidence_of(*checks))
    assert found.findings == ()
    assert [row.outcome for row in found.examinations] == [examined]
