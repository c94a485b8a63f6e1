"""The page of a sweep: for every group of points a table, times, distributions and bandwidths beside each other.

Decides order, wording and bounds. Everything that a file or a trace named is escaped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

import numpy as np
import plotly.graph_objects as go
from etloop.results.compare.samples import Side
from etloop.results.compare.sweep_results import JCT, Group
from etloop.results.html.compare import (
    badge,
    carriers_part,
    change_figure,
    colour,
    completion_figure,
    differing_part,
    tested_table,
    verdict_part,
)
from etloop.results.html.page import page, table
from etloop.results.html.plots import piece
from etloop.results.schema.comparison import ComparisonSettings
from etloop.results.schema.sweep import PointResult, SweepRecord
from etloop.results.schema.verdict import RunResult
from etloop.results.text.sweep import TITLES, change_cells, figure_cells, promise, shown_columns

MOST_GROUPS: Final = 40
"""That are drawn; all are in the table of sweep.json."""
MOST_DETAILS: Final = 60
"""Comparisons that are told in full."""


def sweep_html(
    record: SweepRecord, found: Sequence[Group], sides: Mapping[str, Side], settings: ComparisonSettings
) -> str:
    """The page."""
    results = {one.name: one for one in record.results}
    parts = [_head(record), f"<p class=dim>{escape(promise(settings))}.</p>"]
    if len(found) > 1:
        parts += ["<h2>All groups</h2>", piece(overview_figure(record, found, results), "overview")]
    for number, group in enumerate(found[:MOST_GROUPS]):
        parts.append(_group(record, group, results, sides, number))
    if len(found) > MOST_GROUPS:
        parts.append(f"<p class=dim>{len(found) - MOST_GROUPS} more groups are in sweep.json.</p>")
    parts.append(_details(found, record.compare))
    parts.append(_broken(record))
    return page(f"ETLoop sweep: {record.source}", parts)


def _head(record: SweepRecord) -> str:
    about = (
        f"{len(record.points)} points, {record.repeats} runs each, {len(record.runs)} done; {record.mode}; {record.order} (seed "
        f"{record.seed}); settings of {record.compare} are held against the first"
    )
    return f"<h1>Sweep {escape(record.source)}</h1><p class=dim>{escape(about)}</p>"


def overview_figure(record: SweepRecord, found: Sequence[Group], results: Mapping[str, PointResult]) -> Any:
    """The job's time by setting, of every group against its first point."""
    figure = go.Figure()
    for number, group in enumerate(found[:MOST_GROUPS]):
        there = [point for point in group.points if point.name in results]
        if not there or there[0] is not group.points[0]:
            continue
        base = _jct(results[there[0].name])
        figure.add_trace(
            go.Scatter(
                x=[escape(point.labels[record.compare]) for point in there],
                y=[_jct(results[point.name]) / base for point in there],
                name=escape(group.words),
                mode="lines+markers",
                line={"color": colour(number)},
            )
        )
    figure.update_layout(
        height=400,
        xaxis={"title": escape(record.compare), "type": "category"},
        yaxis={"title": "iteration, of the first setting's", "rangemode": "tozero"},
    )
    return figure


def _group(
    record: SweepRecord,
    group: Group,
    results: Mapping[str, PointResult],
    sides: Mapping[str, Side],
    number: int,
) -> str:
    there = [
        (point.labels[record.compare], sides[point.name]) for point in group.points if point.name in sides
    ]
    title = escape(group.words or record.compare)
    parts = [f"<h2>{title}</h2>", _table(record, group, results)]
    if there:
        parts.append(piece(times_figure(there), f"times{number}"))
        parts.append(piece(completion_figure(there), f"completion{number}"))
        parts.append(piece(bandwidth_figure(there), f"bandwidth{number}"))
    return "".join(parts)


