"""A run as a page of Markdown, for the summaries of continuous integration: verdict first, then figures, then notes.

Decides order and length. Text of a trace, a rig or a condition is escaped, so it is not taken for markup.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from etloop.contract.model.run import RunEnd
from etloop.results.report.collectives import comparison_table, kinds_table
from etloop.results.report.findings import MOST_CAUSES, causes_of
from etloop.results.report.losses import losses_table
from etloop.results.report.run import run_figures, workload_words
from etloop.results.report.table import Table, Unit, cell_of, value_text
from etloop.results.report.verdict import conditions_table
from etloop.results.schema.verdict import RunResult

if TYPE_CHECKING:
    from etloop.results.report.table import Column, Value
    from etloop.results.schema.findings import Diagnosis
    from etloop.results.schema.summary import Summary

MOST_ROWS: Final = 20
LONGEST_CELL: Final = 300
_MOST_ITEMS: Final = 3
_MARKS: Final = re.compile(r"([\\`*_{}\[\]<>#|~])")
SIGNS: Final = {
    RunResult.PASS: "✅ PASS",
    RunResult.FAIL: "❌ FAIL",
    RunResult.INCONCLUSIVE: "⚠️ INCONCLUSIVE",
    RunResult.BROKEN: "❌ BROKEN",
    RunResult.NO_VERDICT: "no verdict was asked for",
}


def markdown(summary: Summary) -> str:
    """Return the page; it ends with a newline."""
    verdict, losses, compared = summary.verdict, summary.losses, summary.comparison
    device = f" of {_text(verdict.device)}" if verdict is not None and verdict.device else ""
    is_broken = summary.state is not RunEnd.DONE or not summary.is_consistent
    tables = (
        None if verdict is None else conditions_table(verdict),
        run_figures(summary),
        kinds_table(summary),
        None if compared is None else comparison_table(compared),
        None if losses is None else losses_table(losses),
    )
    run_words = f"ETLoop run {_text(summary.run_id)}: {_text(workload_words(summary))}"
    lines = [
        *(f"## {SIGNS[summary.result]}{device}", ""),
        *(f"{run_words}; started {_text(summary.started_at)}.", ""),
        *_bullets(summary.failure.splitlines() if is_broken else ()),
        *_section("Findings", _finding_words(summary.diagnosis)),
        *(line for table in tables if table is not None for line in table_lines(table)),
        *_section("Emulator", () if verdict is None else verdict.emulator),
        *_section("Degraded", summary.degraded),
        *_section("Notes", summary.notes),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _finding_words(diagnosis: Diagnosis) -> Iterator[str]:
    """Yield the first causes, each with its remedy."""
    for cause in causes_of(diagnosis)[:MOST_CAUSES]:
        finding = cause.finding
        yield f"{finding.sentence} ({finding.kind.value}); remedy: {finding.remedy}"


def table_lines(table: Table, most_rows: int = MOST_ROWS) -> list[str]:
    """Return a table with its first rows, how many are left out, and its notes; no lines without rows."""
    if not table.rows:
        return []
    numbers = [number for number, column in enumerate(table.columns) if not column.is_detail]
    columns = [table.columns[number] for number in numbers]
    rows = [
        [_cell(row[number], table.columns[number]) for number in numbers] for row in table.rows[:most_rows]
    ]
    lines = [_row(column.heading for column in columns)]
    lines += [_row("--:" if column.is_number else "---" for column in columns), *map(_row, rows), ""]
    for note in filter(None, (table.rows_left_out(most_rows), *table.notes)):
        lines += [_text(note), ""]
    return lines


def _cell(value: Value, column: Column) -> str:
    cell = cell_of(value)
    text = value_text(cell.value, column.unit)
    if column.unit is Unit.CODE:
        return _code(text)
    return _text("; ".join(filter(None, (text, cell.note, *cell.items[:_MOST_ITEMS]))))


def _section(title: str, lines: Iterable[str]) -> list[str]:
    bullets = _bullets(lines)
    return [f"### {title}", "", *bullets] if bullets else []


def _bullets(lines: Iterable[str]) -> list[str]:
    present_lines = [line for line in lines if line]
    bullets = [f"- {_text(line)}" for line in present_lines[:MOST_ROWS]]
    if len(present_lines) > MOST_ROWS:
        bullets.append(f"- and {len(present_lines) - MOST_ROWS} more")
    return [*bullets, ""] if bullets else []


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _text(text: str) -> str:
    """Return a text as Markdown shows it: on one line, with Markdown's special characters escaped."""
    line = " ".join("".join(character if character.isprintable() else " " for character in text).split())
    return _MARKS.sub(r"\\\1", line[:LONGEST_CELL])


def _code(text: str) -> str:
    line = " ".join(text.split())[:LONGEST_CELL].replace("`", "'").replace("|", "\\|")
    return f"`{line}`"
