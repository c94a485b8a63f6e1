"""report.html: one page that tells a run, without a network: verdict first, then figures, then what lies behind them.

Decides the order, the wording and the bounds of tables, and which transfers count as slow: by their time over the least
that their port needs for their bytes. Figures come from kpis.json and the summary; everything that a trace, an agent or a
file named is escaped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import Any, Final

import numpy as np
from etloop.contract.model.run import RunEnd
from etloop.results.html.curves import control_figure, queue_figure
from etloop.results.html.device import device_section, losses_section
from etloop.results.html.jobs import events_list, jobs_section
from etloop.results.html.page import listed, page, table
from etloop.results.html.plots import completion_figure, matrix_figure, piece, port_figure
from etloop.results.kpis.input import KpiInput, connection_frame
from etloop.results.schema.kpis import BY_NAME, KpiSet, Nature
from etloop.results.schema.summary import VIRTUAL_TIME, Summary
from etloop.results.schema.verdict import CheckOutcome, Result
from etloop.results.text.table import nonce_words, overlap_words
from etloop.results.text.units import bytes_words, rate_words, share_words, time_words, value_words
from etloop.results.text.verdict import WORDS
from etloop.results.verdict.evaluation import Frame

MOST_ROWS: Final = 60
SHOWN: Final = 10
_SIGNS: Final = (
    ("missing_packets", "packets lost"),
    ("retransmitted_packets", "retransmitted"),
    ("local_ack_timeout_err", "timeouts"),
    ("np_ecn_marked_roce_packets", "marked"),
    ("rp_cnp_handled", "CNPs"),
)


def report_html(
    given: KpiInput,
    kpis: KpiSet,
    summary: Summary,
    scenario_text: str,
    rig_text: str,
    *,
    has_case: bool = False,
) -> str:
    """Return the page. `summary` is the one with the verdict; `has_case`: the run's directory can repeat it."""
    parts = [
        _head(summary),
        _verdict(summary),
        jobs_section(given, summary),
        _figures(kpis, summary),
        _collectives(kpis, summary),
        _plot("Completion", completion_figure(kpis), "completion", "Nothing completed."),
        events_list(summary.timeline),
        _plot("Ports over time", port_figure(given), "ports", "Nothing crossed the device."),
        _port_notes(given),
        _over_time(given, "queues", "Queues of the device", queue_figure),
        _over_time(given, "cc", "Congestion control", control_figure),
        losses_section(summary),
        device_section(summary),
        _plot("Traffic matrix", matrix_figure(given), "matrix", "Nothing crosses the device."),
        _slowest(given),
        _degraded(summary),
        _again(summary, scenario_text, rig_text, has_case=has_case),
    ]
    return page(f"ETLoop {summary.run_id}", parts)


def _head(summary: Summary) -> str:
    work = summary.workload
    about = (
        f"{work.source}: {work.ranks} ranks, {work.iterations} iterations, bytes x {work.bytes_scale}, "
        f"time x {work.time_scale}; {work.shaping or 'shaping not named'}; started {summary.started_at}"
        + "".join(f"; {words}" for words in nonce_words(summary))
    )
    return f"<h1>ETLoop run {escape(summary.run_id)}</h1><p class=dim>{escape(about)}</p>"


def _verdict(summary: Summary) -> str:
    verdict = summary.verdict
    broke = (
        f"<p><b>The run broke off:</b></p><pre>{escape(summary.reason)}</pre>"
        if summary.state is not RunEnd.DONE
        else ""
    )
    broke += "".join(
        f"<p><b>Its records do not add up:</b> {escape(one.name)}: {one.mismatches} of {one.checked}; "
        f"{escape('; '.join(one.examples))}</p>"
        for one in summary.failed_checks
    )
    if verdict is None:
        return f"<p><span class='badge none'>no verdict was asked for</span></p>{broke}"
    device = f" {escape(verdict.device)}" if verdict.device else ""
    head = f"<p><span class='badge {verdict.result.value}'>{WORDS[verdict.result]}</span>{device}</p>"
    own = "".join(f"<p><b>The emulator was the limit:</b> {escape(word)}</p>" for word in verdict.emulator)
    rows = [_check_row(one) for one in verdict.checks]
    return f"{head}{listed(verdict.reasons)}{own}{broke}{table(('result', 'condition', 'found', 'limit', 'why'), rows)}"


def _check_row(one: CheckOutcome) -> tuple[str, ...]:
    badge = f"<span class='badge {one.result.value}'>{WORDS[one.result]}</span>"
    found = escape(one.value)
    if one.reason:
        found += f"<br><span class=dim>{escape(one.reason)}</span>"
    if one.rows:
        count = f"{one.broken} of {one.checked} rows break it" if one.checked > 1 else ""
        found += f"<br>{count}{listed(one.rows)}"
    passed = one.result is Result.PASS
    return (
        badge,
        f"<code>{escape(one.expression)}</code>",
        found,
        escape(one.limit),
        escape(one.why) if not passed else "",
    )


