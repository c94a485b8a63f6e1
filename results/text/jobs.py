"""The lines about several jobs in the table that a person reads after a run. Wording only."""

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
    """What became of a stream of datagrams."""
    if one.sent_datagrams is None or one.received_datagrams is None:
        return "an end of it did not tell"
    text = f"{one.sent_datagrams} datagrams sent, {one.received_datagrams} received"
    lost = one.sent_datagrams - one.received_datagrams
    text += f" ({lost / one.sent_datagrams:.2%} lost)" if one.sent_datagrams else ""
    return text + (f"; {one.left_out} left out, the agent was too slow" if one.left_out else "")


def job_lines(summary: Summary) -> list[str]:
    """A table of jobs, and what background there was; nothing in a run of one job."""
    streams = [
        f"background {printable(one.name)[:_NAME_LIMIT]}: {FORM_WORDS[one.form]}, {stream_words(one)}"
        for one in summary.streams
    ]
    if not summary.jobs:
        return [*streams, ""] if streams else []
    rows: list[tuple[str, ...]] = [*_HEADINGS]
    for one in summary.jobs:
        if one.background:
            continue
        factor = (one.interference, one.interference_min, one.interference_max)
        rows.append(
            (
                printable(one.name)[:_NAME_LIMIT],
                str(one.ranks),
                us(one.alone.jct_avg_ns if one.alone else None),
                us(one.together.jct_avg_ns if one.together else None),
                str(one.together.count if one.together else 0),
                *("-" if value is None else f"{value:.3f}" for value in factor),
                "-" if one.beside_share is None else f"{one.beside_share:.0%}",
            )
        )
    lines = aligned(rows, (0,))
    for one in summary.jobs:
        if one.background:
            span = (
                "nothing was recorded of it"
                if one.start_ns is None
                else f"{us(one.start_ns)} to {us(one.end_ns)} us"
            )
            moved = f"{one.sent_bytes / 1e6:.4g} MB through the device in {one.ops_recorded} ops, {span}"
            lines.append(
                f"background {printable(one.name)[:_NAME_LIMIT]}: {moved}; in no figure above or below"
            )
    return [*lines, *streams, ""]
