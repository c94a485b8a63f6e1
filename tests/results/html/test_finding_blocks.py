"""The findings at the top of a report: evidence, remedy and effects of each cause, and what was examined."""

from __future__ import annotations

from etloop.results.html.blocks import Fold, Listing, TableBlock, Text
from etloop.results.html.findings import finding_blocks
from etloop.results.schema.findings import NO_DIAGNOSIS, Diagnosis, Examination, Examined, FindingKind
from tests.results.diagnosis.given import finding, rate

EXAMINED = (Examination(FindingKind.MTU, Examined.CLEAR),)


def test_cause_has_evidence_remedy_and_effects() -> None:
    slow = finding(FindingKind.SLOW_LINK, "leaf0/2", evidence=(rate(8e10, 1e11),))
    effect = finding(FindingKind.VICTIM, "leaf1/1", effect_of=0)
    blocks = finding_blocks(Diagnosis((slow, effect), EXAMINED))
    assert [type(block) for block in blocks] == [Text, Text, TableBlock, Text, Listing, Fold]
    assert blocks[0] == Text("slow_link at leaf0/2", badge="fail", badge_text="fault")
    assert blocks[3] == Text("Remedy: repair")
    assert blocks[4] == Listing("Effects", ("victim at leaf1/1",))


def test_further_causes_are_folded() -> None:
    causes = tuple(finding(FindingKind.MTU, f"leaf0/{port}") for port in range(8))
    *_, more, examined = finding_blocks(Diagnosis(causes, EXAMINED))
    assert isinstance(more, Fold)
    assert more.title == "2 more findings"
    assert isinstance(examined, Fold)
    assert examined.title == "1 kind examined."


def test_run_without_diagnosis_has_no_section() -> None:
    assert finding_blocks(NO_DIAGNOSIS) == ()
    assert finding_blocks(Diagnosis((), EXAMINED))[0] == Text("None.")
