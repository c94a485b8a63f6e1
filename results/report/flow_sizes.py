"""Flow completion by size: the table, and the definition of the slowdown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from etloop.contract.base.units import approximate_bytes
from etloop.contract.model.empty_network import LatencySource
from etloop.results.report.table import Column, Table, Unit, table_of

if TYPE_CHECKING:
    from etloop.results.schema.flow_sizes import FlowSizeRow, FlowSizes


def _completion_text(row: FlowSizeRow) -> str:
    return str(row.completed) if row.completed == row.planned else f"{row.completed} of {row.planned}"


_COLUMNS: Final = (
    Column("completed", "flows", Unit.NUMBER, value=_completion_text),
    Column("fct_p50_ns", "p50", Unit.TIME, "completion"),
    Column("fct_p99_ns", "p99", Unit.TIME, "completion"),
    Column("alone_p50_ns", "p50", Unit.TIME, "alone"),
    *(Column(f"slowdown_{name}", name, Unit.RATIO, "slowdown") for name in ("p50", "p95", "p99")),
)
_LATENCY_WORDS: Final = {
    LatencySource.TOPOLOGY: "links and switches of the topology, on the quickest of the shortest paths",
    LatencySource.STATED: "rates of links, and verdict.base_latency of the scenario",
    LatencySource.PROBED: "rates of links, and latency measured by probes before the load, per pair",
    LatencySource.UNKNOWN: "",
}


def flow_size_table(flows: FlowSizes) -> Table:
    """Return completion times and slowdowns by size, the last row over all sizes."""

    def size(row: FlowSizeRow) -> str:
        return "all" if row is flows.rows[-1] else f"to {approximate_bytes(row.upto_bytes)}"

    title = "Completion from intended start to arrival, and as a multiple of the time in an empty network"
    columns = (Column("upto_bytes", "size", value=size), *_COLUMNS)
    return table_of("flow-sizes", title, columns, flows.rows)


def slowdown_words(flows: FlowSizes) -> str:
    """Return the definition of the slowdown, or why there is none."""
    if flows.why_no_slowdown:
        return flows.why_no_slowdown
    base = _LATENCY_WORDS[flows.latency]
    return f"time from intended start to arrival / time of the same flow alone in the empty network (base: {base})"
