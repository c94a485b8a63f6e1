"""A comparison of two sets of runs as `etloop compare` prints it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from etloop.results.report.comparison import (
    WORDS,
    block_table,
    conditions_table,
    contribution_tables,
    differing_table,
    findings_table,
    interference_table,
    losses_table,
    moved_table,
    plain_table,
    side_words,
    tested_table,
)
from etloop.results.schema.comparison import Comparison, Outcome
from etloop.results.text.layout import label_each, label_text, table_lines, titled_table

if TYPE_CHECKING:
    from etloop.results.schema.comparison import SideRecord

_MOST_ROWS: Final = 12


def render_comparison(comparison: Comparison) -> str:
    """Return verdict, sides, tested figures, contributions and differing settings; ends with a newline."""
    lines = label_text("verdict", WORDS[comparison.verdict])
    lines += label_each("", comparison.reasons)
    lines += [*_side_lines("A", comparison.a), *_side_lines("B", comparison.b)]
    lines += label_each("warning", comparison.warnings)
    block = block_table(comparison)
    lines += ["", *table_lines(block, len(block.rows))]
    lines += titled_table(moved_table(comparison), _MOST_ROWS)
    lines += titled_table(findings_table(comparison), _MOST_ROWS)
    lines += ["", *table_lines(tested_table(comparison), len(comparison.metrics))]
    lines += titled_table(interference_table(comparison))
    for table in (losses_table(comparison), conditions_table(comparison)):
        lines += ["", *table_lines(table, len(table.rows))] if table.rows else []
    *shifts, troubles = contribution_tables(comparison)
    if comparison.verdict is not Outcome.ALIKE:
        lines += [line for table in shifts for line in titled_table(table)]
    lines += titled_table(troubles)
    lines += titled_table(plain_table(comparison, only_changed=True), _MOST_ROWS)
    lines += titled_table(differing_table(comparison), _MOST_ROWS) or [
        "",
        "A and B are runs of the same files",
    ]
    return "\n".join(lines) + "\n"


def _side_lines(name: str, side: SideRecord) -> list[str]:
    lines = label_text(name, side_words(side))
    lines += label_each("", (f"left out: {reason}" for reason in side.left_out))
    return lines + label_each("", (f"the emulator: {doubt}" for doubt in side.doubts))
