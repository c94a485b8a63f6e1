"""The plots of report.html, drawn by plotly.js in the reader's browser: as pieces of HTML that hold their own data.

Decides what is drawn and how much of it: at most `MOST_LINES` lines a plot, the busiest first; and what a line of a
device is: a port's rate between two readings, and how much of a signal came between two readings, over all lanes.
`report_html` puts them on the page.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import plotly.graph_objects as go
from etloop.contract.model.assignment import Path
from etloop.results.kpis.input import numbered
from etloop.results.kpis.port_series import port_series
from etloop.results.measure.job_shares import background_ranks
from etloop.results.schema.kpis import Curve, KpiSet
from plotly.subplots import make_subplots

if TYPE_CHECKING:
    from etloop.results.kpis.input import KpiInput
    from etloop.results.verdict.evaluation import Frame
    from numpy.typing import NDArray

MOST_LINES: Final = 16
MOST_RANKS: Final = 256
"""Of a traffic matrix; larger jobs are drawn by port."""
_CONFIG: Final = {"displaylogo": False, "responsive": True}
_BYTES: Final = {"rx": ("rx_bytes", "rx_bytes_without_fcs"), "tx": ("tx_bytes", "tx_bytes_without_fcs")}
_SIGNALS: Final = (
    ("marked_packets", "ECN marks"),
    ("dropped_packets", "dropped"),
    ("trimmed_packets", "trimmed"),
    ("pfc_tx", "PFC sent"),
    ("pfc_rx", "PFC received"),
)
_NIC_SIGNALS: Final = (
    ("np_ecn_marked_roce_packets", "marks received (NIC)"),
    ("np_cnp_sent", "CNPs sent (NIC)"),
    ("rp_cnp_handled", "CNPs received (NIC)"),
)
BEFORE: Final = "before"


def piece(figure: Any, name: str) -> str:
    """A figure as HTML without the library; `name` is its element's."""
    figure.update_layout(
        margin={"l": 60, "r": 20, "t": 40, "b": 50}, template="plotly_white", font={"size": 12}
    )
    text: str = figure.to_html(full_html=False, include_plotlyjs=False, div_id=name, config=_CONFIG)
    return text


def completion_figure(kpis: KpiSet) -> Any | None:
    """How long things took, as distributions."""
    return distributions((one, {}) for one in kpis.curves[:MOST_LINES])


def distributions(curves: Iterable[tuple[Curve, dict[str, Any]]], title: str = "time (us)") -> Any | None:
    """Curves as steps over an axis of that title, each with options of its line; None where there is none."""
    figure = go.Figure()
    for one, options in curves:
        shown = {"mode": "lines+markers", "line_shape": "hv", "name": escape(f"{one.name} ({one.count})")}
        times_us = [time_ns / 1000 for time_ns in one.time_ns]
        figure.add_trace(go.Scatter(x=times_us, y=one.shares, **(shown | options)))
    figure.update_layout(
        height=420, xaxis={"title": title, "type": "log"}, yaxis={"title": "share", "range": [0, 1.02]}
    )
    return figure if figure.data else None


def port_figure(given: KpiInput) -> Any | None:
    """Load of ports, and below it on the same axis what switches did to it, where the run sampled that."""
    counted = (port_rates(given, "rx"), port_rates(given, "tx"))
    lines = counted if any(counted) else _estimated(given)
    if lines is None:
        return None
    signal_lines = signals(given)
    by_whom = "counted by the device" if any(counted) else "payload, by the records of ops"
    titles = [f"sent to the device (Gbit/s, {by_whom})", f"received from it (Gbit/s, {by_whom})"]
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
    _mark_gaps_and_events(figure, given)
    signals_shown = bool(signal_lines)
    figure.update_xaxes(title_text="time of the run (ms)", row=2 + signals_shown, col=1)
    figure.update_layout(height=420 + 180 * signals_shown)
    job = given.summary.job
    if job.start_ns is not None and job.end_ns is not None and any(counted):
        # Readings begin long before the job, while agents are gathered; who wants to see that, zooms out.
        margin_ns = (job.end_ns - job.start_ns) / 20
        figure.update_xaxes(range=[(job.start_ns - margin_ns) / 1e6, (job.end_ns + margin_ns) / 1e6])
    return figure


def _mark_gaps_and_events(figure: Any, given: KpiInput) -> None:
    """Times in which the device was not read, and links that went down or came up."""
    for gap in given.summary.dut.gaps[:MOST_LINES] if given.summary.dut is not None else ():
        figure.add_vrect(
            x0=gap.begin_ns / 1e6, x1=gap.end_ns / 1e6, fillcolor="gray", opacity=0.12, line_width=0
        )
    for event in given.summary.timeline:
        if event.done_ns >= 0:
            figure.add_vline(x=event.done_ns / 1e6, line_dash="dot", line_color="#2e7d32" if event.up else "#b3261e",
                             annotation_text=escape(f"{event.link} {'up' if event.up else 'down'}"))  # fmt: skip


