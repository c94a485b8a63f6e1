"""The verdict as JUnit XML, which test systems collect: one test case a condition, and one for the run itself.

Decides how three values map onto JUnit's: a failed condition is a failure, an inconclusive one is skipped with its
reason, a run that ended early is an error. Findings are output of the suite and a property: a finding fails nothing unless a
condition counts it, which then fails with its own case. The format is the schema that Jenkins reads (jenkinsci/xunit-plugin,
junit-10.xsd), with `timestamp` an xs:dateTime as in Ant's: virtual time has no date, so a twin has no `timestamp` but a property
`clock` instead. Only the run has a `time`: a condition takes none.
"""

from __future__ import annotations

from collections.abc import Iterable
from xml.etree import ElementTree as ET

from etloop.contract.model.run import RunEnd
from etloop.results.schema.findings import Diagnosis
from etloop.results.schema.summary import VIRTUAL_TIME, Summary
from etloop.results.schema.trend import Trend
from etloop.results.schema.verdict import ConditionOutcome, Result, Verdict
from etloop.results.verdict.junit_names import RUN_CASE, case_names, printable_xml, unique_names


def junit_xml(summary: Summary, verdict: Verdict | None, identity: str) -> str:
    """Return junit.xml of a run; without a verdict it has only the case of the run. `identity`: identifies the run
    (`junit_names`)."""
    return _document((_suite(summary, verdict, f"etloop.run.{identity}"),))


def join_junit(runs: Iterable[tuple[str, str, Summary | str]]) -> str:
    """Return one file for several runs, given the prefix of the suite's name, the identity and the summary of each.

    A text in place of a summary: why the run cannot be read, which is an error of its suite. Runs with equal identities are
    numbered in their order.
    """
    run_list = list(runs)
    classes = unique_names((f"etloop.sweep.{identity}" for _, identity, _ in run_list), ())
    return _document(
        _unread_suite(summary, classname, words)
        if isinstance(summary, str)
        else _suite(summary, summary.verdict, classname, f"{words}: ")
        for classname, (words, _, summary) in zip(classes, run_list, strict=True)
    )


def trend_junit(trend: Trend) -> str:
    """Return a history as one suite per job and one case per figure, which fails if its last change was to the worse.

    Names depend on job and figure only, so that test systems follow a figure over versions.
    """
    suites = []
    for history in trend.histories:
        suite = ET.Element(
            "testsuite",
            {
                "name": printable_xml(f"etloop trend {history.job}"),
                "tests": str(len(history.figures)),
                "failures": str(sum(bool(line.worse) for line in history.figures)),
                "errors": "0",
                "skipped": "0",
                "time": "0",
            },
        )
        classname = printable_xml(f"etloop.trend.{history.series}")
        for line in history.figures:
            case = ET.SubElement(
                suite, "testcase", {"classname": classname, "name": printable_xml(line.name)}
            )
            if line.worse:
                words = printable_xml(line.worse)
                ET.SubElement(case, "failure", {"message": words, "type": "trend"}).text = words
        suites.append(suite)
    return _document(suites)


def _suite(summary: Summary, verdict: Verdict | None, classname: str, words: str = "") -> ET.Element:
    """Return the test suite of a run: its own case, then one case for each condition."""
    outcomes = verdict.checks if verdict is not None else ()
    ended_early = summary.state is not RunEnd.DONE
    is_whole = not ended_early and summary.is_consistent
    attributes = {
        "name": printable_xml(f"{words}etloop {verdict.device if verdict else ''}".rstrip()),
        "tests": str(len(outcomes) + 1),
        "failures": str(sum(outcome.result is Result.FAIL for outcome in outcomes)),
        "errors": str(int(not is_whole)),
        "skipped": str(sum(outcome.result is Result.INCONCLUSIVE for outcome in outcomes)),
        "time": _seconds(summary.job.jct_ns),
    }
    if summary.started_at != VIRTUAL_TIME:
        attributes["timestamp"] = printable_xml(summary.started_at)[:19]
    suite = ET.Element("testsuite", attributes)
    properties = ET.SubElement(suite, "properties")
    for name, text in _properties(summary, verdict):
        ET.SubElement(properties, "property", {"name": name, "value": printable_xml(text)})
    classname = printable_xml(classname)
    run_attributes = {"classname": classname, "name": RUN_CASE, "time": _seconds(summary.job.jct_ns)}
    run = ET.SubElement(suite, "testcase", run_attributes)
    if not is_whole:
        failed = [check.name for check in summary.failed_checks]
        reason = summary.reason if ended_early else f"consistency checks failed: {', '.join(failed)}"
        error = ET.SubElement(
            run, "error", {"message": printable_xml(reason.splitlines()[0] if reason else ""), "type": "run"}
        )
        error.text = printable_xml(reason)
    for name, outcome in zip(case_names(outcomes), outcomes, strict=True):
        _case(suite, {"classname": classname, "name": name}, outcome)
    if findings := _finding_lines(summary.diagnosis):
        ET.SubElement(suite, "system-out").text = printable_xml("\n".join(findings))
    return suite


def _unread_suite(why: str, classname: str, words: str) -> ET.Element:
    """Return the test suite of a run that cannot be read: the run's own case, with an error."""
    counts = {"tests": "1", "failures": "0", "errors": "1", "skipped": "0", "time": "0"}
    suite = ET.Element("testsuite", {"name": printable_xml(f"{words}: etloop")} | counts)
    case = ET.SubElement(
        suite, "testcase", {"classname": printable_xml(classname), "name": RUN_CASE, "time": "0"}
    )
    error = ET.SubElement(case, "error", {"message": printable_xml(why.splitlines()[0]), "type": "run"})
    error.text = printable_xml(why)
    return suite


def _document(suites: Iterable[ET.Element]) -> str:
    root = ET.Element("testsuites")
    root.extend(suites)
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _properties(summary: Summary, verdict: Verdict | None) -> tuple[tuple[str, str], ...]:
    verdict_properties = (
        () if verdict is None else (("verdict", verdict.result.value), ("device", verdict.device))
    )
    clock = (("clock", VIRTUAL_TIME),) if summary.started_at == VIRTUAL_TIME else ()
    diagnosis = summary.diagnosis
    causes = ", ".join(finding.kind.value for finding in diagnosis.causes) or "none"
    findings = (("findings", causes),) if diagnosis.examinations else ()
    run_properties = (("run_id", summary.run_id), ("workload", summary.workload.source))
    return (*run_properties, *clock, *verdict_properties, *findings)


def _finding_lines(diagnosis: Diagnosis) -> list[str]:
    return [
        f"{'finding' if finding.effect_of is None else 'effect'}: {finding.kind.value}: {finding.sentence}; "
        f"remedy: {finding.remedy}"
        for finding in diagnosis.findings
    ]


def _case(suite: ET.Element, attributes: dict[str, str], outcome: ConditionOutcome) -> None:
    case = ET.SubElement(suite, "testcase", attributes)
    if outcome.result is Result.PASS:
        return
    failed = outcome.result is Result.FAIL
    message = f"{outcome.value}, limit {outcome.limit}" if failed else outcome.reason
    details = {"message": printable_xml(message), **({"type": "verdict"} if failed else {})}
    element = ET.SubElement(case, "failure" if failed else "skipped", details)
    element.text = printable_xml("\n".join([*filter(None, [outcome.why]), outcome.where, *outcome.rows]))


def _seconds(time_ns: int | None) -> str:
    return f"{(time_ns or 0) / 1e9:.6f}"
