"""A rule that fails ends nothing: what it looks for was not examined, and all other findings stay."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from etloop.results.diagnosis import diagnose as module
from etloop.results.diagnosis.diagnose import diagnose
from etloop.results.diagnosis.evidence import Evidence
from etloop.results.diagnosis.rule import Found, Rule, report
from etloop.results.schema.findings import Examined, Fact, FindingKind
from etloop.results.schema.typed_json import to_json
from etloop.results.text.findings import finding_lines
from tests.results.diagnosis.given import evidence, finding

NAN = float("nan")


def looks(kind: FindingKind, **changes: object) -> Rule:
    return lambda _: report(kind, (finding(kind, "leaf0/0", **changes),))


def fails(_: Evidence) -> Found:
    raise IndexError("index 3 is out of bounds")


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        (fails, "IndexError: index 3 is out of bounds"),
        (
            looks(FindingKind.SLOW_LINK, evidence=(Fact("drain_bps", NAN, "bit/s"),)),
            "ValueError: slow_link: drain_bps is nan",
        ),
        (looks(FindingKind.SLOW_LINK, share=float("inf")), "ValueError: slow_link: share is inf"),
    ],
)
def test_a_rule_that_fails_is_an_examination_that_was_not_made(
    monkeypatch: pytest.MonkeyPatch, rule: Rule, why: str
) -> None:
    monkeypatch.setattr(module, "RULES", (looks(FindingKind.LOSSY_LINK), rule))
    diagnosis = diagnose(evidence)
    assert [each.kind for each in diagnosis.findings] == [FindingKind.LOSSY_LINK]
    by_kind = {each.kind: each for each in diagnosis.examinations}
    assert by_kind[FindingKind.LOSSY_LINK].outcome is Examined.FOUND
    assert by_kind[FindingKind.SLOW_LINK].outcome is Examined.FAILED
    assert why in by_kind[FindingKind.SLOW_LINK].why
    assert by_kind.keys() == set(FindingKind)
    to_json(diagnosis)
    assert "not examined" in " ".join(finding_lines(diagnosis))


def unusable() -> Evidence:
    raise ZeroDivisionError("division by zero")


def test_evidence_that_cannot_be_computed_leaves_every_kind_unexamined() -> None:
    diagnosis = diagnose(unusable)
    assert {each.outcome for each in diagnosis.examinations} == {Examined.FAILED}
    assert "the evidence cannot be computed: ZeroDivisionError" in diagnosis.examinations[0].why


def test_findings_stay_if_their_order_cannot_be_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise KeyError("port")

    make_evidence: Callable[[], Evidence] = evidence
    monkeypatch.setattr(module, "RULES", (looks(FindingKind.LOSSY_LINK),))
    monkeypatch.setattr(module, "mark_effects", broken)
    diagnosis = diagnose(make_evidence)
    assert [each.kind for each in diagnosis.findings] == [FindingKind.LOSSY_LINK]
    assert "precedence: KeyError" in next(
        each.why for each in diagnosis.examinations if each.outcome is Examined.FAILED
    )
