"""The page of a device's history: for every job its changes, and one line per figure over the runs.

Decides order, wording and limits. Templates escape everything that a file named.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.results.html.blocks import (
    Block,
    Fact,
    LegendEntry,
    Page,
    Plot,
    Section,
    Text,
    listing,
    table_blocks,
)
from etloop.results.html.drawing import NARROW, WIDE, Axis, Moment, Plotted, Steps, draw
from etloop.results.html.render import render
from etloop.results.report.trend import changes_table, false_alarm_words, figures_table, verdict_words

if TYPE_CHECKING:
    from etloop.results.schema.trend import FigureLine, JobHistory, Trend

MOST_JOBS: Final = 40
MOST_LINES: Final = 80
_MEASURED: Final = 0
_LEVEL: Final = 1


def trend_html(trend: Trend) -> str:
    """Return the page."""
    badge = "fail" if trend.worse else "pass" if trend.histories else "inconclusive"
    sections = (
        Section("worse", "Worse figures", listing(trend.worse)),
        *(
            Section(f"job{number}", history.job, _job(history, number))
            for number, history in enumerate(trend.histories[:MOST_JOBS])
        ),
        Section("short", "Jobs with too few runs", listing(trend.too_short)),
        Section("left-out", "Runs left out", listing(trend.left_out[:MOST_LINES])),
    )
    subtitle = "One line per figure over the runs; changes are dated to the run"
    facts = (Fact("least effect", f"{trend.least_effect:.1%}"), Fact("since", trend.since or "the first run"))
    return render(
        Page(f"ETLoop trend: {trend.source}", subtitle, badge, verdict_words(trend), facts, sections)
    )


def _job(history: JobHistory, number: int) -> tuple[Block, ...]:
    changes = table_blocks(changes_table(history)) or (Text(f"No change. {false_alarm_words(history)}"),)
    figures = figures_table(history)
    by_name = {line.name: line for line in history.figures}
    lines = [by_name[str(row[0])] for row in figures.rows[:MOST_LINES]]
    return (
        *changes,
        *listing(history.warnings, "Warnings:"),
        *table_blocks(figures, MOST_LINES),
        *(_plot(history, line, f"line{number}-{place}") for place, line in enumerate(lines)),
    )


def _plot(history: JobHistory, line: FigureLine, name: str) -> Plot:
    """Return one figure over the runs, with its level and its changes; runs without it keep the value before."""
    values = np.array([math.nan if value is None else value for value in line.values])
    known = np.flatnonzero(~np.isnan(values))
    starts = [at for at, level in zip((0, *line.changes), line.levels, strict=True) if level is not None]
    levels = [level for level in line.levels if level is not None]
    steps = (
        Steps("value of the run", _MEASURED, np.asarray(known + 1.0, np.float64), values[known]),
        Steps(
            "level (median)",
            _LEVEL,
            np.array([at + 1.0 for at in (*starts, len(values))], np.float64),
            np.array([*levels, *levels[-1:]], np.float64),
            is_dashed=True,
        ),
    )
    moments = tuple(
        Moment(
            f"{history.runs[at].at}: {history.runs[at].version or history.runs[at].place}", at + 1.0, "down"
        )
        for at in line.changes
    )
    axis = Axis("run", 1, len(values) + 1.0, moments=moments)
    panels = (Plotted(f"{line.name} ({line.unit})", steps),)
    dates = "; ".join(moment.name for moment in moments)
    return Plot(
        name=name,
        title=f"{line.name}: {line.words}",
        description=f"{len(known)} runs, {len(line.changes)} changes.",
        wide=draw(panels, axis, WIDE),
        narrow=draw(panels, axis, NARROW),
        legend=tuple(LegendEntry(step.name, step.colour) for step in steps),
        note=f"Changes: {dates}." if dates else "",
    )
