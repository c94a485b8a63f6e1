"""The part of report.html about several jobs and background; nothing in a run of one job. Decides its wording."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from etloop.contract.model.run import LinkEvent
from etloop.results.html.job_plots import bandwidth_figure, completion_by_phase
from etloop.results.html.page import listed, table
from etloop.results.html.plots import piece
from etloop.results.kpis.input import KpiInput
from etloop.results.measure.timeline import event_words
from etloop.results.schema.jobs import JobShare, PhaseTimes
from etloop.results.schema.summary import Summary
from etloop.results.text.jobs import stream_words
from etloop.results.text.units import bytes_words, share_words, time_words


def jobs_section(given: KpiInput, summary: Summary) -> str:
    """Tables and plots of the jobs; "" where the run is of one."""
    streams = listed(f"{one.name}: {stream_words(one)}" for one in summary.streams)
    udp = f"<h2>Background of plain UDP</h2>{streams}" if streams else ""
    if not summary.jobs:
        return udp
    jobs = [one for one in summary.jobs if not one.background]
    parts = ["<h2>Jobs side by side</h2>"]
    heads = ("job", "ranks", "JCT alone", "JCT together", "interference factor", "by round", "beside others")
    parts.append(table(heads, [_job_row(one) for one in jobs], numbers=(1, 2, 3, 4, 6)))
    if any(one.interference is not None for one in jobs):
        parts.append(
            "<p class=dim>JCT: mean (least to greatest) over rounds. Interference factor: time together / time alone of the "
            "same round, mean over rounds. Beside others: share of a job's time together in which another was under way; below "
            "100 % the factor is diluted.</p>"
        )
    background = [one for one in summary.jobs if one.background]
    if background:
        columns = ("background", "ranks", "ops", "through the device", "from", "to")
        parts.append(table(columns, [_background_row(one) for one in background], numbers=range(1, 6)))
        parts.append("<p class=dim>Background is in no figure of a job; it ended with the jobs.</p>")
    for title, figure, name in (
        ("Bus bandwidth, round by round", bandwidth_figure(given), "jobs-busbw"),
        ("Completion, alone and together", completion_by_phase(given), "jobs-completion"),
    ):
        if figure is not None and jobs:
            parts.append(f"<h3>{title}</h3>{piece(figure, name)}")
    return "".join([*parts, udp])


def events_list(events: Sequence[LinkEvent]) -> str:
    """What became of the timeline; "" where there was none."""
    return f"<h2>Timeline</h2>{listed(map(event_words, events))}" if events else ""


def _job_row(one: JobShare) -> tuple[str, ...]:
    factor, spread = "-", "-"
    if one.interference is not None:
        factor = f"<b>{one.interference:.3f}</b> ({one.interference_min:.3f} to {one.interference_max:.3f})"
        shown = [f"{value:.2f}" for value in one.interference_by_round[:20]]
        spread = ", ".join(shown) + (" ..." if len(one.interference_by_round) > len(shown) else "")
    ranks = f"{one.first_rank}-{one.first_rank + one.ranks - 1}"
    return (
        escape(one.name), ranks, _times(one.alone), _times(one.together), factor, spread, share_words(one.beside_share),
    )  # fmt: skip


def _times(one: PhaseTimes | None) -> str:
    if one is None:
        return "-"
    return f"{time_words(one.jct_avg_ns)} ({time_words(one.jct_min_ns)} to {time_words(one.jct_max_ns)})"


def _background_row(one: JobShare) -> tuple[str, ...]:
    ranks = f"{one.first_rank}-{one.first_rank + one.ranks - 1}"
    ops = f"{one.ops_recorded} of {one.ops_planned}"
    sent = bytes_words(one.sent_bytes)
    return (escape(one.name), ranks, ops, sent, time_words(one.start_ns), time_words(one.end_ns))
