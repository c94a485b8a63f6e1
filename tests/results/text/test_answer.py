"""The answer of a run in five lines, word for word."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from etloop.contract.model.run import RunEnd
from etloop.results.measure.summary import measure
from etloop.results.schema.device import Agreement, DeviceSummary, Direction, ReconciledPort
from etloop.results.schema.findings import (
    NO_DIAGNOSIS,
    Diagnosis,
    Finding,
    FindingKind,
    Place,
    PlaceKind,
    Role,
)
from etloop.results.schema.losses import CountedBy, LossRow, LossSummary
from etloop.results.schema.summary import ComparisonSummary, JobComparison, JobFigures, Summary
from etloop.results.schema.verdict import ConditionOutcome, Result, Verdict
from etloop.results.text.answer import render_answer
from tests.support.runs.records_by_hand import (
    aborted_by_hand,
    connection_rows_by_hand,
    outcome_by_hand,
    tables_by_hand,
)

PAGE: Final = "runs/one/report.html"
DONE: Final = replace(
    measure(outcome_by_hand(), tables_by_hand(), connection_rows_by_hand()).summary, degraded=()
)
DEGRADED: Final = ("a: 4 threads share 2 cores", "b: 4 threads share 2 cores")


def finding(role: Role, sentence: str) -> Finding:
    return Finding(FindingKind.SLOW_LINK, (Place(PlaceKind.HOST, "b/p0"),), sentence, (), 1.0, "", role)


FAULT: Final = finding(Role.FAULT, "the link of leaf0/3 carries 80 of its 100 Mb/s")
LATE: Final = finding(Role.EMULATOR, "late agents explain up to 8% of an iteration")
INCAST: Final = finding(Role.JOB, "the job sends to b/p0 from 3 ports at once")


def diagnosis(*findings: Finding) -> Diagnosis:
    return replace(NO_DIAGNOSIS, findings=findings)


def verdict(*results: Result, device: str = "tor-1") -> Verdict:
    outcome = next(
        (result for result in (Result.FAIL, Result.INCONCLUSIVE) if result in results), Result.PASS
    )
    checks = tuple(
        ConditionOutcome("x == 0", "", "s.yaml:3", result, "x = 1", "== 0", 1, 0, (), "")
        for result in results
    )
    reasons = ("x = 1, expected == 0",) if outcome is not Result.PASS else ()
    return Verdict(outcome, device, reasons, (), checks)


def losses(lost: int | None) -> LossSummary:
    return LossSummary(
        (LossRow("all", CountedBy.PORTS, 100, None if lost is None else 100 - lost, lost),),
        lost,
        0,
        False,
        "",
        (),
    )


def device(agreement: Agreement = Agreement.EXACT) -> DeviceSummary:
    direction = Direction.TO_DEVICE
    row = ReconciledPort("a/p0", "tor", "1", direction, 9, 9, 0, 900, 900, 0, 0.0, agreement, "")
    counters = {"queue_dropped_packets": 0, "queue_ecn_marked_packets": 21}
    return DeviceSummary("tor-1", 1000, (), (), 0, counters, (row, row))


def comparison(ratio: float, degraded: tuple[str, ...] = ()) -> ComparisonSummary:
    expected, measured = JobFigures(2, 100_000_000, None, None), JobFigures(2, 70_000, None, None)
    return ComparisonSummary((), (), JobComparison(None, expected, measured, None, ratio, degraded), ())


def line(summary: Summary, label: str) -> str:
    """Return the text after a label of the answer, which has five lines."""
    lines = render_answer(summary, PAGE).splitlines()
    assert len(lines) == 5
    texts = {text.split()[0]: text[16:] for text in lines}
    return texts[label]


def test_answer_of_a_judged_run() -> None:
    summary = replace(
        DONE,
        verdict=verdict(Result.PASS, Result.PASS),
        losses=losses(0),
        dut=device(),
        comparison=comparison(1.51),
        diagnosis=diagnosis(LATE),
    )
    assert render_answer(summary, PAGE) == (
        "PASS            tor-1: 2 of 2 conditions hold; all 100 packets received; agents and device agree frame for frame\n"
        "job             70 us an iteration; 100 ms expected by the twin (x 1.51)\n"
        "why             late agents explain up to 8% of an iteration\n"
        "device          0 dropped, 21 marked\n"
        "open            runs/one/report.html\n"
    )


@pytest.mark.parametrize(
    ("changed", "label", "text"),
    [
        ({"verdict": None}, "DONE", "no verdict was asked for"),
        ({"verdict": verdict(Result.PASS, device="")}, "PASS", "the run: 1 of 1 conditions hold"),
        (
            {"verdict": verdict(Result.PASS, Result.FAIL), "losses": losses(3)},
            "FAIL",
            "tor-1: 1 of 2 conditions hold: x = 1, expected == 0",
        ),
        (
            {"verdict": verdict(Result.INCONCLUSIVE)},
            "INCONCLUSIVE",
            "tor-1: 0 of 1 conditions hold: x = 1, expected == 0",
        ),
        ({"losses": losses(3)}, "DONE", "no verdict was asked for; 3 of 100 packets not received"),
        (
            {"losses": losses(None)},
            "DONE",
            "no verdict was asked for; how many packets were lost is not known",
        ),
        (
            {"dut": device(Agreement.WITHIN)},
            "DONE",
            "no verdict was asked for; agents and device, 2 directions of cables: 2 within 0.1%",
        ),
    ],
)
def test_first_line_names_the_subject_and_the_result(
    changed: dict[str, object], label: str, text: str
) -> None:
    assert line(replace(DONE, **changed), label) == text  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("findings", "degraded", "ratio", "text"),
    [
        ((LATE, FAULT), DEGRADED, 2.0, f"{FAULT.sentence} (and 1 more: -v)"),
        ((INCAST, LATE), (), 2.0, f"{LATE.sentence} (and 1 more: -v)"),
        (
            (INCAST,),
            DEGRADED,
            2.0,
            "a, b: 4 threads share 2 cores; times may be the host's, not the device's",
        ),
        ((INCAST,), (), 2.0, INCAST.sentence),
        ((), (), 1.1, "as fast as expected"),
        ((), (), 1.2, "no cause was found (no diagnosis)"),
    ],
)
def test_reason_names_faults_before_this_machine_before_the_job(
    findings: tuple[Finding, ...], degraded: tuple[str, ...], ratio: float, text: str
) -> None:
    summary = replace(DONE, diagnosis=diagnosis(*findings), degraded=degraded, comparison=comparison(ratio))
    assert line(summary, "why") == text


def test_reason_of_loopback_ports_is_this_machine() -> None:
    reason = "ports have loopback addresses: what was measured is this machine, not a device"
    assert line(replace(DONE, comparison=comparison(9.0, (reason,))), "why") == reason


def test_stopped_run_has_its_whole_reason_above_the_five_lines() -> None:
    aborted = measure(aborted_by_hand(), tables_by_hand(), connection_rows_by_hand()).summary
    assert line(aborted, "BROKEN") == aborted.reason
    stalled = replace(aborted, state=RunEnd.ABORTED, reason="no progress for 3 s\nrank 0 waits for rank 1")
    lines = render_answer(stalled, PAGE).splitlines()
    assert [text.strip() for text in lines[:2]] == stalled.reason.splitlines()
    assert len(lines) == 7
    assert lines[2] == f"{'BROKEN':<16}no progress for 3 s"


def test_long_reason_stays_on_its_line() -> None:
    long = finding(Role.FAULT, "the link of leaf0/3 is slow, " * 20)
    assert len(line(replace(DONE, diagnosis=diagnosis(long)), "why")) > 500
