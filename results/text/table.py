"""The report of a run as text: aligned, at most 118 columns, equal for equal summaries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from etloop.contract.model.edges import edge_words
from etloop.contract.model.run import RunEnd
from etloop.results.measure.timeline import event_words
from etloop.results.report.collectives import baselines_table, kinds_table, slow_names_table
from etloop.results.report.device import (
    agreement_words,
    gap_words,
    reconciliation_table,
    source_words,
    total_words,
)
from etloop.results.report.flow_sizes import flow_size_table, slowdown_words
from etloop.results.report.jobs import background_table, jobs_table
from etloop.results.report.losses import losses_table
from etloop.results.report.run import (
    consistency_words,
    local_traffic_warning,
    nonce_words,
    run_figures,
    stream_words,
    workload_words,
)
from etloop.results.report.values import merge_places
from etloop.results.text.expected import comparison_lines
from etloop.results.text.findings import finding_lines
from etloop.results.text.layout import MOST_ROWS, label_each, label_line, label_text, table_lines
from etloop.results.text.verdict import verdict_lines

if TYPE_CHECKING:
    from etloop.results.report.table import Table
    from etloop.results.schema.device import DeviceSummary
    from etloop.results.schema.summary import Summary

_MOST_NAMES: Final = 5


def render(summary: Summary, run_dir: str, *, pages: Mapping[str, str] | None = None, more: str = "") -> str:
    """Return the report of a run whose files are in `run_dir`; it ends with a newline.

    Findings and verdict come last, because readers look for them first; only the locations of the results follow. `pages`: paths
    of files for people, by description. `more`: additional text of the caller, printed after the figures.
    """
    carried = summary.bytes
    warning = local_traffic_warning(carried.wire_tx_bytes, carried.wire_tx_bytes + carried.local_tx_bytes)
    lines = [*label_text("warning", warning)] if warning else []
    lines += [*_header(summary), "", *_table_sections(summary), *_figure_lines(run_figures(summary))]
    if summary.losses is not None:
        lines += table_lines(losses_table(summary.losses), len(summary.losses.rows), "  ")
        lines += label_each("note", summary.losses.notes)
    lines += _device_lines(summary.dut) if summary.dut is not None else []
    lines += label_each("timeline", map(event_words, summary.timeline))
    lines += label_each("degraded", merge_places(summary.degraded))
    lines += label_each("note", summary.notes)
    lines += ["", *more.splitlines(), ""] if more else []
    lines += label_text("consistency", consistency_words(summary))
    for check in summary.failed_checks:
        lines += label_text("FAILED", f"{check.name}: {check.mismatches} of {check.checked}")
        lines += label_each("", check.examples)
    lines += finding_lines(summary.diagnosis)
    lines += verdict_lines(summary.verdict) if summary.verdict is not None else []
    for label, place in {"results": run_dir, **(pages or {})}.items():
        lines += label_line(label, place)
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _header(summary: Summary) -> list[str]:
    """Return the lines that identify the run and how it ended."""
    workload = summary.workload
    lines = [
        *label_text("run", f"{summary.run_id}, started {summary.started_at}, {summary.state.value}"),
        *label_text("workload", f"{workload_words(summary)}, dependencies {workload.policy}"),
        *label_text("edges", edge_words(workload.edges)),
        *label_each("numbers", nonce_words(summary)),
    ]
    if summary.state is not RunEnd.DONE:
        # The wait-for chain of a stall has one line per link, so its line breaks are kept.
        for index, line in enumerate(summary.reason.splitlines() or ["no reason was given"]):
            lines += label_text(summary.state.value if index == 0 else "", line)
    return lines


def _table_sections(summary: Summary) -> list[str]:
    """Return the tables of jobs, collectives, flows and expected times, each followed by an empty line."""
    flows, slow = summary.flow_sizes, summary.slow_names
    sections = [
        table_lines(jobs_table(summary), len(summary.jobs)),
        table_lines(background_table(summary), len(summary.jobs)),
        label_each("background", map(stream_words, summary.streams)),
        table_lines(kinds_table(summary), len(summary.kinds)) or ["No collective completed."],
        table_lines(baselines_table(summary)),
        []
        if flows is None
        else [*table_lines(flow_size_table(flows)), *label_text("slowdown", slowdown_words(flows))],
        [] if slow is None else table_lines(slow_names_table(slow), _MOST_NAMES),
        [] if summary.comparison is None else comparison_lines(summary.comparison),
    ]
    return [line for section in sections if section for line in (*section, "")]


def _figure_lines(figures: Table) -> list[str]:
    return [line for label, text in figures.rows for line in label_text(str(label), str(text))]


def _device_lines(device: DeviceSummary) -> list[str]:
    """Return the lines on sources, totals, agreement with the agents, gaps and notes."""
    lines = label_each("counters of", map(source_words, device.sources))
    for label, text in (("device", total_words(device)), ("agreement", agreement_words(device))):
        lines += label_text(label, text) if text else []
    lines += table_lines(reconciliation_table(device, is_exact_shown=False), MOST_ROWS, "  ")
    return [*lines, *label_each("gap", gap_words(device)), *label_each("note", device.notes)]
