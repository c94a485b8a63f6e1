"""Findings in words: causes with their effects, what was not exercised, and short names for lists of runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from etloop.results.report.findings import causes_of, common_words, count_words, evidence_table, short_names
from etloop.results.schema.findings import (
    NO_DIAGNOSIS,
    Diagnosis,
    Examination,
    Examined,
    FindingKind,
    Place,
    PlaceKind,
    Role,
)
from etloop.results.text.findings import finding_lines
from etloop.results.text.layout import WIDTH
from tests.results.diagnosis.given import finding, rate

FLAP: Final = finding(FindingKind.LINK_FLAP, "leaf0/1")
SLOW: Final = finding(
    FindingKind.SLOW_LINK, "leaf0/2", evidence=(rate(8e10, 1e11),), share=0.3, confidence=0.9999999
)
PAUSED: Final = finding(FindingKind.VICTIM, "leaf1/1", role=Role.JOB, effect_of=1)
LATER: Final = finding(FindingKind.JOB_INCAST, "leaf1/2", role=Role.JOB, effect_of=2)
EXAMINED: Final = (
    Examination(FindingKind.LINK_FLAP, Examined.FOUND),
    Examination(FindingKind.MTU, Examined.CLEAR),
    Examination(FindingKind.ECN_OFF, Examined.NOT_EXERCISED, "no queue exceeded Kmin"),
    Examination(FindingKind.ECN_LATE, Examined.NOT_EXERCISED, "no queue exceeded Kmin"),
    Examination(FindingKind.REORDERING, Examined.NO_EVIDENCE, "not counted"),
)
ILL: Final = Diagnosis((FLAP, SLOW, PAUSED, LATER), EXAMINED)


def test_effects_of_effects_belong_to_the_cause() -> None:
    assert [(cause.finding, cause.effects) for cause in causes_of(ILL)] == [
        (FLAP, ()),
        (SLOW, (PAUSED, LATER)),
    ]


def test_effects_in_a_circle_are_left_out() -> None:
    circle = Diagnosis(
        (finding(FindingKind.MTU, "a", effect_of=1), finding(FindingKind.MTU, "b", effect_of=0)), ()
    )
    assert causes_of(circle) == ()


def test_kinds_are_counted_by_outcome() -> None:
    assert count_words(ILL) == "5 kinds examined, 2 not exercised, 1 without evidence"
    assert count_words(NO_DIAGNOSIS) == ""


def test_evidence_has_units_and_expected_values() -> None:
    assert evidence_table(SLOW).rows == (("drain_bps", "80 Gbit/s", "100 Gbit/s", None),)


def test_causes_come_first_with_effects_below_them() -> None:
    assert finding_lines(ILL) == [
        "finding         link_flap at leaf0/1",
        "                link_flap; remedy: repair",
        "finding         slow_link at leaf0/2",
        "                slow_link; explains about 30% of the completion time; confidence 0.999999; remedy: repair",
        "  effect        victim at leaf1/1",
        "  effect        job_incast at leaf1/2",
        "not exercised   ecn_off, ecn_late (no queue exceeded Kmin)",
    ]


def test_healthy_run_has_one_line() -> None:
    assert finding_lines(Diagnosis((), EXAMINED)) == [
        "findings        none (5 kinds examined, 2 not exercised, 1 without evidence)"
    ]
    assert finding_lines(NO_DIAGNOSIS) == []


def test_candidates_are_listed_and_long_lists_are_counted() -> None:
    places = tuple(Place(PlaceKind.PORT, f"leaf0/{port}") for port in range(10))
    candidates = replace(finding(FindingKind.LOSSY_LINK, "leaf0/0", is_ambiguous=True), places=places)
    lines = finding_lines(Diagnosis((candidates,) * 8, EXAMINED))
    assert "one of 10 places: leaf0/0, leaf0/1," in lines[1]
    assert "                and 2 more findings in summary.json" in lines
    assert max(map(len, lines)) <= WIDTH


def test_lists_name_faults_and_otherwise_other_causes() -> None:
    assert short_names(ILL) == ("link_flap leaf0/1", "slow_link leaf0/2")
    incast = finding(FindingKind.JOB_INCAST, "leaf1/2", role=Role.JOB)
    assert short_names(Diagnosis((incast,), ())) == ("job_incast leaf1/2",)
    assert common_words([["a", "b"], ["b"], []]) == "b (2 of 3), a (1 of 3)"
    assert common_words([["a", "b", "c"]]) == "a, b and 1 more"
    assert common_words([[], []]) == ""
