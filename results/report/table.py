"""A table of a report: typed columns, rows and notes. `results.text` and `results.html` render it, so every form of output
has the same headings, units and digits.

Decides how a value of each unit is written and how a column is headed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, Final, TypeAlias

from etloop.contract.base.late_dataclass import dataclass
from etloop.results.report.values import bytes_words, gigabytes_per_s, share_words, us, whole_percent


class Unit(Enum):
    """Unit of the values of a column."""

    TEXT = ""
    CODE = "code"
    """A name or expression as files write it."""
    NUMBER = "number"
    """A number, or a text that already has its unit; aligned to the right."""
    COUNT = "count"
    """An integer; empty where it does not apply."""
    TIME = "us"
    """From nanoseconds."""
    BYTES = "bytes"
    RATE = "GB/s"
    """From bytes per second."""
    PERCENT = "percent"
    """Whole percent, from a share."""
    SHARE = "share"
    """Percent or ppm, from a share."""
    RATIO = "ratio"
    FACTOR = "factor"
    """A ratio of about one, with three decimals."""


_FORMATS: Final[dict[Unit, Callable[[float], str]]] = {
    Unit.TIME: us,
    Unit.BYTES: bytes_words,
    Unit.RATE: gigabytes_per_s,
    Unit.PERCENT: whole_percent,
    Unit.SHARE: share_words,
    Unit.RATIO: "{:.2f}".format,
    Unit.FACTOR: "{:.3f}".format,
}


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its heading, and the unit and origin of its values."""

    id: str
    """Name in links, and the attribute of a row's object that is its value unless `value` is given."""
    title: str
    unit: Unit = Unit.TEXT
    group: str = ""
    """Heading over neighbouring columns of the same group."""
    most_characters: int = 0
    """Longest value in a text table; longer ones are cut. Negative: they are cut at their start. 0: no limit."""
    is_detail: bool = False
    """Whether only forms of output without a limit of width show the column."""
    value: Callable[[Any], Value] | None = None
    """Returns the value from the row's object."""

    def value_of(self, row_object: Any) -> Value:
        """Return the value in the row of an object."""
        return getattr(row_object, self.id) if self.value is None else self.value(row_object)

    @property
    def is_number(self) -> bool:
        """Return whether values are aligned to the right."""
        return self.unit not in (Unit.TEXT, Unit.CODE)

    @property
    def heading_unit(self) -> str:
        """Return the unit that the heading names; "" if the values have none, or each has its own."""
        return self.unit.value if self.unit in (Unit.TIME, Unit.RATE) else ""

    @property
    def heading(self) -> str:
        """Return the heading on one line, such as "time p50 (us)"."""
        words = f"{self.group} {self.title}".strip()
        return f"{words} ({self.heading_unit})" if self.heading_unit else words


@dataclass(frozen=True, slots=True)
class Cell:
    """A value with a remark or a mark."""

    value: str | float | None
    note: str = ""
    """Shown after the value, or below it."""
    items: tuple[str, ...] = ()
    """Lines below the value, in HTML."""
    badge: str = ""
    """Style of a result: "pass", "fail" or "inconclusive"."""
    colour: int | None = None
    """Colour number of the port in the row."""
    is_strong: bool = False


Value: TypeAlias = str | float | Cell | None


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under typed columns; the first cell of a row names it."""

    id: str
    """Anchor in HTML; "" if a page has several tables of the kind."""
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Value, ...], ...]
    notes: tuple[str, ...] = ()
    total: int = 0
    """Number of rows that exist, if `rows` has only the first ones."""
    all_rows_in: str = ""
    """File, and column, that has all rows."""

    def rows_left_out(self, most_rows: int) -> str:
        """Return how many rows are not shown if at most `most_rows` are, in words; "" if all are."""
        count = max(self.total, len(self.rows)) - min(most_rows, len(self.rows))
        place = f" in {self.all_rows_in}" if self.all_rows_in else ""
        return f"And {count} more{place}." if count > 0 else ""


def table_of(
    table_id: str,
    title: str,
    columns: tuple[Column, ...],
    objects: Iterable[object],
    notes: tuple[str, ...] = (),
    total: int = 0,
    all_rows_in: str = "",
) -> Table:
    """Return a table with a row for each object, whose values the columns read from it."""
    rows = tuple(tuple(column.value_of(row_object) for column in columns) for row_object in objects)
    return Table(table_id, title, columns, rows, notes, total, all_rows_in)


def cell_of(value: Value) -> Cell:
    """Return a value as a cell."""
    return value if isinstance(value, Cell) else Cell(value)


def value_text(value: Value, unit: Unit) -> str:
    """Return a value as text, without the unit that the heading names; "-" for None."""
    value = value.value if isinstance(value, Cell) else value
    if value is None:
        return "" if unit is Unit.COUNT else "-"
    if isinstance(value, str):
        return value
    return (
        _FORMATS[unit](value)
        if unit in _FORMATS
        else f"{value:.6g}"
        if isinstance(value, float)
        else str(value)
    )


def text_columns(*titles: str) -> tuple[Column, ...]:
    """Return columns of texts with these titles."""
    return tuple(Column(title.replace(" ", "_"), title) for title in titles)
