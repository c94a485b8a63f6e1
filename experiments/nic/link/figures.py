"""Figures of experiments with their intervals, words, and the curves they come from. Pure.

Decides how an interval is computed. A latency is the median over repeats with the range of all of them, which contains
the median of the underlying distribution with a probability of 1 - 2^(1-n). The time that this host and the link may
have added extends the lower end.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from etloop.contract.base.late_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """One property of the card, as a number or a word."""

    name: str
    unit: str
    """ns, packets, ratio, count; "" for a word."""
    value: float | None
    """None: it is a word, or was not measured."""
    low: float | None
    high: float | None
    word: str
    """A remark on a number, or the reason why it was not measured."""
    samples: int

    def holds(self, truth: float | str) -> bool:
        """Return whether the figure agrees with a known true value."""
        if isinstance(truth, str):
            return self.word == truth
        return self.low is not None and self.high is not None and self.low <= truth <= self.high


@dataclass(frozen=True, slots=True)
class Curve:
    """Measured points (xs, ys) from which figures were computed."""

    name: str
    title: str
    along: str
    """Label of the first axis, with its unit."""
    of: str
    """Label of the second axis, with its unit."""
    xs: tuple[float, ...]
    ys: tuple[float, ...]
    is_log: bool = False
    """The first axis is logarithmic."""


Finding = Figure | Curve


def by_number(
    name: str, title: str, along: str, of: str, values: Sequence[float], unit: float
) -> tuple[Curve, ...]:
    """Return a curve of values, divided by `unit`, over their number from 1; () for fewer than two."""
    if len(values) < 2:
        return ()
    numbers = tuple(float(number) for number in range(1, len(values) + 1))
    return (Curve(name, title, along, of, numbers, tuple(value / unit for value in values)),)


def word(name: str, said: str, samples: int = 1) -> Figure:
    """Return a figure that is a word."""
    return Figure(name, "", None, None, None, said, samples)


def count(name: str, value: int, unit: str = "packets", samples: int = 1) -> Figure:
    """Return a figure that was counted, without an error."""
    return Figure(name, unit, value, value, value, "", samples)


def unseen(name: str, unit: str, why: str) -> Figure:
    """Return a figure that could not be measured."""
    return Figure(name, unit, None, None, None, why, 0)


def latency(name: str, times_ns: Sequence[int], overhead_ns: int, resolution_ns: int, why: str) -> Figure:
    """Return a latency of the card, as far as it can be measured from here.

    `overhead_ns` is an upper bound of the round-trip time of the link, which cannot be separated from the card's own
    time; `why` is the reason reported without any times.
    """
    if not times_ns:
        return unseen(name, "ns", why)
    low = max(min(times_ns) - overhead_ns - resolution_ns, 0)
    high = max(times_ns) + resolution_ns
    value_ns = min(max(median(times_ns) - overhead_ns / 2, low), high)
    remark = f"below the resolution of {resolution_ns} ns" if high <= 2 * resolution_ns else ""
    return Figure(name, "ns", value_ns, low, high, remark, len(times_ns))


def interval(name: str, times_ns: Sequence[int], error_ns: int, why: str) -> Figure:
    """Return a time between two actions of the card, which does not include the link's latency."""
    if not times_ns:
        return unseen(name, "ns", why)
    return Figure(
        name,
        "ns",
        median(times_ns),
        max(min(times_ns) - error_ns, 0),
        max(times_ns) + error_ns,
        "",
        len(times_ns),
    )


def ratio(name: str, values: Sequence[float], error: float, why: str) -> Figure:
    """Return a ratio over repeats, each with an error of at most `error`."""
    if not values:
        return unseen(name, "ratio", why)
    return Figure(name, "ratio", median(values), min(values) - error, max(values) + error, "", len(values))
