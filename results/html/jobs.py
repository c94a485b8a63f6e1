"""The section of report.html on several jobs and background; empty for a run of one job.

Decides its wording, and the drawings: bus bandwidth of collectives by round, completion times alone and together.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.results.html.blocks import Block, Plot, listing, table_blocks
from etloop.results.html.distribution import completion_plot, round_plot
from etloop.results.html.drawing import Steps
from etloop.results.html.lanes import COLOURS
from etloop.results.kpis.job import curve
from etloop.results.measure.timeline import event_words
from etloop.results.report.jobs import background_table, jobs_table
from etloop.results.report.run import stream_words
from etloop.results.schema.jobs import Phase
from etloop.results.schema.kinds import CONVENTIONS, SEND_RECV

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.results.kpis.input import KpiInput
    from etloop.results.schema.summary import Summary
    from etloop.results.verdict.evaluation import Frame

MOST_POINTS: Final = 4096


def job_blocks(inputs: KpiInput, summary: Summary) -> tuple[Block, ...]:
    """Return tables and plots of the jobs; for a run of one job only its streams of datagrams."""
    streams = listing(tuple(map(stream_words, summary.streams)), "Background of datagrams:")
    if not summary.jobs:
        return streams
    jobs = jobs_table(summary)
    plots = (bandwidth_plot(inputs), completion_by_phase(inputs)) if jobs.rows else ()
    return (
        *table_blocks(jobs),
        *table_blocks(background_table(summary)),
        *(plot for plot in plots if plot is not None),
        *streams,
    )


def event_blocks(summary: Summary) -> tuple[Block, ...]:
    """Return the scheduled link events."""
    return listing(tuple(event_words(event) for event in summary.timeline))


def bandwidth_plot(inputs: KpiInput) -> Plot | None:
    """Return the bus bandwidth of every collective that has one, in the order of their start, by job and kind."""
    frame = inputs.frames["collectives"]
    busbw = inputs.column("collectives", "busbw_bytes_per_s")
    lines = []
    for colour, (name, phase, rows) in enumerate(_series(frame, ~np.isnan(busbw))):
        ordered_rows = rows[np.argsort(inputs.column("collectives", "start_ns")[rows], kind="stable")][
            :MOST_POINTS
        ]
        together = phase == Phase.TOGETHER
        lines.append(
            Steps(
                f"{name}, {phase}",
                colour,
                _places(inputs, ordered_rows),
                busbw[ordered_rows] / 1e9,
                is_dashed=together,
            )
        )
    return round_plot(tuple(lines), "jobs-busbw", "Bus bandwidth, round by round", "GB/s")


def completion_by_phase(inputs: KpiInput) -> Plot | None:
    """Return distributions of the times of collectives by job, kind and phase."""
    times_ns = inputs.column("collectives", "time_ns")
    series = _series(inputs.frames["collectives"], np.ones(len(times_ns), np.bool_))
    curves = (
        (curve(f"{name}, {phase}", times_ns[rows]), phase == Phase.TOGETHER) for name, phase, rows in series
    )
    return completion_plot(curves, "jobs-completion", "Completion of collectives, alone and together")


def _series(frame: Frame, usable: NDArray[np.bool_]) -> Iterator[tuple[str, str, NDArray[np.int64]]]:
    """Yield (job and kind, phase, rows) of complete collectives, at most `COLOURS` series."""
    columns = frame.columns
    usable = usable & (columns["complete"] == 1)
    keys = list(zip(columns["job"], columns["kind"], columns["phase"], strict=True))
    # A pair of send and receive is not a collective; flows and goodput show its bandwidth.
    pair = CONVENTIONS[SEND_RECV].name
    series_keys = [
        key
        for key in dict.fromkeys(keys)
        if key[1] != pair or all(key_of_row[1] == pair for key_of_row in keys)
    ]
    for job, kind, phase in series_keys[:COLOURS]:
        rows = np.array([key == (job, kind, phase) for key in keys], np.bool_) & usable
        if rows.any():
            yield f"{job}: {kind}", str(phase), np.flatnonzero(rows)


def _places(inputs: KpiInput, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return positions on the axis of rounds (float64); collectives of one round are evenly spaced within it."""
    rounds = inputs.column("collectives", "iteration")[rows]
    places = rounds.astype(np.float64)
    for round_number in np.unique(rounds):
        rows_of_round = np.flatnonzero(rounds == round_number)
        places[rows_of_round] += np.arange(len(rows_of_round)) / max(len(rows_of_round), 1)
    return places + 1
