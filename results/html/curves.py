"""Plotly figures of a run over time: queues of the device, rates and windows of queue pairs, ops of ranks.

Decides which lines are drawn (the fullest queues, the queue pairs that carried most) and in which units; axes start at
the start of the job. Report and notebook draw the same figures.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from etloop.results.kpis.transfers import begin_ns

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.results.verdict.evaluation import Frame

MOST_LINES: Final = 8
MOST_POINTS: Final = 2_000
"""Most points of a line: more than a screen has columns."""
MOST_BARS: Final = 5_000
_CONTROLLED: Final = (
    ("rate_bps", 1e9, "rate allowed (Gbit/s)"),
    ("window_bytes", 1e3, "window (kB)"),
    ("rtt_ns", 1e3, "round trip (us)"),
)
_COLOURS: Final = (
    *("#1f77b4", "#d62728", "#2ca02c", "#9467bd"),
    *("#ff7f0e", "#17becf", "#8c564b", "#e377c2"),
)
"""One colour for each queue or queue pair, in all its lines."""
_TIME_AXIS: Final = "time of the run (ms)"
_NS_PER_MS: Final = 1e6


def queue_figure(queues: Frame, most: int = MOST_LINES) -> Any:
    """Return a figure of the bytes in the fullest queues of the device over time, with marks and drops of each below it."""
    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.08, row_heights=[0.65, 0.35],
                           subplot_titles=["queued (kB)", "ECN marks and drops between two samples"])  # fmt: skip
    columns = queues.columns
    place = [f"{switch}/{port}" for switch, port in zip(columns["switch"], columns["port"], strict=True)]
    lanes = _rows_of([f"{name} class {cos:.0f}" for name, cos in zip(place, columns["cos"], strict=True)])
    depth = _numbers(queues, "queued_bytes")
    fullest = sorted(lanes, key=lambda name: -depth[lanes[name]].max())[:most]
    times_ns = _numbers(queues, "time_ns")
    for number, name in enumerate(fullest):
        rows, colour = lanes[name], _COLOURS[number % len(_COLOURS)]
        sample_rows = _sample_indices(len(rows))
        times = times_ns[rows][sample_rows] / _NS_PER_MS
        style = {"shape": "hv", "color": colour}
        most_queued = np.maximum.reduceat(depth[rows], sample_rows) / 1e3
        figure.add_trace(
            go.Scatter(x=times, y=most_queued, name=escape(name), legendgroup=name, line=style), row=1, col=1
        )
        for column, event_words, dash in (
            ("marked_packets", "marks", "solid"),
            ("dropped_packets", "drops", "dot"),
        ):
            event_counts = np.maximum(np.diff(_numbers(queues, column)[rows][sample_rows], prepend=0.0), 0)
            if event_counts.any():
                line = go.Scatter(
                    x=times,
                    y=event_counts,
                    name=escape(f"{name}: {event_words}"),
                    legendgroup=name,
                    line=style | {"dash": dash},
                )
                figure.add_trace(line, row=2, col=1)
    figure.update_xaxes(title_text=_TIME_AXIS, row=2, col=1)
    return _apply_style(figure, 480)


def control_figure(rates: Frame, most: int = MOST_LINES) -> Any:
    """Return a figure of rate, window and round trip of queue pairs over time, as far as their congestion control has
    them.

    The busiest queue pair of every pair of ranks comes before the second one of any pair.
    """
    columns = rates.columns
    ends = zip(columns["src_rank"], columns["dst_rank"], columns["local_qpn"], strict=True)
    pairs = _rows_of([f"{src:.0f} to {dst:.0f}, QP {qpn:.0f}" for src, dst, qpn in ends])
    panels = [
        column_and_unit
        for column_and_unit in _CONTROLLED
        if (np.nan_to_num(_numbers(rates, column_and_unit[0])) > 0).any()
    ] or _CONTROLLED[:1]
    figure = make_subplots(rows=len(panels), cols=1, shared_xaxes=True, vertical_spacing=0.08,
                           subplot_titles=[words for _, _, words in panels])  # fmt: skip
    for number, name in enumerate(_order_by_turn(pairs, _numbers(rates, "acked_bytes"))[:most]):
        rows = pairs[name][_sample_indices(len(pairs[name]))]
        times = _numbers(rates, "time_ns")[rows] / _NS_PER_MS
        for row, (column, unit, _) in enumerate(panels, 1):
            line = go.Scatter(
                x=times,
                y=_numbers(rates, column)[rows] / unit,
                name=escape(name),
                legendgroup=name,
                showlegend=row == 1,
                line={"shape": "hv", "color": _COLOURS[number % len(_COLOURS)]},
            )
            figure.add_trace(line, row=row, col=1)
    figure.update_xaxes(title_text=_TIME_AXIS, row=len(panels), col=1)
    return _apply_style(figure, 60 + 200 * len(panels))


def _order_by_turn(pairs: dict[str, NDArray[np.int64]], moved: NDArray[np.float64]) -> list[str]:
    """Return the names of queue pairs, the busiest of every pair of ranks first, then the second ones."""
    by_moved = sorted(pairs, key=lambda pair_name: -moved[pairs[pair_name]].max())
    last_turn: dict[str, int] = {}
    turn_by_name = {}
    for name in by_moved:
        ends = name.partition(",")[0]
        turn_by_name[name] = last_turn[ends] = last_turn.get(ends, -1) + 1
    return sorted(by_moved, key=lambda pair_name: turn_by_name[pair_name])


def timeline_figure(ops: Frame, most: int = MOST_BARS) -> Any:
    """Return a figure of the ops of ranks as bars from begin to completion, one colour a kind; only the first `most` ops."""
    begins_ns, completed_ns = begin_ns(ops), _numbers(ops, "completed_ns")
    columns = ops.columns
    first = np.argsort(begins_ns, kind="stable")[:most]
    kinds = [str(name or kind) for name, kind in zip(columns["collective"], columns["kind"], strict=True)]
    figure = go.Figure()
    for kind in dict.fromkeys(kinds[row] for row in first):
        rows = np.array([row for row in first if kinds[row] == kind])
        figure.add_trace(
            go.Bar(
                base=begins_ns[rows] / _NS_PER_MS,
                x=(completed_ns[rows] - begins_ns[rows]) / _NS_PER_MS,
                y=[f"rank {columns['rank'][row]:.0f}" for row in rows],
                orientation="h",
                name=escape(kind),
                hovertext=[escape(ops.label(int(row))) for row in rows],
            )
        )
    ranks = len({columns["rank"][row] for row in first})
    figure.update_layout(barmode="overlay", xaxis={"title": _TIME_AXIS}, yaxis={"autorange": "reversed"})
    return _apply_style(figure, min(1_600, 160 + 24 * ranks))


def _sample_indices(count: int) -> NDArray[np.int64]:
    """Return the indices of the samples that a line shows, at most `MOST_POINTS`, evenly spaced (int64)."""
    return np.unique(np.linspace(0, count - 1, min(count, MOST_POINTS)).astype(np.int64))


def _numbers(frame: Frame, name: str) -> NDArray[np.float64]:
    return frame.columns[name].astype(np.float64)


def _rows_of(names: list[str]) -> dict[str, NDArray[np.int64]]:
    """Return the row numbers of each name."""
    rows_by_name: dict[str, list[int]] = {}
    for row, name in enumerate(names):
        rows_by_name.setdefault(name, []).append(row)
    return {name: np.array(rows, np.int64) for name, rows in rows_by_name.items()}


def _apply_style(figure: Any, height: int) -> Any:
    figure.update_layout(height=height, template="plotly_white", font={"size": 12},
                         margin={"l": 60, "r": 20, "t": 40, "b": 50})  # fmt: skip
    return figure