def _estimated(given: KpiInput) -> tuple[list[Line], list[Line]] | None:
    """Load of the agents' ports by their records, where no device told its own."""
    series = port_series(given)
    if series is None:
        return None
    edges = series.edges_ns
    sent, received = (
        [Line(name, edges, np.append(rates[number], 0.0)) for number, name in enumerate(series.ports)]
        for rates in (series.tx_bps, series.rx_bps)
    )
    return sent, received


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
        of_rank, ports = numbered(list(zip(given.plan.rank_agent, given.plan.rank_port, strict=True)))
        source, target = of_rank[source], of_rank[target]
        names = [f"{agent}/{port}" for agent, port in ports]
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


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """Steps: `values[i]` holds from `times_ns[i]` to `times_ns[i + 1]`."""

    name: str
    times_ns: NDArray[np.float64]
    values: NDArray[np.float64]


def port_rates(given: KpiInput, way: str) -> list[Line]:
    """What each port of the device received ("rx") or sent ("tx"), in bit/s; by the name of what is at the other end."""
    dut = given.frames.get("dut")
    if dut is None or not dut.rows:
        return []
    columns = dut.columns
    lines: list[Line] = []
    hosts = (
        {source.name for source in given.summary.dut.sources if source.is_host_side}
        if given.summary.dut
        else set()
    )
    other = {"rx": "tx", "tx": "rx"}[way]
    for ours, theirs in zip(_BYTES[other], _BYTES[way], strict=True):
        # What the rig's own interface sends, its device receives.
        at_host = np.isin(columns["source"], list(hosts)) if hosts else np.zeros(dut.rows, bool)
        wanted = np.where(at_host, columns["counter"] == ours, columns["counter"] == theirs)
        chosen = np.flatnonzero(wanted & (columns["kind"] == "port"))
        for rows in _series(dut, chosen):
            peer = columns["peer"][rows[0]]
            name = str(peer or columns["port"][rows[0]])
            if any(line.name == name for line in lines):
                continue  # another source told of it
            times, moved = _steps(dut, rows)
            lines.append(Line(name, times, np.append(moved * 8e9 / np.maximum(np.diff(times), 1), 0.0)))
    return lines


def signals(given: KpiInput) -> list[Line]:
    """Marks, drops, pauses and notifications between two readings, where there were any."""
    found = []
    queues = given.frames.get("queues")
    if queues is not None and queues.rows:
        for column, name in _SIGNALS:
            found.append(_summed(given, column, name, np.ones(queues.rows, bool)))
        found.append(_summed(given, "tx_packets", "CNPs (their queue)", _notification_lanes(given, queues)))
    dut = given.frames.get("dut")
    if dut is not None and dut.rows:
        for counter, name in _NIC_SIGNALS:
            parts = [
                _steps(dut, rows) for rows in _series(dut, np.flatnonzero(dut.columns["counter"] == counter))
            ]
            found += [Line(name, times, np.append(moved, 0.0)) for times, moved in parts]
    return [line for line in found if line.values.any()]


def _notification_lanes(given: KpiInput, queues: Frame) -> NDArray[np.bool_]:
    """Rows of queues that carry congestion notifications and nothing else of the job."""
    classes = given.frames.get("classes")
    if classes is None:
        return np.zeros(queues.rows, bool)
    own = {
        (port, int(lane))
        for port, lane, carries in zip(
            classes.columns["port"], classes.columns["expected_queue"].astype(np.float64), classes.columns["carries"],
            strict=True,
        )
        if carries == "notifications"
    }  # fmt: skip
    lanes = queues.columns["cos"].astype(np.float64)
    return np.array(
        [(peer, int(lane)) in own for peer, lane in zip(queues.columns["peer"], lanes, strict=True)], bool
    )


def _summed(given: KpiInput, column: str, name: str, chosen: NDArray[np.bool_]) -> Line:
    """Sum over lanes, by reading, as steps."""
    values = np.nan_to_num(given.column("queues", column))[chosen]
    times, member = np.unique(given.column("queues", "time_ns")[chosen], return_inverse=True)
    totals = np.bincount(member.reshape(-1), values, len(times))
    return Line(name, times, np.append(np.maximum(np.diff(totals), 0), 0.0) if len(times) else np.empty(0))


def _series(dut: Frame, rows: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Rows of each (source, object), in time; those before the run as far as the last of them."""
    keys: dict[tuple[object, object], list[int]] = {}
    for row in rows.tolist():
        keys.setdefault((dut.columns["source"][row], dut.columns["object"][row]), []).append(row)
    series = []
    for members in keys.values():
        times = dut.columns["time_ns"][members].astype(np.float64)
        ordered = np.array(members)[np.argsort(times, kind="stable")]
        before = np.flatnonzero(dut.columns["phase"][ordered] == BEFORE)
        series.append(ordered[before[-1] :] if before.size else ordered)
    return series


def _steps(dut: Frame, rows: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    times = dut.columns["time_ns"][rows].astype(np.float64)
    return times, np.maximum(np.diff(dut.columns["value"][rows].astype(np.float64)), 0)
