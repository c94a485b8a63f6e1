"""Flow completion by size as a printed table. Decides wording and rounding only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from etloop.contract.base.units import approximate_bytes
from etloop.contract.model.empty_network import LatencySource
from etloop.results.text.layout import aligned, us, wrapped

if TYPE_CHECKING:
    from etloop.results.schema.flow_sizes import FlowSizeRow, FlowSizes

HEADINGS: Final = (
    ("", "", "completion (us)", "", "alone", "slowdown", "", ""),
    ("size", "flows", "p50", "p99", "p50", "p50", "p95", "p99"),
)


def flow_size_lines(flows: FlowSizes | None) -> list[str]:
    """Return the table of a run's flows, followed by an empty line; no lines without flows."""
    if flows is None:
        return []
    lines = aligned([*HEADINGS, *flow_cells(flows)], left=(0,))
    return [*lines, *wrapped("slowdown", slowdown_words(flows)), ""]


def slowdown_words(flows: FlowSizes) -> str:
    """Return the definition of the slowdown in words, or why there is none."""
    if flows.why_no_slowdown:
        return flows.why_no_slowdown
    base = {
        LatencySource.TOPOLOGY: "links and switches as the topology states them, on the quickest of the shortest ways",
        LatencySource.STATED: "rates of links, and verdict.base_latency of the scenario",
        LatencySource.PROBED: "rates of links, and latency measured by probes before the load, per pair",
        LatencySource.UNKNOWN: "",
    }[flows.latency]
    return f"completion time from due to arrived / time of the same flow alone in the empty network (base: {base})"


def flow_cells(flows: FlowSizes) -> list[tuple[str, ...]]:
    """Return the rows of the table, the last one over all sizes."""
    last = len(flows.rows) - 1
    return [_cells(row, is_all=index == last) for index, row in enumerate(flows.rows)]


def _cells(row: FlowSizeRow, *, is_all: bool) -> tuple[str, ...]:
    size = "all" if is_all else f"to {approximate_bytes(row.upto_bytes)}"
    count = str(row.completed) if row.completed == row.planned else f"{row.completed} of {row.planned}"
    slowdowns = (row.slowdown_p50, row.slowdown_p95, row.slowdown_p99)
    return (
        size,
        count,
        us(row.fct_p50_ns),
        us(row.fct_p99_ns),
        us(row.alone_p50_ns),
        *("-" if value is None else f"{value:.2f}" for value in slowdowns),
    )
