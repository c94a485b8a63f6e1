"""`search:` of sweep.yaml: the largest value of one key path at which runs pass, by bisection (RFC 2544, section 26.1).
Pure.

Decides the next value to try, when to stop, and the result. The verdict of a run decides whether it passes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from fractions import Fraction
from typing import Final

import yaml

from etloop.contract.base.errors import Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.setting import required_setting, setting
from etloop.contract.base.units import (
    QuantityError,
    format_bytes,
    format_duration,
    format_rate,
    parse_bytes,
    parse_duration_ns,
    parse_rate_bps,
    parse_share_per_million,
)
from etloop.contract.base.value_form import TEXT, with_form
from etloop.contract.base.value_parsers import integer, with_bounds
from etloop.contract.base.yaml_tree import TEXT_TAG, Change, parse_path

MOST_TRIALS: Final = 32
DEFAULT_TRIALS: Final = 12
"""Both ends and ten bisections, which leave a thousandth of the range (BMWG: 0.1 % within ten iterations)."""
_MILLION: Final = 1_000_000
_DEFAULT_RESOLUTION: Final = 1000
_NUMBER_TAG: Final = "tag:yaml.org,2002:int"


@dataclass(frozen=True, slots=True)
class Unit:
    """Unit of a searched value."""

    name: str
    format: Callable[[int], str]


_UNITS: Final = (
    (parse_rate_bps, Unit("bps", format_rate)),
    (parse_bytes, Unit("B", format_bytes)),
    (parse_duration_ns, Unit("ns", format_duration)),
)
_COUNT: Final = Unit("", str)
_END_REMEDY: Final = "write a number, with its unit if it has one, such as 10Mbps"


@with_form(TEXT)
def _end(text: str) -> tuple[int, Unit]:
    """Parse an end of the range: a number, or a quantity in the finest unit."""
    if text.isascii() and text.isdigit() and len(text) < 16:
        return int(text), _COUNT
    for parse, unit in _UNITS:
        with suppress(QuantityError):
            return parse(text), unit
    raise QuantityError(f'"{text[:64]}" is not a number', _END_REMEDY)


_share: Final = with_bounds(parse_share_per_million, 1, _MILLION - 1, lambda parts: f"{parts / 10_000:g}%")


@dataclass(frozen=True, slots=True)
class Search:
    """The searched value, its range and its resolution."""

    path: tuple[str, ...] = required_setting(
        "path",
        with_form(TEXT)(parse_path),
        ("seed",),
        "write the key path of the value, such as workload.incast.rate",
    )
    """Key path of the value."""
    first: tuple[int, Unit] = required_setting("from", _end, (0, _COUNT), _END_REMEDY)
    """Value at which runs should pass."""
    last: tuple[int, Unit] = required_setting("to", _end, (1, _COUNT), _END_REMEDY)
    """Last value that is tried; in the unit of `from`."""
    resolution_per_million: int = setting("resolution", _share, _DEFAULT_RESOLUTION)
    """Smallest step, as a share of the range."""
    trials: int = setting("trials", integer(2, MOST_TRIALS), DEFAULT_TRIALS)
    """Most values that are tried."""

    def broken_rules(self, keys: Collection[str]) -> Iterator[Problem]:
        """Yield a range whose ends have different units, or are the same."""
        if not {"from", "to"} <= set(keys):
            return
        if self.first[1] is not self.last[1]:
            yield Problem("to", "has another unit than from", "give both the same unit")
        elif self.easy == self.hard:
            yield Problem("to", "equals from", "write another value")

    @property
    def easy(self) -> int:
        """Return the value at which runs should pass, in the finest unit."""
        return self.first[0]

    @property
    def hard(self) -> int:
        """Return the last value that is tried, in the finest unit."""
        return self.last[0]

    @property
    def unit(self) -> Unit:
        """Return the unit of both ends."""
        return self.first[1]

    @property
    def path_text(self) -> str:
        """Return the key path as text, keys joined by dots."""
        return ".".join(self.path)

    def text(self, value: int) -> str:
        """Return a value as it is written in a file."""
        return f"{value}{self.unit.name}"

    def words(self, value: int) -> str:
        """Return a value as text for display."""
        return self.unit.format(value)

    @property
    def steps(self) -> int:
        """Return the number of steps of the resolution from one end of the range to the other; values are tried on
        these steps.
        """
        return min(-(-_MILLION // self.resolution_per_million), abs(self.hard - self.easy))

    def at_step(self, step: int) -> int:
        """Return the value of a step: 0 is `easy`, the last one `hard`."""
        # Round to nearest: a truncated value could be nearer to the step before, and `step_of` would return that one.
        return self.easy + round(Fraction((self.hard - self.easy) * step, self.steps))

    def step_of(self, value: int) -> int:
        """Return the step of a value that `at_step` returned."""
        return round(Fraction((value - self.easy) * self.steps, self.hard - self.easy))

    def change(self, value: int) -> Change:
        """Return the change that gives a scenario this value."""
        return Change(
            self.path, yaml.ScalarNode(TEXT_TAG if self.unit.name else _NUMBER_TAG, self.text(value))
        )


@dataclass(frozen=True, slots=True)
class Trial:
    """A value that was tried."""

    value: int
    passed: bool


def next_value(search: Search, tried: Sequence[Trial]) -> int | None:
    """Return the value to try next; None if the limit is known, or enough values were tried.

    First come the ends: `to`, then `from`; then the middle between the last value that passed and the nearest that did
    not.
    """
    if len(tried) >= search.trials:
        return None
    if not tried:
        return search.hard
    if len(tried) == 1:
        return None if tried[0].passed else search.easy
    if not tried[1].passed:
        return None
    good, bad = bounds(search, tried)
    assert good is not None
    assert bad is not None
    middle = (search.step_of(good) + search.step_of(bad)) // 2
    return None if middle == search.step_of(good) else search.at_step(middle)


def bounds(search: Search, tried: Sequence[Trial]) -> tuple[int | None, int | None]:
    """Return the furthest value that passed, and the nearest beyond it that did not; None if there is none."""
    sign = 1 if search.hard > search.easy else -1
    good = max((sign * trial.value for trial in tried if trial.passed), default=None)
    beyond = [
        sign * trial.value
        for trial in tried
        if not trial.passed and (good is None or sign * trial.value > good)
    ]
    bad = min(beyond, default=None)
    return None if good is None else sign * good, None if bad is None else sign * bad
