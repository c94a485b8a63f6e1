"""The verdict as JUnit XML, which test systems of racks collect: one case a condition, and one for the run itself.

Decides how three values map onto JUnit's: a failed condition is a failure, an inconclusive one is skipped with its reason, a
run that broke off is an error. The form is that of the schema that Jenkins reads (jenkinsci/xunit-plugin, junit-10.xsd), with
`timestamp` an xs:dateTime as in Ant's: virtual time has no date, so a twin has none, and a property `clock` that says so.
Only the run has a `time`: a condition takes none.
"""

from __future__ import annotations

from collections.abc import Iterable
from xml.etree import ElementTree as ET

from etloop.contract.model.run import RunEnd
from etloop.results.schema.summary import VIRTUAL_TIME, Summary
from etloop.results.schema.verdict import CheckOutcome, Result, Verdict


def junit_xml(summary: Summary, verdict: Verdict | None) -> str:
    """junit.xml of a run; without a verdict it has the run's case alone."""
    return _document((_suite(summary, verdict),))


def joined_junit(runs: Iterable[tuple[str, Summary]]) -> str:
    """Return one file for several runs, each with the words that its suite begins with."""
    return _document([_suite(summary, summary.verdict, f"{words}: ") for words, summary in runs])


def _suite(summary: Summary, verdict: Verdict | None, words: str = "") -> ET.Element:
    checks = verdict.checks if verdict is not None else ()
    broke_off = summary.state is not RunEnd.DONE
    whole = not broke_off and summary.checks_hold
    attributes = {
        "name": _clean(f"{words}etloop {verdict.device if verdict else ''}".rstrip()),
        "tests": str(len(checks) + 1),
        "failures": str(sum(one.result is Result.FAIL for one in checks)),
        "errors": str(int(not whole)),
        "skipped": str(sum(one.result is Result.INCONCLUSIVE for one in checks)),
        "time": _seconds(summary.job.jct_ns),
    }
    if summary.started_at != VIRTUAL_TIME:
        attributes["timestamp"] = _clean(summary.started_at)[:19]
    suite = ET.Element("testsuite", attributes)
    properties = ET.SubElement(suite, "properties")
    for name, text in _properties(summary, verdict):
        ET.SubElement(properties, "property", {"name": name, "value": _clean(text)})
    run = ET.SubElement(
        suite, "testcase", {"classname": "etloop.run", "name": "run", "time": _seconds(summary.job.jct_ns)}
    )
    if not whole:
        failed = [check.name for check in summary.failed_checks]
        reason = summary.reason if broke_off else f"checks that do not hold: {', '.join(failed)}"
        error = ET.SubElement(
            run, "error", {"message": _clean(reason.splitlines()[0] if reason else ""), "type": "run"}
        )
        error.text = _clean(reason)
    for one in checks:
        _case(suite, one)
    return suite


def _document(suites: Iterable[ET.Element]) -> str:
    root = ET.Element("testsuites")
    root.extend(suites)
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _properties(summary: Summary, verdict: Verdict | None) -> tuple[tuple[str, str], ...]:
    asked = () if verdict is None else (("verdict", verdict.result.value), ("device", verdict.device))
    clock = (("clock", VIRTUAL_TIME),) if summary.started_at == VIRTUAL_TIME else ()
    return (("run_id", summary.run_id), ("workload", summary.workload.source), *clock, *asked)


def _case(suite: ET.Element, one: CheckOutcome) -> None:
    case = ET.SubElement(suite, "testcase", {"classname": "etloop.verdict", "name": _clean(one.expression)})
    if one.result is Result.PASS:
        return
    failed = one.result is Result.FAIL
    message = f"{one.value}, limit {one.limit}" if failed else one.reason
    attributes = {"message": _clean(message)}
    element = ET.SubElement(
        case, "failure" if failed else "skipped", attributes | ({"type": "verdict"} if failed else {})
    )
    element.text = _clean("\n".join([*filter(None, [one.why]), one.where, *one.rows]))


def _seconds(time_ns: int | None) -> str:
    return f"{(time_ns or 0) / 1e9:.6f}"


def _clean(text: str) -> str:
    """Without characters that XML 1.0 cannot carry (its section 2.2)."""
    return "".join(
        character
        if character in "\t\n"
        or " " <= character <= "\ud7ff"
        or "\ue000" <= character <= "\ufffd"
        or character > "\uffff"
        else "?"
        for character in text
    )
