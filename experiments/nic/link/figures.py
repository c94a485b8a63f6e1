"""What an experiment finds: figures with their interval, words, and curves behind them. Pure.

Decides how an interval is made. A latency is the median over repeats with the range of all of them, which holds the median of
whatever was drawn from with a probability of 1 - 2^(1-n); what our own side and the way there and back can have added widens it
at the lower end.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from etloop.contract.base.late_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """One thing that the card does, as a number or a word."""

    name: str
    unit: str
    """ns, packets, ratio, count; "" of a word."""
    value: float | None
    """None: it is a word, or was not seen."""
    low: float | None
    high: float | None
    word: str
    """Of a number what it means, where that is not clear; of what was not seen, why."""
    samples: int

    @property
    def is_word(self) -> bool:
        """Whether the card did one of several things, rather than something by a number."""
        return not self.unit

    def holds(self, truth: float | str) -> bool:
        """Whether this is what somebody who knows says."""
        if isinstance(truth, str):
            return self.word == truth
        return self.low is not None and self.high is not None and self.low <= truth <= self.high


@dataclass(frozen=True, slots=True)
class Curve:
    """What was seen of something over something else: the points that figures were made of."""

    name: str
    title: str
    along: str
    """Of the first axis, with its unit."""
    of: str
    """Of the second, with its unit."""
    xs: tuple[float, ...]
    ys: tuple[float, ...]
    is_log: bool = False
    """The first axis has decades."""


Finding = Figure | Curve


def by_number(
    name: str, title: str, along: str, of: str, values: Sequence[float], unit: float
) -> tuple[Curve, ...]:
    """Return values by their number, the first is 1, divided by `unit`; nothing of fewer than two."""
    if len(values) < 2:
        return ()
    numbers = tuple(float(number) for number in range(1, len(values) + 1))
    return (Curve(name, title, along, of, numbers, tuple(value / unit for value in values)),)


def word(name: str, said: str, samples: int = 1) -> Figure:
    """Return a figure that is a word."""
    return Figure(name, "", None, None, None, said, samples)


def count(name: str, value: int, unit: str = "packets", samples: int = 1) -> Figure:
    """Return a figure that was counted: it has no error."""
    return Figure(name, unit, value, value, value, "", samples)


def unseen(name: str, unit: str, why: str) -> Figure:
    """Return a figure that the card did not show."""
    return Figure(name, unit, None, None, None, why, 0)


def latency(name: str, times_ns: Sequence[int], overhead_ns: int, resolution_ns: int, why: str) -> Figure:
    """Return a latency of the card, as far as it is seen from here.

    `overhead_ns` is at most what the way there and back takes, which cannot be told from the card's own time; `why` says what
    it means that there are none.
    """
    if not times_ns:
        return unseen(name, "ns", why)
    low = max(min(times_ns) - overhead_ns - resolution_ns, 0)
    high = max(times_ns) + resolution_ns
    middle = min(max(median(times_ns) - overhead_ns / 2, low), high)
    said = f"below {resolution_ns} ns, our resolution" if high <= 2 * resolution_ns else ""
    return Figure(name, "ns", middle, low, high, said, len(times_ns))


def interval(name: str, times_ns: Sequence[int], error_ns: int, why: str) -> Figure:
    """Return a time between two things that the card did itself: the way there is in neither."""
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
    """Return a ratio over repeats, wrong by at most `error` each."""
    if not values:
        return unseen(name, "ratio", why)
    return Figure(name, "ratio", median(values), min(values) - error, max(values) + error, "", len(values))
