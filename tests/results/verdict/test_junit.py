"""junit.xml is what its readers take, by a schema: tests/data/junit.xsd says whose."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import xmlschema
from hypothesis import given
from hypothesis import strategies as st

from etloop.results.measure.summary import measure
from etloop.results.schema.findings import Diagnosis, Examination, Examined, FindingKind
from etloop.results.schema.summary import VIRTUAL_TIME, ConsistencyCheck, ConsistencyResult, Summary
from etloop.results.schema.verdict import ConditionOutcome, Result, Verdict
from etloop.results.verdict.junit import join_junit, junit_xml
from etloop.results.verdict.junit_names import case_names, place_in_sweep, place_of, run_class
from tests.results.diagnosis.given import finding
from tests.support.places import ROOT
from tests.support.runs.records_by_hand import (
    aborted_by_hand,
    connection_rows_by_hand,
    outcome_by_hand,
    tables_by_hand,
)


@cache
def schema() -> xmlschema.XMLSchema:
    return xmlschema.XMLSchema(str(ROOT / "tests" / "data" / "junit.xsd"))


@cache
def summary() -> Summary:
    return measure(outcome_by_hand(), tables_by_hand(), connection_rows_by_hand()).summary


@cache
def aborted() -> Summary:
    return measure(aborted_by_hand(), tables_by_hand(), connection_rows_by_hand()).summary


def verdict(*results: Result, text: str = "jct_avg_ns < 1s", device: str = "dut-1") -> Verdict:
    checks = tuple(
        ConditionOutcome(text, text, text, one, text, text, 3, 1, (text,), text) for one in results
    )
    return Verdict(Result.FAIL, device, (text,), (), checks)


DOUBTED = ConsistencyCheck("bytes", ConsistencyResult.FAIL, 8, 1, ("op 3",))
RUNS = (
    ("done, nobody asked for a verdict", summary(), None),
    ("done, each kind of answer", summary(), verdict(*Result)),
    ("a rig without a profile", summary(), verdict(Result.PASS, device="")),
    ("in virtual time, which has no date", replace(summary(), started_at=VIRTUAL_TIME), verdict(Result.PASS)),
    ("broke off", aborted(), verdict(*Result)),
    ("broke off before anything was measured", replace(aborted(), reason=""), None),
    ("its records are inconsistent", replace(summary(), checks=(DOUBTED,)), verdict(Result.PASS)),
)


@pytest.mark.parametrize(("run", "asked"), [row[1:] for row in RUNS], ids=[row[0] for row in RUNS])
def test_every_kind_of_run_is_valid(run: Summary, asked: Verdict | None) -> None:
    schema().validate(ET.ElementTree(ET.fromstring(junit_xml(run, asked, "job.0"))))


def test_findings_are_output_of_the_run_and_fail_nothing() -> None:
    effect = finding(FindingKind.VICTIM, "leaf1/1", effect_of=0)
    diagnosis = Diagnosis(
        (finding(FindingKind.SLOW_LINK, "leaf0/2"), effect), (Examination(FindingKind.MTU, Examined.CLEAR),)
    )
    root = ET.fromstring(junit_xml(replace(summary(), diagnosis=diagnosis), None, "job.0"))
    schema().validate(ET.ElementTree(root))
    assert root.findtext("testsuite/system-out") == (
        "finding: slow_link: slow_link at leaf0/2; remedy: repair\neffect: victim: victim at leaf1/1; remedy: repair"
    )
    assert root.find("testsuite/properties/property[@name='findings'][@value='slow_link']") is not None
    assert root.find("testsuite[@failures='0'][@errors='0']") is not None


def test_runs_of_a_sweep_are_one_valid_file_with_a_suite_each() -> None:
    parts: list[tuple[str, str, Summary | str]] = [
        (f"p00{at} r000 (a<b)", f"job.p00{at}", replace(run, verdict=asked))
        for at, (_, run, asked) in enumerate(RUNS)
    ]
    parts.append(("p099 r000 (a<b)", "unreadable.p099", "summary.json: is damaged; restore it"))
    joined = ET.fromstring(join_junit(parts))
    schema().validate(ET.ElementTree(joined))
    assert next(suite.get("name") for suite in joined) == "p000 r000 (a<b): etloop"
    assert len(joined) == len(RUNS) + 1
    assert joined[-1].find("testcase/error[@message='summary.json: is damaged; restore it']") is not None


@given(st.text())
def test_whatever_words_are_in_it(text: str) -> None:
    run = replace(aborted(), reason=text, run_id=text)
    schema().validate(
        ET.ElementTree(ET.fromstring(junit_xml(run, verdict(Result.FAIL, text=f"a{text}"), text)))
    )


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (' tests="1"', "", "readers need the number of cases"),
        (' tests="1"', ' tests="one"', "which is a number"),
        (' timestamp="2026-01-02T03:04:05"', f' timestamp="{VIRTUAL_TIME}"', "virtual time is no date"),
        (' timestamp="2026-01-02T03:04:05"', ' timestamp="2026-01-02T03:04:05+00:00"', "Ant's has no zone"),
        (' name="run"', "", "a case has a name"),
        ("<properties>", "<remark/><properties>", "no other elements"),
        (' errors="0"', ' errors="0" verdict="pass"', "no other attributes"),
    ],
)
def test_what_readers_refuse_is_refused(old: str, new: str, why: str) -> None:
    text = junit_xml(summary(), None, "job.0")
    assert text.count(old) == 1, text
    assert schema().is_valid(ET.ElementTree(ET.fromstring(text)))
    assert not schema().is_valid(ET.ElementTree(ET.fromstring(text.replace(old, new)))), why


def test_the_schema_names_its_sources() -> None:
    text = Path(ROOT / "tests" / "data" / "junit.xsd").read_text()
    assert "jenkinsci/xunit-plugin" in text
    assert "windyroad/JUnit-Schema" in text


def pairs_of(*documents: str) -> list[tuple[str | None, str | None]]:
    """What GitLab and Jenkins know cases by, of several files."""
    cases = (case for text in documents for case in ET.fromstring(text).iter("testcase"))
    return [(case.get("classname"), case.get("name")) for case in cases]


CHECKS = st.lists(
    st.tuples(st.sampled_from(["jct_avg_ns <= 5ms", "run", "lost_share == 0", "a" * 300]), st.sampled_from(
        ["", " ", "contract A", "contract B", "[2]", "b" * 300, "b" * 299 + "c", "x\ny", "x y", "<&\x00"]
    )),
    max_size=6,
)  # fmt: skip


@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "a.b", "a b", "ä"]), CHECKS, st.integers(1, 3)),
        min_size=1,
        max_size=5,
    )
)
def test_no_two_cases_of_files_collected_together_are_called_alike(
    points: list[tuple[str, list[tuple[str, str]], int]],
) -> None:
    """Jobs, points, repeats, conditions and reasons; one file for each run, and one for all of them."""
    parts, single = [], {}
    for at, (label, asked, repeats) in enumerate(points):
        checks = tuple(
            ConditionOutcome(text, why, "s.yaml", Result.PASS, "", "", 1, 0, (), "") for text, why in asked
        )
        found = replace(summary(), verdict=Verdict(Result.PASS, "", (), (), checks))
        for repeat in range(repeats):
            identity = f"{run_class('job', (f'point: {label}', '', ''))}.p{at:03d}.r{repeat:03d}"
            parts.append(("words", identity, found))
            single[identity] = junit_xml(found, found.verdict, identity)
    joined = join_junit(parts)
    pairs = pairs_of(joined, *single.values())
    assert len(set(pairs)) == len(pairs)
    assert len(pairs) == 2 * sum(repeats * (len(asked) + 1) for _, asked, repeats in points)
    assert join_junit(parts) == joined, "the same from one execution to the next"
    for text in (joined, *single.values()):
        schema().validate(ET.ElementTree(ET.fromstring(text)))


def test_two_reasons_of_one_condition_are_two_cases() -> None:
    checks = verdict(Result.PASS, Result.PASS).checks
    alike = replace(checks[0], why="contract of vendor A"), replace(checks[1], why="contract of vendor B")
    names = case_names((*alike, alike[0], replace(alike[0], why="")))
    text = checks[0].expression
    assert names == (
        f"{text} (contract of vendor A)",
        f"{text} (contract of vendor B)",
        f"{text} (contract of vendor A) [2]",
        text,
    )


RIG = "agents: [{name: a, ports: [{name: p0, addresses: 10.0.0.1, link: 1Gbps}]}]\ncontroller: {bind: 'tcp://h:1'}\n"


@pytest.mark.parametrize(
    ("sentence", "files", "alike"),
    [
        ("another machine's addresses", ("a: 1", RIG.replace("10.0.0.1", "10.9.9.9").replace("h:1", "g:2"), ""), True),
        ("other conditions", ("a: 1\nverdict: {checks: [{check: lost_share == 0}]}", RIG, ""), True),
        ("written otherwise", ("{a: 1}  # as it was", RIG, ""), True),
        ("another scenario", ("a: 2", RIG, ""), False),
        ("another rig", ("a: 1", RIG.replace("1Gbps", "2Gbps"), ""), False),
        ("another topology", ("a: 1", RIG, "single: {rate: 1Gbps}"), False),
    ],
)  # fmt: skip
def test_a_run_is_called_by_what_it_was_of(sentence: str, files: tuple[str, ...], alike: bool) -> None:
    first = run_class("2 x all_reduce", ("a: 1", RIG, ""))
    assert (run_class("2 x all_reduce", files) == first) is alike, sentence
    assert run_class("2 x all_gather", ("a: 1", RIG, "")) != first


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("study/points/p003/r001", "p003.r001"),
        ("study/points/p003/.r001.partial", "p003.r001"),
        ("runs/r001", ""),
        ("p003/run", ""),
    ],
)
def test_a_run_of_a_sweep_knows_its_place(path: str, place: str) -> None:
    assert place_in_sweep(Path(path)) == place


def test_runs_of_the_same_files_differ_by_their_directories() -> None:
    assert place_of(Path("/ci/runs/before")) == "runs.before"
    places = {
        place_of(Path(path)) for path in ("/ci/a/run", "/ci/b/run", "/ci/runs/before", "/ci/runs/after")
    }
    assert len(places) == 4
    assert place_of(Path("/ci/study/points/p003/r001")) == "p003.r001"
