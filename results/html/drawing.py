"""Panels over one axis as numbers that a template draws: positions of lines, ticks, bands and limits, in pixels.

Decides sizes, round ticks, and how a long line is thinned: the highest and lowest values within a pixel stay. `timeline`
and `distribution` decide what is drawn.
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
    """A labelled position."""

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
    """A part of the axis with its own background."""

    name: str
    x: float
    width: float
    style: str


@dataclass(frozen=True, slots=True)
class Mark:
    """A vertical line at a moment."""

    name: str
    x: float
    style: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One of several plots above each other."""

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
        """Return the vertical position of its axis."""
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
    """A text at a position."""

    text: str
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Square:
    """One field of a matrix; `share` is relative to the greatest value."""

    name: str
    x: float
    y: float
    size: float
    share: float


@dataclass(frozen=True, slots=True)
class MatrixDrawing:
    """Fields by row and column, with the names of both."""

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
        """Return the horizontal position of its text."""
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
    """A step function: `values[i]` holds from `at[i]` on. `is_bars`: counts, drawn as one stroke each, except where 0."""

    name: str
    colour: int
    at: NDArray[np.float64]
    values: NDArray[np.float64]
    is_dashed: bool = False
    is_bars: bool = False


@dataclass(frozen=True, slots=True)
class Limit:
    """A reference value that is drawn across a panel."""

    name: str
    value: float


@dataclass(frozen=True, slots=True)
class Plotted:
    """One panel before its size is known."""

    title: str
    """Title with the unit."""
    steps: tuple[Steps, ...]
    detail: str = ""
    """Additional title text of a wide picture."""
    limits: tuple[Limit, ...] = ()
    most: float | None = None
    """End of the vertical axis; None: from the values."""


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
    """A position on the axis that every panel marks."""

    name: str
    at: float
    style: str


