"""One table in text, Markdown and HTML: the same headings, units and digits, and each form's own limits."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import pytest

from etloop.results.html.blocks import Page, Section, table_blocks
from etloop.results.html.render import render
from etloop.results.report.table import Cell, Column, Table, Unit, Value, table_of, value_text
from etloop.results.text import layout, markdown


@dataclass(frozen=True)
class Transfer:
    """An object with a row in the table."""

    name: str
    p50_ns: float | None
    p99_ns: float | None
    rate_bytes_per_s: float


COLUMNS: Final = (
    Column("name", "name", Unit.CODE, most_characters=-8),
    Column("p50_ns", "p50", Unit.TIME, "time"),
    Column("p99_ns", "p99", Unit.TIME, "time"),
    Column("rate_bytes_per_s", "rate", Unit.RATE),
    Column(
        "result", "result", value=lambda transfer: Cell("FAIL", note=f"of {transfer.name[:3]}", badge="fail")
    ),
    Column("detail", "detail", is_detail=True, value=lambda _: "wide"),
)
TRANSFERS: Final = (
    Transfer("layer0.gradients", 20_100, 2_000_000, 0.5e9),
    Transfer("b", None, 5, 12e9),
    Transfer("c", 1, 2, 3e9),
)
TABLE: Final = table_of("t", "Transfers", COLUMNS, TRANSFERS, ("All of rank 0.",), 9, "ops.parquet")


def html(table: Table, most_rows: int) -> str:
    """The table in a page."""
    blocks = table_blocks(table, most_rows)
    return render(Page("", "", "", "", (), (Section("s", "", blocks),)))


def test_text_has_groups_above_titles_and_counts_further_rows() -> None:
    assert layout.table_lines(TABLE, 2) == [
        "          time (us)            rate",
        "name            p50     p99  (GB/s)  result",
        "...ients     20.100  2000.0   0.500  FAIL; of lay",
        "b                 -   0.005  12.000  FAIL; of b",
        "And 7 more in ops.parquet.",
        "All of rank 0.",
    ]


def test_headings_and_values_are_the_same_in_markdown_and_html() -> None:
    head, alignment, first, *_ = markdown.table_lines(TABLE, 2)
    assert head == "| name | time p50 (us) | time p99 (us) | rate (GB/s) | result |"
    assert alignment == "| --- | --: | --: | --: | --- |"
    assert first == "| `layer0.gradients` | 20.100 | 2000.0 | 0.500 | FAIL; of lay |"
    page = html(TABLE, 2)
    headings = re.findall(r"<th scope=\"col\"[^>]*>([^<]*)</th>", page)
    assert headings == [*head.strip("| ").split(" | "), "detail"], "only HTML has columns of details"
    assert '<th scope="col" id="t-p50_ns" class="n">' in page
    assert "<code>layer0.gradients</code>" in page
    assert '<span class="badge fail">FAIL</span><br><span class="dim">of lay</span>' in page
    assert "And 7 more in ops.parquet." in page


def test_a_table_without_rows_is_absent() -> None:
    empty = Table("t", "Transfers", COLUMNS, (), ("a note",))
    assert layout.table_lines(empty) == layout.titled_table(empty) == markdown.table_lines(empty) == []
    assert table_blocks(empty) == ()


def test_rows_after_the_open_ones_are_folded() -> None:
    first, fold = table_blocks(TABLE, open_rows=1)
    assert (type(first).__name__, type(fold).__name__) == ("TableBlock", "Fold")


def test_control_characters_do_not_reach_a_terminal() -> None:
    table = Table("t", "", (Column("a", "a"),), (("\x1b[2J",),))
    assert layout.table_lines(table) == ["a", "?[2J"]


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (None, Unit.TIME, "-"),
        (None, Unit.COUNT, ""),
        (7, Unit.COUNT, "7"),
        (1500, Unit.BYTES, "1.50 kB"),
        (0.001, Unit.PERCENT, "<1%"),
        (0.0001, Unit.SHARE, "100 ppm"),
        (1.23456, Unit.FACTOR, "1.235"),
        (1.23456, Unit.RATIO, "1.23"),
        (0.1 + 0.2, Unit.NUMBER, "0.3"),
        ("<= 4.000", Unit.TIME, "<= 4.000"),
    ],
)
def test_values_have_the_digits_of_their_unit(value: Value, unit: Unit, text: str) -> None:
    assert value_text(value, unit) == text
