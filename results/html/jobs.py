"""The part of report.html about several jobs and background; nothing in a run of one job.

Decides its wording, and what is drawn: bus bandwidth of collectives round by round, completion times alone and together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Any, Final

import numpy as np
import plotly.graph_objects as go
from etloop.contract.model.run import LinkEvent
from etloop.results.html.page import listed, table
from etloop.results.html.plots import distributions, piece
from etloop.results.kpis.input import KpiInput
from etloop.results.kpis.job import curve
from etloop.results.measure.timeline import event_words
from etloop.results.schema.jobs import JobShare, PhaseTimes
from etloop.results.schema.kinds import CONVENTIONS, SEND_RECV
from etloop.results.schema.summary import Summary
from etloop.results.text.jobs import stream_words
from etloop.results.text.units import bytes_words, share_words, time_words
from etloop.results.verdict.evaluation import Frame
from numpy.typing import NDArray

MOST_SERIES: Final = 16
MOST_POINTS: Final = 4096
_DASHES: Final = {"alone": "solid", "together": "dash"}


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


def bandwidth_figure(given: KpiInput) -> Any | None:
    """Bus bandwidth of every collective that has one, in the order in which they ran, by job and kind; alone and together."""
    frame = given.frames["collectives"]
    busbw = given.column("collectives", "busbw_bytes_per_s")
    figure = go.Figure()
    for name, phase, rows in _series(frame, ~np.isnan(busbw)):
        chosen = rows[np.lexsort((given.column("collectives", "start_ns")[rows],))][:MOST_POINTS]
        place = _places(given, chosen)
        figure.add_trace(
            go.Scatter(x=place, y=busbw[chosen] / 1e9, name=escape(f"{name}, {phase}"), mode="lines+markers",
                       line={"dash": _DASHES.get(phase, "dot")})
        )  # fmt: skip
    figure.update_layout(
        height=380, xaxis={"title": "round"}, yaxis={"title": "busbw (GB/s)", "rangemode": "tozero"}
    )
    return figure if figure.data else None


def completion_by_phase(given: KpiInput) -> Any | None:
    """Distributions of the times of collectives by job, kind and phase."""
    taken = given.column("collectives", "time_ns")
    series = _series(given.frames["collectives"], np.ones(len(taken), np.bool_))
    return distributions(
        (curve(f"{name}, {phase}", taken[rows]), {"line_dash": _DASHES.get(phase, "dot")})
        for name, phase, rows in series
    )


def _series(frame: Frame, usable: NDArray[np.bool_]) -> Iterator[tuple[str, str, NDArray[np.int64]]]:
    """(job and kind, phase, rows) of complete collectives, at most `MOST_SERIES`."""
    columns = frame.columns
    usable = usable & (columns["complete"] == 1)
    keys = list(zip(columns["job"], columns["kind"], columns["phase"], strict=True))
    # A pair of send and receive is no collective; its bandwidth is in flows and goodput.
    pair = CONVENTIONS[SEND_RECV].name
    wanted = [key for key in dict.fromkeys(keys) if key[1] != pair or all(one[1] == pair for one in keys)]
    for job, kind, phase in wanted[:MOST_SERIES]:
        rows = np.array([key == (job, kind, phase) for key in keys], np.bool_) & usable
        if rows.any():
            yield f"{job}: {kind}", str(phase), np.flatnonzero(rows)


def _places(given: KpiInput, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """On the axis of rounds: collectives of one round evenly within it."""
    rounds = given.column("collectives", "iteration")[rows]
    places = rounds.astype(np.float64)
    for one in np.unique(rounds):
        own = np.flatnonzero(rounds == one)
        places[own] += np.arange(len(own)) / max(len(own), 1)
    return places + 1
