"""Parts of a page: frozen values that templates lay out, without any markup.

Decides which kinds of parts exist; each names the template that shows it. `render` turns a page into HTML.
"""

from __future__ import annotations

from typing import ClassVar, Protocol

from etloop.contract.base.late_dataclass import dataclass
from etloop.results.html.drawing import Drawing, MatrixDrawing, NetworkDrawing


class Block(Protocol):
    """One part of a section."""

    template: ClassVar[str]


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of a table: its text, and the lines below it."""

    text: str
    note: str = ""
    items: tuple[str, ...] = ()
    badge: str = ""
    """Class of a result: the text is shown as a badge."""
    colour: int | None = None
    """Colour of the port that the row is about."""
    is_code: bool = False
    is_strong: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under headings; the first cell of a row names it. Columns in `numbers` are aligned to the right."""

    template: ClassVar[str] = "table.html"
    caption: str
    heads: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    numbers: frozenset[int] = frozenset()


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
    beside: str


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


def table(
    caption: str,
    heads: tuple[str, ...],
    rows: list[tuple[str | Cell, ...]],
    numbers: range | tuple[int, ...] = (),
) -> tuple[Table, ...]:
    """Return a table of texts and cells as the blocks of a section; () without rows."""
    if not rows:
        return ()
    cells = tuple(tuple(cell if isinstance(cell, Cell) else Cell(cell) for cell in row) for row in rows)
    return (Table(caption, heads, cells, frozenset(numbers)),)


def listing(items: tuple[str, ...], title: str = "") -> tuple[Listing, ...]:
    """Return a list as the blocks of a section; () without lines."""
    return (Listing(title, items),) if items else ()
