"""Values in rows, one row a thing and one dot a value, with intervals if known: as numbers that a template draws.

Decides sizes and the extent of the axis, which includes all values, their intervals and a reference.
"""

from __future__ import annotations

from typing import ClassVar, Final

import numpy as np

from etloop.contract.base.late_dataclass import dataclass
from etloop.results.html.blocks import LegendEntry
from etloop.results.html.drawing import NARROW, WIDE, Label, Path, Tick, round_ticks, tick_words

_LEFT: Final = {WIDE: 250, NARROW: 118}
_LETTERS: Final = {WIDE: 38, NARROW: 16}
_TICKS: Final = {WIDE: 8, NARROW: 3}
_LANE: Final = 11
_ROW: Final = 12
_TOP: Final = 8
_BOTTOM: Final = 42


@dataclass(frozen=True, slots=True)
class Dot:
    """One value; `low` to `high` is its interval."""

    name: str
    value: float
    colour: int
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """Values of one thing."""

    label: str
    dots: tuple[Dot, ...]


@dataclass(frozen=True, slots=True)
class Point:
    """A dot with its position in pixels."""

    name: str
    x: float
    y: float
    colour: int


@dataclass(frozen=True, slots=True)
class RowsDrawing:
    """Rows with positions in pixels."""

    width: int
    height: int
    left: int
    right: int
    bottom: int
    axis: str
    ticks: tuple[Tick, ...]
    labels: tuple[Label, ...]
    points: tuple[Point, ...]
    whiskers: tuple[Path, ...]
    reference: float | None


@dataclass(frozen=True, slots=True)
class RowChart:
    """Rows for a wide and for a narrow window, with a legend."""

    template: ClassVar[str] = "rows.html"
    name: str
    title: str
    description: str
    wide: RowsDrawing
    narrow: RowsDrawing
    legend: tuple[LegendEntry, ...]
    note: str = ""


def row_chart(
    name: str, title: str, axis: str, rows: tuple[Row, ...], legend: tuple[LegendEntry, ...] = (),
    reference: float | None = None,
) -> tuple[RowChart, ...]:  # fmt: skip
    """Return rows over an axis of that name, with a line at `reference`; () without rows. Without a reference the axis
    includes 0."""
    rows_with_dots = tuple(row for row in rows if row.dots)
    if not rows_with_dots:
        return ()
    description = (
        f"{len(rows_with_dots)} rows of {sum(len(row.dots) for row in rows_with_dots)} values; {axis}."
    )
    wide, narrow = (_draw(rows_with_dots, axis, reference, width) for width in (WIDE, NARROW))
    return (RowChart(name, title, description, wide, narrow, legend),)


def _draw(rows: tuple[Row, ...], axis: str, reference: float | None, width: int) -> RowsDrawing:
    """Return rows in pixels, with dots of one colour on a line of their own."""
    left, right = _LEFT[width], width - 14
    begin, end = _axis_extent(rows, 0.0 if reference is None else reference)

    def across(value: float) -> float:
        return round(left + (value - begin) / (end - begin) * (right - left), 1)

    labels: list[Label] = []
    points: list[Point] = []
    whiskers: list[Path] = []
    top: float = _TOP
    for row in rows:
        lanes = {colour: place for place, colour in enumerate(dict.fromkeys(dot.colour for dot in row.dots))}
        middle = top + (_ROW + _LANE * len(lanes)) / 2
        text = row.label if len(row.label) <= _LETTERS[width] else f"{row.label[: _LETTERS[width] - 1]}…"
        labels.append(Label(text, left - 8, round(middle + 4, 1)))
        for dot in row.dots:
            y = round(middle + (lanes[dot.colour] - (len(lanes) - 1) / 2) * _LANE, 1)
            points.append(Point(f"{row.label}, {dot.name}", across(dot.value), y, dot.colour))
            if dot.low is not None and dot.high is not None:
                whiskers.append(
                    Path(row.label, f"M{across(dot.low):g} {y:g}H{across(dot.high):g}", dot.colour)
                )
        top += _ROW + _LANE * len(lanes)
    places = [value for value in round_ticks(begin, end, _TICKS[width]) if begin <= value <= end]
    return RowsDrawing(
        width=width,
        height=int(top) + _BOTTOM,
        left=left,
        right=right,
        bottom=int(top) + 4,
        axis=axis,
        ticks=tuple(Tick(across(value), tick_words(value)) for value in places),
        labels=tuple(labels),
        points=tuple(points),
        whiskers=tuple(whiskers),
        reference=None if reference is None else across(reference),
    )


def _axis_extent(rows: tuple[Row, ...], reference: float) -> tuple[float, float]:
    """Return the ends of the axis: all values, intervals and the reference, with a margin."""
    values = [reference]
    for row in rows:
        for dot in row.dots:
            values += [
                dot.value,
                *(end_of_interval for end_of_interval in (dot.low, dot.high) if end_of_interval is not None),
            ]
    finite_values = np.array(values)[np.isfinite(values)]
    begin, end = float(finite_values.min()), float(finite_values.max())
    margin = (end - begin or abs(end) or 1.0) * 0.06
    return (begin if begin == 0 else begin - margin), end + margin
