"""A run in five lines: its result, its time against the expected one, why, what the device counted, and where to read more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from etloop.results.report.device import agreement_words, total_words
from etloop.results.report.findings import causes_of, count_words
from etloop.results.report.losses import loss_words
from etloop.results.report.values import merge_places, time_words
from etloop.results.schema.findings import Role
from etloop.results.schema.verdict import RunResult
from etloop.results.text.layout import label_text

if TYPE_CHECKING:
    from etloop.results.schema.losses import LossSummary
    from etloop.results.schema.summary import Summary

_LABELS: Final = {
    RunResult.PASS: "PASS",
    RunResult.FAIL: "FAIL",
    RunResult.INCONCLUSIVE: "INCONCLUSIVE",
    RunResult.BROKEN: "BROKEN",
    RunResult.NO_VERDICT: "DONE",
}
_ORDER: Final = (Role.FAULT, Role.EMULATOR, Role.JOB)


def render_answer(summary: Summary, page: str) -> str:
    """Return the answer; it ends with a newline. `page`: the place of the report."""
    device = summary.dut
    lines = [
        *label_text(_LABELS[summary.result], _result_words(summary)),
        *label_text("job", _time_words(summary)),
        *label_text("why", _cause_words(summary)),
        *label_text("device", "no device was read" if device is None else total_words(device)),
        *label_text("open", page),
    ]
    return "\n".join(lines) + "\n"


def _result_words(summary: Summary) -> str:
    """Return what failed or is open; else what is certain about packets and counters."""
    verdict = summary.verdict
    if summary.failure:
        return summary.failure.splitlines()[0]
    if verdict is not None and verdict.result.value != RunResult.PASS.value:
        return verdict.reasons[0]
    losses = "" if summary.losses is None else _loss_words(summary.losses)
    agreement = "" if summary.dut is None else agreement_words(summary.dut)
    return "; ".join(filter(None, (losses, agreement.removeprefix("of "))))


def _loss_words(losses: LossSummary) -> str:
    row = next(row for row in losses.rows if row.name == "all")
    return loss_words(losses) if row.packets else f"all {row.sent} packets were received"


def _time_words(summary: Summary) -> str:
    """Return the mean time of an iteration, and the expected one."""
    words = f"{time_words(summary.job.iteration_jct_avg_ns)} an iteration"
    job = None if summary.comparison is None else summary.comparison.job
    if job is None:
        return words
    for side, name, ratio in (
        (job.twin, "by the twin", job.measured_per_twin),
        (job.ideal, "on an ideal network", job.measured_per_ideal),
    ):
        if side is not None and ratio is not None:
            return f"{words}; {time_words(side.iteration_jct_avg_ns)} expected {name} (x {ratio:.3g})"
    return words


def _cause_words(summary: Summary) -> str:
    """Return the first cause, faults of the network before others; else how the run was degraded."""
    causes = sorted(causes_of(summary.diagnosis), key=lambda cause: _ORDER.index(cause.finding.role))
    if causes:
        return causes[0].finding.sentence
    if summary.degraded:
        return merge_places(summary.degraded)[0]
    return f"no cause was found ({count_words(summary.diagnosis)})"
