"""Panels over one axis as numbers that a template draws: places of lines, ticks, bands and limits, in pixels of a picture.

Decides sizes, round ticks, and how a long line is thinned: what is highest and lowest within a pixel stays. What is drawn is
for others (`timeline`, `distribution`).
"""

from __future__ import annotations

from math import ceil, floor, log10
from typing import TYPE_CHECKING, Final

import numpy as np
from etloop.contract.base.late_dataclass import dataclass

if TYPE_CHECKING:
    from numpy.typing import NDArray

WIDE: Final = 1140
NARROW: Final = 360
_LEFT: Final = {WIDE: 58, NARROW: 44}
_PANEL_HEIGHT: Final = {WIDE: 130, NARROW: 105}
_RIGHT_MARGIN: Final = 12
_ABOVE_PANEL: Final = 32
_BELOW_PANELS: Final = 44
_TICKS: Final = {WIDE: 10, NARROW: 4}
_STEPS: Final = (1, 2, 2.5, 5, 10)


@dataclass(frozen=True, slots=True)
class Tick:
    """A labelled place."""

    place: float
    label: str


@dataclass(frozen=True, slots=True)
class Path:
    """A line, or several strokes, in one colour."""

    name: str
    path: str
    colour: int
    is_dashed: bool = False


@dataclass(frozen=True, slots=True)
class Span:
    """A part of the axis with a ground of its own."""

    name: str
    x: float
    width: float
    style: str


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment."""

    name: str
    x: float
    style: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One plot of several above each other."""

    title: str
    top: int
    height: int
    ticks: tuple[Tick, ...]
    lines: tuple[Path, ...]
    bars: tuple[Path, ...]
    limits: tuple[Tick, ...]
    spans: tuple[Span, ...]
    span_labels: tuple[Tick, ...]
    marks: tuple[Mark, ...]

    @property
    def bottom(self) -> int:
        """Place of its axis."""
        return self.top + self.height


@dataclass(frozen=True, slots=True)
class Drawing:
    """Panels over one axis."""

    width: int
    height: int
    left: int
    right: int
    axis: str
    ticks: tuple[Tick, ...]
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Label:
    """A word at a place."""

    text: str
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Square:
    """One field of a matrix; `share` of the greatest."""

    name: str
    x: float
    y: float
    size: float
    share: float


@dataclass(frozen=True, slots=True)
class MatrixDrawing:
    """Fields by row and column with their names."""

    width: int
    height: int
    squares: tuple[Square, ...]
    rows: tuple[Label, ...]
    columns: tuple[Label, ...]
    names: tuple[Label, ...]


@dataclass(frozen=True, slots=True)
class Box:
    """A host or a switch."""

    lines: tuple[str, ...]
    x: float
    y: float
    width: float
    height: float
    style: str

    @property
    def middle(self) -> float:
        """Place of its words."""
        return self.x + self.width / 2


@dataclass(frozen=True, slots=True)
class Wire:
    """A link between two boxes."""

    name: str
    path: str
    colour: int | None


