"""Lay out lines for a terminal: labelled and wrapped texts, aligned cells, and tables of a report."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Final

from etloop.results.report.table import Column, Value, cell_of, value_text

if TYPE_CHECKING:
    from etloop.results.report.table import Table

WIDTH: Final = 118
"""Columns of a line; only a line of one word, such as a path, may be longer."""
LABEL_WIDTH: Final = 16
MOST_ROWS: Final = 16
"""Most rows of a table; further ones are counted."""


def align(rows: Sequence[Sequence[str]], left: Container[int] = (0, 1), gap: str = "  ") -> list[str]:
    """Return rows as lines, every column as wide as its longest cell; columns in `left` are aligned to the left, all
    others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        gap.join(
            text.ljust(width) if column in left else text.rjust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def table_lines(table: Table, most_rows: int = MOST_ROWS, indent: str = "") -> list[str]:
    """Return the headings and the first rows of a table, how many rows are left out, and the notes; no lines without rows."""
    if not table.rows:
        return []
    numbers = [number for number, column in enumerate(table.columns) if not column.is_detail]
    columns = [table.columns[number] for number in numbers]
    cells = [
        tuple(_cell_text(row[number], table.columns[number]) for number in numbers)
        for row in table.rows[:most_rows]
    ]
    rows = [*_headings(columns), *cells]
    left = {place for place, column in enumerate(columns) if not column.is_number}
    lines = align(rows, left)
    if not _fits(lines, indent) and _fits(narrow_lines := align(rows, left, gap=" "), indent):
        lines = narrow_lines
    more = table.rows_left_out(most_rows)
    texts = [*((more,) if more else ()), *table.notes]
    lines += [line for text in texts for line in wrap(printable(text), WIDTH - len(indent))]
    return [f"{indent}{line}" for line in lines]


def _fits(lines: Sequence[str], indent: str) -> bool:
    return max(map(len, lines)) + len(indent) <= WIDTH


def titled_table(table: Table, most_rows: int = MOST_ROWS) -> list[str]:
    """Return an empty line, the title and the indented lines of a table; no lines without rows."""
    return ["", table.title, *table_lines(table, most_rows, "  ")] if table.rows else []


def _headings(columns: Sequence[Column]) -> list[tuple[str, ...]]:
    """Return the heading lines: groups and units above titles if a column has one, else the titles alone."""
    if not any(column.group or column.heading_unit for column in columns):
        return [tuple(column.title for column in columns)]
    upper, lower = [], []
    group = ""
    for column in columns:
        unit = f"({column.heading_unit})" if column.heading_unit else ""
        if column.group:
            upper.append("" if column.group == group else f"{column.group} {unit}".strip())
            lower.append(column.title)
        else:
            upper.append(column.title if unit else "")
            lower.append(unit or column.title)
        group = column.group
    return [tuple(upper), tuple(lower)]


def _cell_text(value: Value, column: Column) -> str:
    """Return a cell with its note; a text that is too long is cut."""
    cell = cell_of(value)
    text = printable(value_text(cell.value, column.unit))
    most = abs(column.most_characters)
    if most and len(text) > most:
        text = text[:most] if column.most_characters > 0 else f"...{text[3 - most :]}"
    return f"{text}; {printable(cell.note)}" if cell.note else text


def label_line(label: str, text: str) -> list[str]:
    """Return one line with its label."""
    return [f"{label.ljust(LABEL_WIDTH)}{text}"]


def label_text(label: str, text: str) -> list[str]:
    """Return `text` after its label, wrapped between words at the full width. A longer word, such as a path, is not
    broken, so that it can be copied."""
    clean_text = printable(" ".join(text.split()))
    parts = wrap(clean_text, WIDTH - LABEL_WIDTH, break_on_hyphens=False, break_long_words=False) or [""]
    return [line for index, part in enumerate(parts) for line in label_line("" if index else label, part)]


def label_each(label: str, texts: Iterable[str]) -> list[str]:
    """Return every text wrapped after the same label."""
    return [line for text in texts for line in label_text(label, text)]


def printable(text: str) -> str:
    """Return the text with `?` for control characters: agents and files supply some of the printed text, and a terminal
    would execute them."""
    return "".join(character if character.isprintable() else "?" for character in text)