def _figures(kpis: KpiSet, summary: Summary) -> str:
    comparison = summary.comparison
    rows: list[tuple[str, ...]] = []
    if comparison is not None:
        sides = [comparison.job.ideal, comparison.job.twin, comparison.job.measured]
        times = tuple("-" if side is None else time_words(side.iteration_jct_avg_ns) for side in sides)
        rows.append(("iteration, mean (JCT)", *times))
    beside = (
        table(("", "ideal", "twin", "measured"), rows, numbers=(1, 2, 3))
        if rows
        else ("<p class=dim>Neither an ideal network nor a twin stands beside this run.</p>")
    )
    rows = []
    for nature in (Nature.TIME, Nature.TRANSPORT, Nature.DEVICE, Nature.OWN):
        for kpi in kpis.figures:
            figure = BY_NAME.get(kpi.name)
            if figure is not None and figure.nature is nature:
                value = (
                    value_words(kpi.value, kpi.unit)
                    if kpi.value is not None
                    else f"<span class=dim>{escape(kpi.absent)}</span>"
                )
                rows.append((f"<code>{escape(kpi.name)}</code>", value, escape(figure.words)))
    return f"<h2>Key figures</h2>{beside}{table(('figure', 'value', 'what'), rows)}"


def _collectives(kpis: KpiSet, summary: Summary) -> str:
    expected = {}
    if summary.comparison is not None:
        expected = {(one.kind, one.algorithm, one.ranks): one for one in summary.comparison.kinds}
    rows = []
    for one in kpis.kinds[:MOST_ROWS]:
        beside = expected.get((one.kind, one.algorithm, one.ranks))
        per = [None, None] if beside is None else [beside.measured_per_ideal, beside.measured_per_twin]
        rows.append((
            escape(one.kind), escape(one.algorithm), str(one.ranks), str(one.count), bytes_words(one.size_bytes),
            bytes_words(one.fabric_bytes), time_words(one.time_avg_ns), time_words(one.time_p50_ns),
            time_words(one.time_p99_ns), time_words(one.time_max_ns), time_words(one.skew_p99_ns),
            rate_words(one.busbw_bytes_per_s), share_words(one.share_of_ideal),
            *("-" if value is None else f"{value:.2f}" for value in per),
        ))  # fmt: skip
    heads = ("collective", "algorithm", "n", "count", "total S", "S_fabric", "avg", "p50", "p99", "max", "skew p99",
             "busbw", "of ideal", "/ ideal", "/ twin")  # fmt: skip
    if not rows:
        return "<h2>Collectives</h2><p class=dim>None completed.</p>"
    more = len(kpis.kinds) - len(rows)
    rest = f"<p class=dim>And {more} more in kpis.json.</p>" if more else ""
    overlap = overlap_words(summary)
    rest += f"<p class=dim>{escape(overlap[:1].upper() + overlap[1:])}.</p>" if overlap else ""
    return f"<h2>Collectives</h2>{table(heads, rows, numbers=range(2, len(heads)))}{rest}"


def _plot(title: str, figure: object | None, name: str, absent: str) -> str:
    body = f"<p class=dim>{absent}</p>" if figure is None else piece(figure, name)
    return f"<h2>{title}</h2>{body}"


def _over_time(given: KpiInput, table: str, title: str, figure: Callable[[Frame], Any]) -> str:
    """What a run has of it over time; "" of one that has nothing."""
    frame = given.frames.get(table)
    if frame is None or frame.rows == 0:
        return ""
    return f"<h2>{title}</h2>{piece(figure(frame), table)}"


def _port_notes(given: KpiInput) -> str:
    columns = given.frames["ports"].columns
    marks = given.summary.transport
    rows = []
    for row in range(min(given.frames["ports"].rows, MOST_ROWS)):
        cells = [
            f"{float(columns[name][row].item()):.0f}"
            for name in ("tx_datagrams", "rx_datagrams", "rx_pause_frames")
        ]
        paused = time_words(float(columns["paused_ns"][row].item()))
        lost = f"{float(columns['receive_overflows'][row].item()):.0f}"
        name = columns["port"][row] or f"port {int(columns['port_index'][row].item())}"
        rows.append((escape(f"{columns['agent'][row]} {name}"), *cells, paused, lost))
    heads = ("port", "sent", "received", "pause frames", "paused", "lost by us")
    how = (
        "Rates are what the device's ports counted between two readings; where counters were not read, a line is drawn level."
        if "dut" in given.frames
        else "What a rank sends for an op is spread evenly over its time: the device's counters were not read in this run."
    )
    cnps = marks["rp_cnp_handled"] + marks["rp_cnp_ignored"]
    note = (
        f"Over the whole run: {marks['np_ecn_marked_roce_packets']} packets marked, {cnps} CNPs, "
        f"{marks['retransmitted_packets']} retransmissions. {how}"
    )
    return f"<p class=dim>{escape(note)}</p>{table(heads, rows, numbers=range(1, 6))}"


