"""The lines on several jobs in the table that is printed after a run. Wording only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from etloop.results.schema.summary import StreamWord
from etloop.results.text.layout import aligned, printable, us

if TYPE_CHECKING:
    from etloop.results.schema.summary import StreamSummary, Summary

_HEADINGS: Final = (
    ("", "", "JCT (us)", "", "", "interference factor", "", "", "beside"),
    ("job", "ranks", "alone", "together", "rounds", "mean", "min", "max", "others"),
)
_NAME_LIMIT: Final = 20


FORM_WORDS: Final = {StreamWord.UDP: "plain UDP", StreamWord.UUD: "UUD of UET"}


def stream_words(one: StreamSummary) -> str:
    """Return how many datagrams of a stream were sent and received, in words."""
    if one.sent_datagrams is None or one.received_datagrams is None:
        return "an end of it did not tell"
    text = f"{one.sent_datagrams} datagrams sent, {one.received_datagrams} received"
    lost = one.sent_datagrams - one.received_datagrams
    text += f" ({lost / one.sent_datagrams:.2%} lost)" if one.sent_datagrams else ""
    return text + (f"; {one.left_out} left out, the agent was too slow" if one.left_out else "")


def job_lines(summary: Summary) -> list[str]:
    """Return the table of jobs and the lines on background; no lines for a run of one job without background."""
    streams = [
        f"background {printable(stream.name)[:_NAME_LIMIT]}: {FORM_WORDS[stream.form]}, {stream_words(stream)}"
        for stream in summary.streams
    ]
    if not summary.jobs:
        return [*streams, ""] if streams else []
    rows: list[tuple[str, ...]] = [*_HEADINGS]
    for job in summary.jobs:
        if job.background:
            continue
        factor = (job.interference, job.interference_min, job.interference_max)
        rows.append(
            (
                printable(job.name)[:_NAME_LIMIT],
                str(job.ranks),
                us(job.alone.jct_avg_ns if job.alone else None),
                us(job.together.jct_avg_ns if job.together else None),
                str(job.together.count if job.together else 0),
                *("-" if value is None else f"{value:.3f}" for value in factor),
                "-" if job.beside_share is None else f"{job.beside_share:.0%}",
            )
        )
    lines = aligned(rows, (0,))
    for job in summary.jobs:
        if job.background:
            span = (
                "nothing was recorded of it"
                if job.start_ns is None
                else f"{us(job.start_ns)} to {us(job.end_ns)} us"
            )
            traffic_words = (
                f"{job.sent_bytes / 1e6:.4g} MB through the device in {job.ops_recorded} ops, {span}"
            )
            lines.append(
                f"background {printable(job.name)[:_NAME_LIMIT]}: {traffic_words}; in no figure above or below"
            )
    return [*lines, *streams, ""]