def _table(record: SweepRecord, group: Group, results: Mapping[str, PointResult]) -> str:
    shown = shown_columns(group, results)
    rows = []
    for point in group.points:
        label = f"<b>{escape(point.labels[record.compare])}</b> <span class=dim>{point.name}</span>"
        result = results.get(point.name)
        if result is None:
            rows.append((label, "0", *("" for _ in range(5 + len(shown))), "no run"))
            continue
        change, interval, word = change_cells(result)
        rows.append(
            (
                label,
                *figure_cells(result, shown),
                change,
                interval,
                "" if result.outcome is None else badge(result.outcome),
                f"<span class=dim>{escape(word)}</span>",
            )
        )
    titles = (TITLES[name] for name in shown)
    heads = (record.compare, "runs", "iteration", "CV", *titles, "change", "interval", "", "")
    return table(heads, rows, numbers=range(1, len(heads) - 2))


def times_figure(there: Sequence[tuple[str, Side]]) -> Any:
    """The job's time of every run, a colour a setting."""
    figure = go.Figure()
    for number, (label, side) in enumerate(there):
        figure.add_trace(
            go.Box(
                y=[float(run.jct_ns.mean()) / 1000 for run in side.runs],
                name=escape(label),
                boxpoints="all",
                boxmean=True,
                pointpos=0,
                text=[escape(name) for name in side.repeats],
                marker={"color": colour(number)},
                showlegend=False,
            )
        )
    figure.update_layout(height=380, yaxis={"title": "iteration, mean of a run (us)", "rangemode": "tozero"})
    return figure


def bandwidth_figure(there: Sequence[tuple[str, Side]]) -> Any:
    """Bus bandwidth by kind of collective, a colour a setting."""
    figure = go.Figure()
    kinds = sorted({kind for _, side in there for run in side.runs for kind in run.kind_bytes_per_s})
    for number, (label, side) in enumerate(there):
        values = [
            [run.kind_bytes_per_s[kind] / 1e9 for run in side.runs if kind in run.kind_bytes_per_s]
            for kind in kinds
        ]
        figure.add_trace(
            go.Bar(
                x=[escape(kind) for kind in kinds],
                y=[float(np.mean(one)) if one else None for one in values],
                error_y={
                    "type": "data",
                    "array": [float(np.std(one, ddof=1)) if len(one) > 1 else 0 for one in values],
                },
                name=escape(label),
                marker={"color": colour(number)},
            )
        )
    figure.update_layout(
        height=380, barmode="group", yaxis={"title": "bus bandwidth, all members present (GB/s)"}
    )
    return figure


def _details(found: Sequence[Group], axis: str) -> str:
    parts = ["<h2>In full</h2>"]
    shown = [(group, name, held) for group in found for name, held in group.comparisons.items()]
    for number, (group, name, held) in enumerate(shown[:MOST_DETAILS]):
        labels = {point.name: point.labels[axis] for point in group.points}
        title = f"{labels[name]} against {labels[group.points[0].name]}{': ' + group.words if group.words else ''}"
        parts.append(
            f"<details><summary>{badge(held.verdict)} {escape(title)} <span class=dim>{name}</span></summary>"
            f"{verdict_part(held)}{piece(change_figure(held.metrics), f'changes{number}')}{tested_table(held)}"
            f"{carriers_part(held)}{differing_part(held)}</details>"
        )
    if len(shown) > MOST_DETAILS:
        parts.append(
            f"<p class=dim>{len(shown) - MOST_DETAILS} more: etloop compare POINT POINT tells each.</p>"
        )
    return "".join(parts)


def _broken(record: SweepRecord) -> str:
    rows = [
        (one.point, str(one.repeat), escape(one.reason))
        for one in record.runs
        if one.result is RunResult.BROKEN
    ]
    return (
        f"<h2>Runs that broke off</h2>{table(('point', 'repeat', 'why'), rows[:MOST_DETAILS])}"
        if rows
        else ""
    )


def _jct(result: PointResult) -> float:
    return next(one.mean for one in result.figures if one.name == JCT)
