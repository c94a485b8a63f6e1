"""Plots as plotly figures, for notebooks.

Decides what is drawn and how much of it: at most `MOST_LINES` lines a plot, the busiest first.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from etloop.contract.model.assignment import Path
from etloop.results.html.series import Line, port_rates, signals
from etloop.results.kpis.input import number_names
from etloop.results.kpis.port_series import port_series
from etloop.results.measure.job_shares import background_ranks
from etloop.results.schema.kpis import Curve, KpiSet

if TYPE_CHECKING:
    from etloop.results.kpis.input import KpiInput

MOST_LINES: Final = 16
MOST_RANKS: Final = 256
"""Most ranks of a traffic matrix; larger jobs are drawn by port."""


def completion_figure(kpis: KpiSet) -> Any | None:
    """Return a figure of the distributions of times; None without any."""
    return distributions((distribution, {}) for distribution in kpis.curves[:MOST_LINES])


def distributions(curves: Iterable[tuple[Curve, dict[str, Any]]], title: str = "time (us)") -> Any | None:
    """Return curves as steps over an axis with that title, each with options of its line; None without curves."""
    figure = go.Figure()
    for distribution, options in curves:
        default_options = {
            "mode": "lines+markers",
            "line_shape": "hv",
            "name": escape(f"{distribution.name} ({distribution.count})"),
        }
        times_us = [time_ns / 1000 for time_ns in distribution.time_ns]
        figure.add_trace(go.Scatter(x=times_us, y=distribution.shares, **(default_options | options)))
    figure.update_layout(
        height=420, xaxis={"title": title, "type": "log"}, yaxis={"title": "share", "range": [0, 1.02]}
    )
    return figure if figure.data else None


def port_figure(inputs: KpiInput) -> Any | None:
    """Return a figure of the load of ports, and below it marks, pauses and drops of switches, if the run sampled them."""
    counted_rates = (port_rates(inputs, "rx"), port_rates(inputs, "tx"))
    lines = counted_rates if any(counted_rates) else _rates_from_ops(inputs)
    if lines is None:
        return None
    signal_lines = signals(inputs)
    source_words = "counted by the device" if any(counted_rates) else "payload, by the records of ops"
    titles = [f"sent to the device (Gbit/s, {source_words})", f"received from it (Gbit/s, {source_words})"]
    figure = make_subplots(
        rows=2 + bool(signal_lines), cols=1, shared_xaxes=True, vertical_spacing=0.06,
        subplot_titles=titles + (["marks, notifications, pauses and drops between two readings"] if signal_lines else []),
    )  # fmt: skip
    loads: dict[str, float] = {}
    for line in (*lines[0], *lines[1]):
        held_ns = np.diff(line.times_ns, append=line.times_ns[-1:])
        loads[line.name] = loads.get(line.name, 0.0) + float((line.values * held_ns).sum())
    busiest = sorted(loads, key=lambda name: -loads[name])[:MOST_LINES]
    for row, of_way in enumerate(lines, 1):
        for line in (line for name in busiest for line in of_way if line.name == name):
            name = escape(line.name)
            figure.add_trace(
                go.Scatter(
                    x=line.times_ns / 1e6, y=line.values / 1e9, name=name, legendgroup=name,
                    showlegend=row == 1, line_shape="hv",
                ),
                row=row, col=1,
            )  # fmt: skip
    for line in signal_lines:
        figure.add_trace(
            go.Scatter(x=line.times_ns / 1e6, y=line.values, name=escape(line.name), line_shape="hv"),
            row=3,
            col=1,
        )
    _mark_gaps_and_events(figure, inputs)
    signals_shown = bool(signal_lines)
    figure.update_xaxes(title_text="time of the run (ms)", row=2 + signals_shown, col=1)
    figure.update_layout(height=420 + 180 * signals_shown)
    job = inputs.summary.job
    if job.start_ns is not None and job.end_ns is not None and any(counted_rates):
        # Readings begin long before the job, while agents are gathered; the initial view shows only the job.
        margin_ns = (job.end_ns - job.start_ns) / 20
        figure.update_xaxes(range=[(job.start_ns - margin_ns) / 1e6, (job.end_ns + margin_ns) / 1e6])
    return figure


def _mark_gaps_and_events(figure: Any, inputs: KpiInput) -> None:
    """Mark the times in which the device was not read, and links that went down or came up."""
    for gap in inputs.summary.dut.gaps[:MOST_LINES] if inputs.summary.dut is not None else ():
        figure.add_vrect(
            x0=gap.begin_ns / 1e6, x1=gap.end_ns / 1e6, fillcolor="gray", opacity=0.12, line_width=0
        )
    for event in inputs.summary.timeline:
        if event.done_ns >= 0:
            figure.add_vline(x=event.done_ns / 1e6, line_dash="dot", line_color="#2e7d32" if event.up else "#b3261e",
                             annotation_text=escape(f"{event.link} {'up' if event.up else 'down'}"))  # fmt: skip


def _rates_from_ops(inputs: KpiInput) -> tuple[list[Line], list[Line]] | None:
    """Return sent and received load of the agents' ports from the records of ops; None if no traffic crossed the device."""
    series = port_series(inputs)
    if series is None:
        return None
    edges = series.edges_ns
    sent, received = (
        [Line(name, edges, np.append(rates[number], 0.0)) for number, name in enumerate(series.ports)]
        for rates in (series.tx_bps, series.rx_bps)
    )
    return sent, received


def matrix_figure(inputs: KpiInput) -> Any | None:
    """Return a figure of the planned payload through the device by source and destination, for the whole run."""
    links = inputs.plan.connections
    wire = (links.path == Path.WIRE) & ~background_ranks(inputs.plan)[links.src_rank]
    if not wire.any():
        return None
    ranks = len(inputs.plan.rank_agent)
    names = [str(rank) for rank in range(ranks)]
    source, target = links.src_rank[wire].astype(np.int64), links.dst_rank[wire].astype(np.int64)
    unit_word = "rank"
    if ranks > MOST_RANKS:
        unit_word = "port"
        of_rank, ports = number_names(list(zip(inputs.plan.rank_agent, inputs.plan.rank_port, strict=True)))
        source, target = of_rank[source], of_rank[target]
        names = [f"{agent}/{port}" for agent, port in ports]
    count = len(names)
    payload_bytes = np.bincount(
        source * count + target, links.payload_bytes[wire] * inputs.plan.iterations, count * count
    )
    labels = [escape(name) for name in names]
    table = payload_bytes.reshape(count, count)
    figure = go.Figure(go.Heatmap(z=np.where(table > 0, table, np.nan), x=labels, y=labels, colorscale="Blues",
                                  colorbar={"title": "bytes"}))  # fmt: skip
    figure.update_layout(height=480, xaxis={"title": f"to {unit_word}", "type": "category"},
                         yaxis={"title": f"from {unit_word}", "type": "category", "autorange": "reversed"})  # fmt: skip
    return figure
