"""Flow completion by size, as a table of the page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etloop.results.html.blocks import Block, Cell, Table, Text
from etloop.results.text.flow_sizes import flow_cells, slowdown_words

if TYPE_CHECKING:
    from etloop.results.schema.flow_sizes import FlowSizes

_HEADS = (
    "size", "flows", "completion p50 (us)", "completion p99 (us)", "alone p50 (us)",
    "slowdown p50", "slowdown p95", "slowdown p99",
)  # fmt: skip


def flow_blocks(flows: FlowSizes | None) -> tuple[Block, ...]:
    """Return the table; () for a run that has not only sends and receives."""
    if flows is None:
        return ()
    rows = tuple(tuple(Cell(text) for text in cells) for cells in flow_cells(flows))
    caption = "Completion from due to arrived, and in times of an empty network"
    table = Table(caption, _HEADS, rows, frozenset(range(1, len(_HEADS))))
    begin = "No slowdown" if flows.why_no_slowdown else "Slowdown is"
    return (table, Text(f"{begin}: {slowdown_words(flows)}.", is_dim=True))