def _slowest(given: KpiInput) -> str:
    stories = slowest_transfers(given)
    if not stories:
        return "<h2>Slowest transfers</h2><p class=dim>Nothing crossed the device.</p>"
    rows = [(escape(one.name), time_words(one.transfer_ns), escape(one.story)) for one in stories]
    return f"<h2>Slowest transfers</h2>{table(('op of a rank', 'took', 'story'), rows, numbers=(1,))}"


def _degraded(summary: Summary) -> str:
    lines = [*summary.degraded, *summary.notes, *(summary.comparison.absent if summary.comparison else ())]
    agents = [
        (escape(one.name), escape(one.host), str(one.ranks), str(one.ops_recorded), time_words(one.clock_error_ns),
         escape(", ".join(f"{name} {version}" for name, version in one.versions.items())))
        for one in summary.agents[:MOST_ROWS]
    ]  # fmt: skip
    items = listed(lines) or "<p class=dim>Nothing.</p>"
    heads = ("agent", "host", "ranks", "ops", "clock error", "versions")
    return f"<h2>Degraded, and worth knowing</h2>{items}{table(heads, agents)}"


def _again(summary: Summary, scenario_text: str, rig_text: str, *, has_case: bool) -> str:
    about = (
        "This run cannot be repeated by its directory: it keeps no case.zip, because no scenario describes its job "
        "or an earlier version made it."
    )
    if has_case:
        command = "twin" if summary.started_at == VIRTUAL_TIME else "run"
        agents = "" if command == "twin" else " # with the agents of rig.yaml"
        about = (
            "In the directory of this page, which holds scenario, rig and all that they name; traces above 4 MiB are read from "
            "where they were, if they are the same. <code>etloop bundle</code> packs all of it into one file for others.</p>"
            f"<pre>etloop {command} . --out ../again{agents}\netloop report ../again</pre><p>"
        )
    return (
        f"<h2>Run it again</h2><p>{about}</p>"
        f"<p class=dim>The trace was {escape(summary.workload.source)}. Scenario and rig as the run read them:</p>"
        f"<details><summary>scenario.yaml</summary><pre>{escape(scenario_text)}</pre></details>"
        f"<details><summary>rig.yaml</summary><pre>{escape(rig_text)}</pre></details>"
    )


@dataclass(frozen=True, slots=True)
class SlowTransfer:
    """One op of one rank."""

    name: str
    transfer_ns: float
    story: str


def slowest_transfers(given: KpiInput) -> tuple[SlowTransfer, ...]:
    """The slowest first, by how much longer they took than their own bytes need at line rate."""
    first_tx, completed = given.column("ops", "first_tx_ns"), given.column("ops", "completed_ns")
    rows = np.flatnonzero(~np.isnan(first_tx))
    if not rows.size:
        return ()
    port, speed = given.port_of_rank()
    bps = speed[port[given.column("ops", "rank").astype(np.int64)]]
    carried = np.maximum(given.column("ops", "wire_tx_bytes"), given.column("ops", "wire_rx_bytes"))
    least_ns = np.nan_to_num(carried * 8e9 / bps, nan=0.0)
    taken = completed - first_tx
    rows = rows[np.argsort(-(taken - least_ns)[rows], kind="stable")][:SHOWN]
    connections = connection_frame(given)
    label = given.frames["ops"].label
    return tuple(
        SlowTransfer(
            label(int(row)), float(taken[row]), _story(given, int(row), float(least_ns[row]), connections)
        )
        for row in rows
    )


def _story(given: KpiInput, row: int, least_ns: float, connections: Frame) -> str:
    ops = given.frames["ops"].columns
    intended, issued, first_tx, completed = (
        float(ops[name][row].item()) for name in ("intended_ns", "issued_ns", "first_tx_ns", "completed_ns")
    )
    sent, received = float(ops["wire_tx_bytes"][row].item()), float(ops["wire_rx_bytes"][row].item())
    sentences = [
        f"sent {bytes_words(sent)}, received {bytes_words(received)}",
        f"issued {time_words(issued - intended)} late",
        f"first packet {time_words(first_tx - issued)} after that",
        f"{time_words(completed - first_tx)} until all was there and acknowledged",
    ]
    if least_ns > 0:
        sentences.append(f"at line rate {time_words(least_ns)}")
    rank = float(ops["rank"][row].item())
    columns = connections.columns
    mine = (columns["src_rank"] == rank) | (columns["dst_rank"] == rank)
    met = [
        f"{total:.0f} {word}"
        for name, word in _SIGNS
        if (total := float(columns[name][mine].astype(np.float64).sum())) > 0
    ]
    sentences.append(
        f"connections of rank {rank:.0f} in the whole run: {', '.join(met) or 'no loss, no mark, no timeout'}"
    )
    return "; ".join(sentences)
