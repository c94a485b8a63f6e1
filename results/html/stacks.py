"""Bars of segments in rows, one row a thing: as numbers that a template draws.

Decides sizes and the extent of the axis, which begins at 0 and includes every segment.
"""

from __future__ import annotations

from typing import ClassVar, Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.results.html.blocks import LegendEntry
from etloop.results.html.drawing import NARROW, WIDE, Label, Tick, round_ticks, tick_words

_LEFT: Final = {WIDE: 210, NARROW: 96}
_LETTERS: Final = {WIDE: 32, NARROW: 13}
_TICKS: Final = {WIDE: 8, NARROW: 3}
_ROW: Final = 16
_BAR: Final = 11
_TOP: Final = 8
_BOTTOM: Final = 42
_LEAST_PIXELS: Final = 0.3
"""Segments narrower than this are not drawn."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a bar, from `begin` to `end` on the axis."""

    name: str
    begin: float
    end: float
    colour: int


@dataclass(frozen=True, slots=True)
class Bar:
    """The segments of one thing."""

    label: str
    segments: tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class Rectangle:
    """A segment in pixels."""

    name: str
    x: float
    y: float
    width: float
    height: int
    colour: int


@dataclass(frozen=True, slots=True)
class StacksDrawing:
    """Bars with positions in pixels."""

    width: int
    height: int
    left: int
    right: int
    bottom: int
    axis: str
    ticks: tuple[Tick, ...]
    labels: tuple[Label, ...]
    rectangles: tuple[Rectangle, ...]


@dataclass(frozen=True, slots=True)
class Stacks:
    """Bars for a wide and for a narrow window, with a legend."""

    template: ClassVar[str] = "stacks.html"
    name: str
    title: str
    description: str
    wide: StacksDrawing
    narrow: StacksDrawing
    legend: tuple[LegendEntry, ...]
    note: str = ""


def stacks(
    name: str, title: str, axis: str, bars: tuple[Bar, ...], legend: tuple[LegendEntry, ...], note: str = ""
) -> tuple[Stacks, ...]:
    """Return bars over an axis of that name; () if no bar has a segment."""
    ends = [segment.end for bar in bars for segment in bar.segments]
    if not ends or max(ends) <= 0:
        return ()
    description = f"{len(bars)} bars of {len(ends)} segments; {axis}."
    wide, narrow = (_draw(bars, axis, max(ends), width) for width in (WIDE, NARROW))
    return (Stacks(name, title, description, wide, narrow, legend, note),)


def _draw(bars: tuple[Bar, ...], axis: str, most: float, width: int) -> StacksDrawing:
    left, right = _LEFT[width], width - 14

    def across(value: float) -> float:
        return round(left + value / (most * 1.02) * (right - left), 1)

    labels: list[Label] = []
    rectangles: list[Rectangle] = []
    top = _TOP
    for bar in bars:
        text = bar.label if len(bar.label) <= _LETTERS[width] else f"{bar.label[: _LETTERS[width] - 1]}…"
        labels.append(Label(text, left - 8, top + 10))
        for segment in bar.segments:
            wide = across(segment.end) - across(segment.begin)
            if wide >= _LEAST_PIXELS:
                label = f"{bar.label}, {segment.name}"
                rectangles.append(
                    Rectangle(label, across(segment.begin), top + 1, round(wide, 1), _BAR, segment.colour)
                )
        top += _ROW
    ticks = [value for value in round_ticks(0.0, most, _TICKS[width]) if value <= most * 1.02]
    return StacksDrawing(
        width=width,
        height=top + _BOTTOM,
        left=left,
        right=right,
        bottom=top + 4,
        axis=axis,
        ticks=tuple(Tick(across(value), tick_words(value)) for value in ticks),
        labels=tuple(labels),
        rectangles=tuple(rectangles),
    )
