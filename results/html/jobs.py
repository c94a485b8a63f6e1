"""The part of report.html about several jobs and background; nothing in a run of one job.

Decides its wording, and what is drawn: bus bandwidth of collectives round by round, completion times alone and together.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np
from etloop.results.html.blocks import Block, Cell, Plot, Text, listing, table
from etloop.results.html.distribution import completion_plot, round_plot
from etloop.results.html.drawing import Steps
from etloop.results.html.lanes import COLOURS
from etloop.results.kpis.job import curve
from etloop.results.measure.timeline import event_words
from etloop.results.schema.jobs import JobShare, Phase, PhaseTimes
from etloop.results.schema.kinds import CONVENTIONS, SEND_RECV
from etloop.results.text.jobs import FORM_WORDS, stream_words
from etloop.results.text.units import bytes_words, share_words, time_words

if TYPE_CHECKING:
    from etloop.results.kpis.input import KpiInput
    from etloop.results.schema.summary import Summary
    from etloop.results.verdict.evaluation import Frame
    from numpy.typing import NDArray

MOST_POINTS: Final = 4096


def job_blocks(given: KpiInput, summary: Summary) -> tuple[Block, ...]:
    """Return tables and plots of the jobs; only streams of plain UDP where the run is of one."""
    streams = listing(
        tuple(f"{one.name}: {FORM_WORDS[one.form]}, {stream_words(one)}" for one in summary.streams),
        "Background of datagrams:",
    )
    if not summary.jobs:
        return streams
    jobs = [one for one in summary.jobs if not one.background]
    heads = ("job", "ranks", "JCT alone", "JCT together", "interference factor", "by round", "beside others")
    blocks: list[Block] = [
        *table("Jobs alone and together", heads, [_job_row(one) for one in jobs], (1, 2, 3, 4, 6))
    ]
    if any(one.interference is not None for one in jobs):
        words = (
            "JCT: mean (least to greatest) over rounds. Interference factor: time together / time alone of the "
            "same round, mean over rounds. Beside others: share of a job's time together in which another was under way; "
            "below 100 % the factor is diluted."
        )
        blocks.append(Text(words, is_dim=True))
    background = [_background_row(one) for one in summary.jobs if one.background]
    if background:
        columns = ("background", "ranks", "ops", "through the device", "from", "to")
        blocks += table("Background", columns, list(background), range(1, 6))
        blocks.append(Text("Background is in no figure of a job; it ended with the jobs.", is_dim=True))
    if jobs:
        blocks += [one for one in (bandwidth_plot(given), completion_by_phase(given)) if one is not None]
    return (*blocks, *streams)


def event_blocks(summary: Summary) -> tuple[Block, ...]:
    """Return the links that were to go down or come up."""
    return listing(tuple(event_words(one) for one in summary.timeline))


def _job_row(one: JobShare) -> tuple[str | Cell, ...]:
    factor, spread = Cell("-"), "-"
    if one.interference is not None:
        note = f"{one.interference_min:.3f} to {one.interference_max:.3f}"
        factor = Cell(f"{one.interference:.3f}", note=note, is_strong=True)
        shown = [f"{value:.2f}" for value in one.interference_by_round[:20]]
        spread = ", ".join(shown) + (" ..." if len(one.interference_by_round) > len(shown) else "")
    ranks = f"{one.first_rank}-{one.first_rank + one.ranks - 1}"
    return (
        one.name, ranks, _times(one.alone), _times(one.together), factor, spread, share_words(one.beside_share),
    )  # fmt: skip


def _times(one: PhaseTimes | None) -> str:
    if one is None:
        return "-"
    return f"{time_words(one.jct_avg_ns)} ({time_words(one.jct_min_ns)} to {time_words(one.jct_max_ns)})"


def _background_row(one: JobShare) -> tuple[str, ...]:
    ranks = f"{one.first_rank}-{one.first_rank + one.ranks - 1}"
    ops = f"{one.ops_recorded} of {one.ops_planned}"
    sent = bytes_words(one.sent_bytes)
    return (one.name, ranks, ops, sent, time_words(one.start_ns), time_words(one.end_ns))


def bandwidth_plot(given: KpiInput) -> Plot | None:
    """Return bus bandwidth of every collective that has one, in the order in which they ran, by job and kind."""
    frame = given.frames["collectives"]
    busbw = given.column("collectives", "busbw_bytes_per_s")
    lines = []
    for colour, (name, phase, rows) in enumerate(_series(frame, ~np.isnan(busbw))):
        chosen = rows[np.argsort(given.column("collectives", "start_ns")[rows], kind="stable")][:MOST_POINTS]
        together = phase == Phase.TOGETHER
        lines.append(
            Steps(f"{name}, {phase}", colour, _places(given, chosen), busbw[chosen] / 1e9, is_dashed=together)
        )
    return round_plot(tuple(lines), "jobs-busbw", "Bus bandwidth, round by round", "GB/s")


def completion_by_phase(given: KpiInput) -> Plot | None:
    """Return distributions of the times of collectives by job, kind and phase."""
    taken = given.column("collectives", "time_ns")
    series = _series(given.frames["collectives"], np.ones(len(taken), np.bool_))
    curves = (
        (curve(f"{name}, {phase}", taken[rows]), phase == Phase.TOGETHER) for name, phase, rows in series
    )
    return completion_plot(curves, "jobs-completion", "Completion of collectives, alone and together")


def _series(frame: Frame, usable: NDArray[np.bool_]) -> Iterator[tuple[str, str, NDArray[np.int64]]]:
    """(job and kind, phase, rows) of complete collectives, at most `COLOURS`."""
    columns = frame.columns
    usable = usable & (columns["complete"] == 1)
    keys = list(zip(columns["job"], columns["kind"], columns["phase"], strict=True))
    # A pair of send and receive is no collective; its bandwidth is in flows and goodput.
    pair = CONVENTIONS[SEND_RECV].name
    wanted = [key for key in dict.fromkeys(keys) if key[1] != pair or all(one[1] == pair for one in keys)]
    for job, kind, phase in wanted[:COLOURS]:
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