@dataclass(frozen=True, slots=True)
class Axis:
    """The common axis of the panels. `is_log`: logarithmic."""

    name: str
    begin: float
    end: float
    is_log: bool = False
    stretches: tuple[Stretch, ...] = ()
    moments: tuple[Moment, ...] = ()

    def share(self, at: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the positions of values on the axis, from 0 at its begin to 1 at its end (float64)."""
        if self.is_log:
            decades = np.log(np.maximum(at, self.begin) / self.begin) / np.log(self.end / self.begin)
            return np.asarray(decades)
        return np.asarray((at - self.begin) / (self.end - self.begin))


def draw(panels: tuple[Plotted, ...], axis: Axis, width: int) -> Drawing:
    """Return panels above each other, for width `WIDE` or `NARROW`."""
    left, right = _LEFT[width], width - _RIGHT_MARGIN
    step = _PANEL_HEIGHT[width] + _ABOVE_PANEL
    drawn = tuple(
        _panel(panel, axis, width, _ABOVE_PANEL + number * step, is_first=number == 0)
        for number, panel in enumerate(panels)
    )
    places = (
        log_ticks(axis.begin, axis.end) if axis.is_log else round_ticks(axis.begin, axis.end, _TICKS[width])
    )
    ticks = tuple(
        Tick(_round_pixel(left + share * (right - left)), tick_words(value))
        for value, share in zip(places, axis.share(np.array(places)).tolist(), strict=True)
    )
    return Drawing(width, len(panels) * step + _BELOW_PANELS, left, right, axis.name, ticks, drawn)


def _panel(plotted: Plotted, axis: Axis, width: int, top: int, *, is_first: bool) -> Panel:
    """Return one panel in pixels."""
    left, right, height = _LEFT[width], width - _RIGHT_MARGIN, _PANEL_HEIGHT[width]
    highest = max((float(line.values.max(initial=0)) for line in plotted.steps), default=0.0)
    limits = tuple(limit for limit in plotted.limits if limit.value <= 4 * highest)
    most = plotted.most or max([highest, *(limit.value * 1.05 for limit in limits)], default=0.0) or 1.0
    only_integers = any(line.is_bars for line in plotted.steps)
    values = tuple(tick for tick in round_ticks(0, most, 4) if not only_integers or tick == int(tick))
    most = max(most, values[-1])

    def place(value: float) -> float:
        return _round_pixel(top + height * (1 - value / most))

    def across(at: float) -> float:
        share = float(axis.share(np.array([at]))[0])
        return _round_pixel(left + min(max(share, 0.0), 1.0) * (right - left))

    lines = [
        (line, _path(line, axis, (left, right), (top + height, height / most))) for line in plotted.steps
    ]
    stretches = [(stretch, across(stretch.begin), across(stretch.end)) for stretch in axis.stretches]
    return Panel(
        title=f"{plotted.title}: {plotted.detail}" if plotted.detail and width == WIDE else plotted.title,
        top=top,
        height=height,
        ticks=tuple(Tick(place(value), tick_words(value)) for value in values),
        lines=tuple(
            Path(line.name, path, line.colour, line.is_dashed)
            for line, path in lines
            if path and not line.is_bars
        ),
        bars=tuple(Path(line.name, path, line.colour) for line, path in lines if path and line.is_bars),
        limits=tuple(Tick(place(limit.value), limit.name) for limit in limits),
        spans=tuple(
            Span(stretch.name, begin, _round_pixel(end - begin), stretch.style)
            for stretch, begin, end in stretches
            if end > begin and stretch.style
        ),
        span_labels=tuple(
            Tick((begin + end) / 2, stretch.label)
            for stretch, begin, end in stretches
            if is_first and stretch.label and end - begin > 8 * len(stretch.label) + 6
        ),
        marks=tuple(Mark(moment.name, across(moment.at), moment.style) for moment in axis.moments),
    )


def _path(steps: Steps, axis: Axis, across: tuple[int, int], scale: tuple[int, float]) -> str:
    """Return the strokes of a line in pixels (SVG path data), with at most four points a pixel."""
    left, right = across
    bottom, height_per_value = scale
    share = axis.share(steps.at)
    inside = np.flatnonzero((share >= 0) & (share <= 1))
    if not inside.size:
        return ""
    first = max(int(inside[0]) - 1, 0)  # the value at the begin of the axis was set before it
    visible = slice(first, int(inside[-1]) + 1)
    x = left + np.clip(share[visible], 0, 1) * (right - left)
    values = steps.values[visible]
    kept_points = _thin_out(x, values)
    x_kept = np.round(x[kept_points], 1).tolist()
    y_kept = np.round(bottom - values[kept_points] * height_per_value, 1).tolist()
    if steps.is_bars:
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


def _thin_out(x: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the indices of the points to keep: within each pixel the first, the lowest, the highest and the last (int64)."""
    pixel = np.floor(x).astype(np.int64)
    starts = np.flatnonzero(np.diff(pixel, prepend=pixel[0] - 1))
    ends = np.append(starts[1:], len(x))
    if len(x) <= 4 * len(starts):
        return np.arange(len(x))
    kept_points = []
    for begin, end in zip(starts.tolist(), ends.tolist(), strict=True):
        part = values[begin:end]
        kept_points += [begin, begin + int(part.argmin()), begin + int(part.argmax()), end - 1]
    return np.unique(kept_points)


def round_ticks(begin: float, end: float, most: int) -> tuple[float, ...]:
    """Return round values from `begin` to `end` with at most `most` steps; an axis from 0 with few steps gets one value
    beyond the end."""
    span = end - begin
    if span <= 0:
        return (begin,)
    raw = span / most
    scale = 10 ** floor(log10(raw))
    step = next(factor * scale for factor in _STEPS if factor * scale >= raw * (1 - 1e-9))
    first = ceil(begin / step - 1e-9)
    last = ceil(end / step - 1e-9) if begin == 0 and most <= 4 else floor(end / step + 1e-9)
    return tuple(round(number * step, 12) for number in range(first, last + 1))


def log_ticks(begin: float, end: float) -> tuple[float, ...]:
    """Return the powers of ten from `begin` to `end`, with 2 and 5 times each if there are few; round steps below a decade."""
    low, high = floor(log10(begin)), ceil(log10(end))
    factors = (1,) if high - low > 3 else (1, 2, 5)
    candidates = [factor * 10.0**power for power in range(low, high + 1) for factor in factors]
    within = tuple(tick for tick in candidates if begin <= tick <= end)
    return within if len(within) > 3 else round_ticks(begin, end, 5)


def tick_words(value: float) -> str:
    """Return a value as text that fits a tick."""
    return f"{value:.6g}" if abs(value) < 1e6 else f"{value:.3g}"


def _round_pixel(value: float) -> float:
    """Return a pixel position rounded to one decimal."""
    return round(value, 1)
