"""A run in five lines: its result, its time against the expected one, why, what the device counted, and where to read more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from etloop.contract.model.run import RunEnd
from etloop.results.report.device import agreement_words, total_words
from etloop.results.report.findings import causes_of, count_words
from etloop.results.report.values import merge_places, time_words
from etloop.results.schema.device import Agreement
from etloop.results.schema.findings import Role
from etloop.results.schema.verdict import Result, RunResult
from etloop.results.text.layout import LABEL_WIDTH, label_text, printable

if TYPE_CHECKING:
    from etloop.results.schema.device import DeviceSummary
    from etloop.results.schema.losses import LossSummary
    from etloop.results.schema.summary import Summary
    from etloop.results.schema.verdict import Verdict

_LABELS: Final = {
    RunResult.PASS: "PASS",
    RunResult.FAIL: "FAIL",
    RunResult.INCONCLUSIVE: "INCONCLUSIVE",
    RunResult.BROKEN: "BROKEN",
    RunResult.NO_VERDICT: "DONE",
}
_ORDER: Final = (Role.FAULT, Role.EMULATOR, Role.JOB)
_CLOSE: Final = 1.1
"""Measured per expected time up to which there is no difference to explain."""


def render_answer(summary: Summary, page: str) -> str:
    """Return the answer; it ends with a newline. `page`: the place of the report.

    Its last five lines are one each, however long. A run that was stopped has the lines of its reason, such as the wait-for
    chain of a stall, above them.
    """
    reasons = summary.reason.splitlines() if summary.state is not RunEnd.DONE else []
    above = [line for reason in reasons if len(reasons) > 1 for line in label_text("", reason)]
    lines = (
        (_LABELS[summary.result], _result_words(summary)),
        ("job", _time_words(summary)),
        ("why", _cause_words(summary)),
        ("device", _device_words(summary.dut)),
        ("open", page),
    )
    answer = [f"{label:<{LABEL_WIDTH}}{printable(' '.join(text.split()))}" for label, text in lines]
    return "\n".join([*above, *answer]) + "\n"


def _result_words(summary: Summary) -> str:
    """Return the subject of the verdict and its conditions, then what failed or is open, else what is certain about packets and
    counters."""
    if summary.result is RunResult.BROKEN:
        return summary.failure.splitlines()[0]
    verdict = summary.verdict
    subject = "no verdict was asked for" if verdict is None else _subject_words(verdict)
    if verdict is not None and verdict.result is not Result.PASS:
        return f"{subject}: {verdict.reasons[0]}" if verdict.reasons else subject
    losses = "" if summary.losses is None else _loss_words(summary.losses)
    agreement = "" if summary.dut is None else _agreement_words(summary.dut)
    return "; ".join(filter(None, (subject, losses, agreement)))


def _subject_words(verdict: Verdict) -> str:
    """Return the device under test, or the run where no profile names one, and how many of its conditions hold."""
    total = len(verdict.checks)
    held = sum(condition.result is Result.PASS for condition in verdict.checks)
    return f"{verdict.device or 'the run'}: {held} of {total} conditions hold"


def _loss_words(losses: LossSummary) -> str:
    row = next(row for row in losses.rows if row.name == "all")
    if row.packets is None:
        return "how many packets were lost is not known"
    return (
        f"{row.packets} of {row.sent} packets not received"
        if row.packets
        else f"all {row.sent} packets received"
    )


def _agreement_words(device: DeviceSummary) -> str:
    rows = device.reconciliation
    if rows and all(row.agreement is Agreement.EXACT for row in rows):
        return "agents and device agree frame for frame"
    return agreement_words(device).removeprefix("of ")


def _choose_expectation(summary: Summary) -> tuple[int | None, str, float] | None:
    """Return the expected time of an iteration, its source, and measured per expected time; None without expectation."""
    if summary.comparison is None:
        return None
    job = summary.comparison.job
    if job.twin is not None and job.measured_per_twin is not None:
        return job.twin.iteration_jct_avg_ns, "by the twin", job.measured_per_twin
    if job.ideal is not None and job.measured_per_ideal is not None:
        return job.ideal.iteration_jct_avg_ns, "on an ideal network", job.measured_per_ideal
    return None


def _time_words(summary: Summary) -> str:
    """Return the mean time of an iteration, and the expected one."""
    if summary.job.iteration_jct_avg_ns is None:
        return "no iteration was completed"
    words = f"{time_words(summary.job.iteration_jct_avg_ns)} an iteration"
    expected = _choose_expectation(summary)
    if expected is None:
        return f"{words}; no expected time was computed"
    time_ns, source, ratio = expected
    return f"{words}; {time_words(time_ns)} expected {source} (x {ratio:.3g})"


def _cause_words(summary: Summary) -> str:
    """Return the first cause and how many more there are, faults of the network before lateness of the agents.

    Without any of both: what this machine lacked, then causes in the job, then that there is nothing to explain.
    """
    causes = sorted(causes_of(summary.diagnosis), key=lambda cause: _ORDER.index(cause.finding.role))
    if causes and (causes[0].finding.role is not Role.JOB or not summary.degraded):
        more = f" (and {len(causes) - 1} more: -v)" if len(causes) > 1 else ""
        return causes[0].finding.sentence + more
    if summary.degraded:
        return f"{merge_places(summary.degraded)[0]}; times may be the host's, not the device's"
    if summary.comparison is not None and summary.comparison.job.degraded:
        return summary.comparison.job.degraded[0]
    expected = _choose_expectation(summary)
    if expected is not None and expected[2] <= _CLOSE:
        return "as fast as expected"
    return f"no cause was found ({count_words(summary.diagnosis) or 'no diagnosis'})"


def _device_words(device: DeviceSummary | None) -> str:
    if device is None:
        return "no counters were read (dut: of the rig names their source)"
    return total_words(device) or "it counts neither drops nor marks nor pauses"