@dataclass(frozen=True, slots=True)
class NetworkDrawing:
    """Boxes and the wires between them."""

    width: int
    height: int
    boxes: tuple[Box, ...]
    wires: tuple[Wire, ...]
    labels: tuple[Label, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """What is drawn as a line: `values[i]` holds from `at[i]` on. `is_bars`: counts, a stroke each, none where it is 0."""

    name: str
    colour: int
    at: NDArray[np.float64]
    values: NDArray[np.float64]
    is_dashed: bool = False
    is_bars: bool = False


@dataclass(frozen=True, slots=True)
class Limit:
    """A value that lines are read against."""

    name: str
    value: float


@dataclass(frozen=True, slots=True)
class Plotted:
    """One panel before it has a size."""

    title: str
    """With its unit."""
    steps: tuple[Steps, ...]
    detail: str = ""
    """What a wide picture says besides."""
    limits: tuple[Limit, ...] = ()
    most: float | None = None
    """End of the axis; None: by what is drawn."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of the axis that is named or shaded in every panel."""

    name: str
    label: str
    begin: float
    end: float
    style: str


@dataclass(frozen=True, slots=True)
class Moment:
    """A place on the axis that every panel shows."""

    name: str
    at: float
    style: str


@dataclass(frozen=True, slots=True)
class Axis:
    """What the panels share. `is_log`: decades are alike."""

    name: str
    begin: float
    end: float
    is_log: bool = False
    stretches: tuple[Stretch, ...] = ()
    moments: tuple[Moment, ...] = ()

    def share(self, at: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return where values are, from 0 at the begin to 1 at the end."""
        if self.is_log:
            decades = np.log(np.maximum(at, self.begin) / self.begin) / np.log(self.end / self.begin)
            return np.asarray(decades)
        return np.asarray((at - self.begin) / (self.end - self.begin))


def draw(panels: tuple[Plotted, ...], axis: Axis, width: int) -> Drawing:
    """Return panels above each other, `WIDE` or `NARROW`."""
    left, right = _LEFT[width], width - _RIGHT_MARGIN
    step = _PANEL_HEIGHT[width] + _ABOVE_PANEL
    drawn = tuple(
        _panel(one, axis, width, _ABOVE_PANEL + number * step, is_first=number == 0)
        for number, one in enumerate(panels)
    )
    places = (
        log_ticks(axis.begin, axis.end) if axis.is_log else round_ticks(axis.begin, axis.end, _TICKS[width])
    )
    ticks = tuple(
        Tick(_fine(left + share * (right - left)), tick_words(value))
        for value, share in zip(places, axis.share(np.array(places)).tolist(), strict=True)
    )
    return Drawing(width, len(panels) * step + _BELOW_PANELS, left, right, axis.name, ticks, drawn)


def _panel(given: Plotted, axis: Axis, width: int, top: int, *, is_first: bool) -> Panel:
    left, right, height = _LEFT[width], width - _RIGHT_MARGIN, _PANEL_HEIGHT[width]
    highest = max((float(one.values.max(initial=0)) for one in given.steps), default=0.0)
    limits = tuple(one for one in given.limits if one.value <= 4 * highest)
    most = given.most or max([highest, *(one.value * 1.05 for one in limits)], default=0.0) or 1.0
    whole = any(one.is_bars for one in given.steps)
    values = tuple(one for one in round_ticks(0, most, 4) if not whole or one == int(one))
    most = max(most, values[-1])

    def place(value: float) -> float:
        return _fine(top + height * (1 - value / most))

    def across(at: float) -> float:
        share = float(axis.share(np.array([at]))[0])
        return _fine(left + min(max(share, 0.0), 1.0) * (right - left))

    lines = [(one, _path(one, axis, (left, right), (top + height, height / most))) for one in given.steps]
    stretches = [(one, across(one.begin), across(one.end)) for one in axis.stretches]
    return Panel(
        title=f"{given.title}: {given.detail}" if given.detail and width == WIDE else given.title,
        top=top,
        height=height,
        ticks=tuple(Tick(place(value), tick_words(value)) for value in values),
        lines=tuple(
            Path(one.name, path, one.colour, one.is_dashed) for one, path in lines if path and not one.is_bars
        ),
        bars=tuple(Path(one.name, path, one.colour) for one, path in lines if path and one.is_bars),
        limits=tuple(Tick(place(one.value), one.name) for one in limits),
        spans=tuple(
            Span(one.name, begin, _fine(end - begin), one.style)
            for one, begin, end in stretches
            if end > begin and one.style
        ),
        span_labels=tuple(
            Tick((begin + end) / 2, one.label)
            for one, begin, end in stretches
            if is_first and one.label and end - begin > 8 * len(one.label) + 6
        ),
        marks=tuple(Mark(one.name, across(one.at), one.style) for one in axis.moments),
    )


def _path(given: Steps, axis: Axis, across: tuple[int, int], scale: tuple[int, float]) -> str:
    """Return the strokes of a line in pixels, with at most four points a pixel."""
    left, right = across
    bottom, height_per_value = scale
    share = axis.share(given.at)
    inside = np.flatnonzero((share >= 0) & (share <= 1))
    if not inside.size:
        return ""
    first = max(int(inside[0]) - 1, 0)  # what holds at the begin of the axis began before
    chosen = slice(first, int(inside[-1]) + 1)
    x = left + np.clip(share[chosen], 0, 1) * (right - left)
    values = given.values[chosen]
    kept = _thinned(x, values)
    x_kept = np.round(x[kept], 1).tolist()
    y_kept = np.round(bottom - values[kept] * height_per_value, 1).tolist()
    if given.is_bars:
        return "".join(
            f"M{at:g} {bottom}V{y:g}" for at, y in zip(x_kept, y_kept, strict=True) if y < bottom - 0.05
        )
    parts = [f"M{x_kept[0]:g} {y_kept[0]:g}"]
    last_x, last_y = x_kept[0], y_kept[0]
    for at, y in zip(x_kept[1:], y_kept[1:], strict=True):
        if y == last_y:
            continue
        if at != last_x:
            parts.append(f"H{at:g}")
        parts.append(f"V{y:g}")
        last_x, last_y = at, y
    parts.append(f"H{x_kept[-1]:g}")
    return "".join(parts)


def _thinned(x: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return which points stay: of those within one pixel the first, the lowest, the highest and the last."""
    pixel = np.floor(x).astype(np.int64)
    starts = np.flatnonzero(np.diff(pixel, prepend=pixel[0] - 1))
    ends = np.append(starts[1:], len(x))
    if len(x) <= 4 * len(starts):
        return np.arange(len(x))
    kept = []
    for begin, end in zip(starts.tolist(), ends.tolist(), strict=True):
        part = values[begin:end]
        kept += [begin, begin + int(part.argmin()), begin + int(part.argmax()), end - 1]
    return np.unique(kept)


def round_ticks(begin: float, end: float, most: int) -> tuple[float, ...]:
    """Return round values from `begin` to `end`, at most `most` steps between them; on an axis from 0 one beyond the end."""
    span = end - begin
    if span <= 0:
        return (begin,)
    raw = span / most
    scale = 10 ** floor(log10(raw))
    step = next(one * scale for one in _STEPS if one * scale >= raw * (1 - 1e-9))
    first = ceil(begin / step - 1e-9)
    last = ceil(end / step - 1e-9) if begin == 0 and most <= 4 else floor(end / step + 1e-9)
    return tuple(round(number * step, 12) for number in range(first, last + 1))


def log_ticks(begin: float, end: float) -> tuple[float, ...]:
    """Return the powers of ten from `begin` to `end`, with 2 and 5 of each where there are few; below a decade, round steps."""
    low, high = floor(log10(begin)), ceil(log10(end))
    factors = (1,) if high - low > 3 else (1, 2, 5)
    found = [factor * 10.0**power for power in range(low, high + 1) for factor in factors]
    within = tuple(one for one in found if begin <= one <= end)
    return within if len(within) > 3 else round_ticks(begin, end, 5)


def tick_words(value: float) -> str:
    """Return a value as short as a tick is wide."""
    return f"{value:.6g}" if abs(value) < 1e6 else f"{value:.3g}"


def _fine(value: float) -> float:
    return round(value, 1)
