"""junit.xml is what its readers take, by a schema: tests/data/junit.xsd says whose."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import xmlschema
from etloop.results.measure.summary import measure
from etloop.results.schema.summary import VIRTUAL_TIME, Check, CheckResult, Summary
from etloop.results.schema.verdict import CheckOutcome, Result, Verdict
from etloop.results.verdict.junit import joined_junit, junit_xml
from hypothesis import given
from hypothesis import strategies as st

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
    checks = tuple(CheckOutcome(text, text, text, one, text, text, 3, 1, (text,), text) for one in results)
    return Verdict(Result.FAIL, device, (text,), (), checks)


DOUBTED = Check("bytes", CheckResult.FAIL, 8, 1, ("op 3",))
RUNS = (
    ("done, nobody asked for a verdict", summary(), None),
    ("done, each kind of answer", summary(), verdict(*Result)),
    ("a rig without a profile", summary(), verdict(Result.PASS, device="")),
    ("in virtual time, which has no date", replace(summary(), started_at=VIRTUAL_TIME), verdict(Result.PASS)),
    ("broke off", aborted(), verdict(*Result)),
    ("broke off before anything was measured", replace(aborted(), reason=""), None),
    ("its records do not add up", replace(summary(), checks=(DOUBTED,)), verdict(Result.PASS)),
)


@pytest.mark.parametrize(("run", "asked"), [row[1:] for row in RUNS], ids=[row[0] for row in RUNS])
def test_every_kind_of_run_is_valid(run: Summary, asked: Verdict | None) -> None:
    schema().validate(ET.ElementTree(ET.fromstring(junit_xml(run, asked))))


def test_runs_of_a_sweep_are_one_valid_file_with_a_suite_each() -> None:
    parts = [(f"p00{at} r000 (a<b)", replace(run, verdict=asked)) for at, (_, run, asked) in enumerate(RUNS)]
    joined = ET.fromstring(joined_junit(parts))
    schema().validate(ET.ElementTree(joined))
    assert next(suite.get("name") for suite in joined) == "p000 r000 (a<b): etloop"
    assert len(joined) == len(RUNS)


@given(st.text())
def test_whatever_words_are_in_it(text: str) -> None:
    run = replace(aborted(), reason=text, run_id=text)
    schema().validate(ET.ElementTree(ET.fromstring(junit_xml(run, verdict(Result.FAIL, text=f"a{text}")))))


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
    text = junit_xml(summary(), None)
    assert text.count(old) == 1, text
    assert schema().is_valid(ET.ElementTree(ET.fromstring(text)))
    assert not schema().is_valid(ET.ElementTree(ET.fromstring(text.replace(old, new)))), why


def test_the_schema_names_its_sources() -> None:
    text = Path(ROOT / "tests" / "data" / "junit.xsd").read_text()
    assert "jenkinsci/xunit-plugin" in text
    assert "windyroad/JUnit-Schema" in text
