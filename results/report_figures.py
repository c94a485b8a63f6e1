"""The plots of report.html, drawn by plotly.js in the reader's browser: as pieces of HTML that hold their own data.

Decides what is drawn and how much of it: at most `MOST_LINES` lines a plot, the busiest first. `report_html` puts them on a
page.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from contract.assignment import Path
from results.job_shares import background_ranks
from results.port_series import port_series

if TYPE_CHECKING:
    from results.kpi_input import KpiInput
    from results.kpi_set import KpiSet

MOST_LINES: Final = 16
MOST_RANKS: Final = 256
"""Of a traffic matrix; larger jobs are drawn by port."""
_CONFIG: Final = {"displaylogo": False, "responsive": True}


def piece(figure: Any, name: str) -> str:
    """A figure as HTML without the library; `name` is its element's."""
    figure.update_layout(
        margin={"l": 60, "r": 20, "t": 40, "b": 50}, template="plotly_white", font={"size": 12}
    )
    text: str = figure.to_html(full_html=False, include_plotlyjs=False, div_id=name, config=_CONFIG)
    return text


def completion_figure(kpis: KpiSet) -> Any | None:
    """How long things took, as distributions."""
    if not kpis.curves:
        return None
    figure = go.Figure()
    for curve in kpis.curves[:MOST_LINES]:
        times_us = [time_ns / 1000 for time_ns in curve.time_ns]
        name = f"{escape(curve.name)} ({curve.count})"
        figure.add_trace(
            go.Scatter(x=times_us, y=curve.shares, name=name, mode="lines+markers", line_shape="hv")
        )
    figure.update_layout(
        height=420, xaxis={"title": "time (us)", "type": "log"}, yaxis={"title": "share", "range": [0, 1.02]}
    )
    return figure


def port_figure(given: KpiInput) -> Any | None:
    """Load of ports, and below it on the same axis what switches did to it, where the run sampled that."""
    series = port_series(given)
    if series is None:
        return None
    signals = _signals(given)
    figure = make_subplots(
        rows=2 + bool(signals), cols=1, shared_xaxes=True, vertical_spacing=0.06,
        subplot_titles=["sent (Gbit/s)", "received (Gbit/s)", *(["marks, drops and pauses (per sample)"] if signals else [])],
    )  # fmt: skip
    middle_ms = (series.edges_ns[:-1] + series.edges_ns[1:]) / 2e6
    busiest = np.argsort(-(series.tx_bps + series.rx_bps).sum(axis=1), kind="stable")[:MOST_LINES]
    for row, rates in ((1, series.tx_bps), (2, series.rx_bps)):
        for port in busiest:
            name = escape(series.ports[int(port)])
            line = go.Scatter(
                x=middle_ms, y=rates[port] / 1e9, name=name, legendgroup=name, showlegend=row == 1
            )
            figure.add_trace(line, row=row, col=1)
    for name, time_ms, counts in signals:
        figure.add_trace(go.Scatter(x=time_ms, y=counts, name=escape(name), line_shape="hv"), row=3, col=1)
    for event in given.summary.timeline:
        if event.done_ns >= 0:
            figure.add_vline(x=event.done_ns / 1e6, line_dash="dot", line_color="#2e7d32" if event.up else "#b3261e",
                             annotation_text=escape(f"{event.link} {'up' if event.up else 'down'}"))  # fmt: skip
    figure.update_xaxes(title_text="time of the run (ms)", row=2 + bool(signals), col=1)
    figure.update_layout(height=420 + 180 * bool(signals))
    return figure


def _signals(given: KpiInput) -> list[tuple[str, Any, Any]]:
    """Per counter of queues.parquet that moved: its sum over all lanes of all switches, by sample."""
    queues = given.frames.get("queues")
    if queues is None or not queues.rows:
        return []
    time_ns = given.column("queues", "time_ns")
    times, member = np.unique(time_ns, return_inverse=True)
    found = []
    for name in ("marked_packets", "dropped_packets", "trimmed_packets", "pfc_tx", "pfc_rx"):
        totals = np.bincount(member.reshape(-1), given.column("queues", name), len(times))
        moved = np.diff(totals, prepend=0.0)
        if moved.any():
            found.append((name, times / 1e6, np.maximum(moved, 0)))
    return found


def matrix_figure(given: KpiInput) -> Any | None:
    """Payload through the device by source and destination, of the whole run as planned."""
    links = given.plan.connections
    wire = (links.path == Path.WIRE) & ~background_ranks(given.plan)[links.src_rank]
    if not wire.any():
        return None
    ranks = len(given.plan.rank_agent)
    names = [str(rank) for rank in range(ranks)]
    source, target = links.src_rank[wire].astype(np.int64), links.dst_rank[wire].astype(np.int64)
    what = "rank"
    if ranks > MOST_RANKS:
        what = "port"
        ports = list(zip(given.plan.rank_agent, given.plan.rank_port, strict=True))
        numbers = {port: index for index, port in enumerate(dict.fromkeys(ports))}
        of_rank = np.array([numbers[port] for port in ports])
        source, target = of_rank[source], of_rank[target]
        names = [f"{agent}/{port}" for agent, port in numbers]
    count = len(names)
    moved = np.bincount(
        source * count + target, links.payload_bytes[wire] * given.plan.iterations, count * count
    )
    labels = [escape(name) for name in names]
    table = moved.reshape(count, count)
    figure = go.Figure(go.Heatmap(z=np.where(table > 0, table, np.nan), x=labels, y=labels, colorscale="Blues",
                                  colorbar={"title": "bytes"}))  # fmt: skip
    figure.update_layout(height=480, xaxis={"title": f"to {what}", "type": "category"},
                         yaxis={"title": f"from {what}", "type": "category", "autorange": "reversed"})  # fmt: skip
    return figure
