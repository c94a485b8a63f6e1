"""Parts of a page: frozen values that templates lay out, without any markup.

Decides which kinds of parts exist; each names the template that shows it. `render` turns a page into HTML.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Final, Protocol

from etloop.contract.base.late_dataclass import dataclass
from etloop.results.html.drawing import Drawing, MatrixDrawing, NetworkDrawing
from etloop.results.report.table import Cell, Column, Table, Value, cell_of, value_text

MOST_ROWS: Final = 60
"""Most rows of a table; further ones are counted."""


class Block(Protocol):
    """One part of a section."""

    template: ClassVar[str]


@dataclass(frozen=True, slots=True)
class TableBlock:
    """A table whose cells are texts."""

    template: ClassVar[str] = "table.html"
    id: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph."""

    template: ClassVar[str] = "text.html"
    text: str
    is_dim: bool = False
    badge: str = ""
    badge_text: str = ""


@dataclass(frozen=True, slots=True)
class Listing:
    """A list of lines."""

    template: ClassVar[str] = "listing.html"
    title: str
    items: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Source:
    """A text to be copied verbatim; folded if it has a title."""

    template: ClassVar[str] = "source.html"
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Tile:
    """One of the most important figures."""

    label: str
    value: str
    note: str


@dataclass(frozen=True, slots=True)
class Tiles:
    """The most important figures, at the top of a report."""

    template: ClassVar[str] = "tiles.html"
    tiles: tuple[Tile, ...]


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot over one axis, drawn for a wide and for a narrow window, with a legend."""

    template: ClassVar[str] = "plot.html"
    name: str
    title: str
    description: str
    wide: Drawing
    narrow: Drawing
    legend: tuple[LegendEntry, ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class LegendEntry:
    """Meaning of a colour."""

    name: str
    colour: int


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix of coloured squares."""

    template: ClassVar[str] = "matrix.html"
    name: str
    title: str
    description: str
    drawing: MatrixDrawing


@dataclass(frozen=True, slots=True)
class Network:
    """A diagram of agents, ports and device."""

    template: ClassVar[str] = "network.html"
    name: str
    title: str
    description: str
    drawing: NetworkDrawing


@dataclass(frozen=True, slots=True)
class Fold:
    """Parts that are hidden until a reader opens them."""

    template: ClassVar[str] = "fold.html"
    title: str
    blocks: tuple[Block, ...]
    badge: str = ""
    badge_text: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """Parts under one heading; a section without blocks is left out."""

    name: str
    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Fact:
    """One line of a page's head."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Page:
    """A whole page."""

    title: str
    subtitle: str
    badge: str
    badge_text: str
    facts: tuple[Fact, ...]
    sections: tuple[Section, ...]

    @property
    def shown(self) -> tuple[Section, ...]:
        """Return the sections that have blocks."""
        return tuple(section for section in self.sections if section.blocks)


def table_blocks(table: Table, most_rows: int = MOST_ROWS, open_rows: int | None = None) -> tuple[Block, ...]:
    """Return a table with its first rows, how many are left out, and its notes; () without rows. Rows after `open_rows` are
    folded."""
    if not table.rows:
        return ()
    rows = tuple(
        tuple(_text_cell(value, column) for value, column in zip(row, table.columns, strict=True))
        for row in table.rows[:most_rows]
    )
    texts = tuple(Text(text, is_dim=True) for text in (table.rows_left_out(most_rows), *table.notes) if text)
    if open_rows is None or len(rows) <= open_rows:
        return (TableBlock(table.id, table.title, table.columns, rows), *texts)
    rest = TableBlock("", f"{table.title}, continued", table.columns, rows[open_rows:])
    return (
        TableBlock(table.id, table.title, table.columns, rows[:open_rows]),
        Fold(f"{len(rows) - open_rows} rows more", (rest, *texts)),
    )


def _text_cell(value: Value, column: Column) -> Cell:
    """Return a cell whose value is text."""
    cell = cell_of(value)
    return replace(cell, value=value_text(cell.value, column.unit))


def listing(items: tuple[str, ...], title: str = "") -> tuple[Listing, ...]:
    """Return a list as the blocks of a section; () without lines."""
    return (Listing(title, items),) if items else ()
