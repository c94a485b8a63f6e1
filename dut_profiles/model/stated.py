"""A value of a device with where it comes from: declared, configured and measured are three different things.

Decides how much each is believed (measured before configured before declared) and when two of them contradict each
other. Which values a profile has is decided by `profile`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from enum import StrEnum
from fractions import Fraction
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from etloop.contract.base.late_dataclass import dataclass

if TYPE_CHECKING:
    from datetime import date

T_co = TypeVar("T_co", covariant=True)

DISAGREEMENT: Final = Fraction(1, 10)
"""Numbers that differ by more than this share of the greater one contradict each other."""


class Basis(StrEnum):
    """What a value rests on, the most trustworthy first."""

    MEASURED = "measured"
    """By a test of the device itself."""
    CONFIGURED = "configured"
    """In the device's configuration, or in one that is shipped for it."""
    DECLARED = "declared"
    """In a datasheet, a paper or an announcement."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where values come from: something that a reader can look up."""

    name: str
    """By which the values of a profile refer to it."""
    title: str
    url: str
    """Empty for a source that has no address, such as a measurement of one's own."""
    dated: date
    """When it was published, read or measured."""


@dataclass(frozen=True, slots=True)
class Claim(Generic[T_co]):
    """A value and who says so."""

    value: T_co
    source: Source
    where: str = ""
    """File, line and key, for messages."""


@dataclass(frozen=True, slots=True)
class Stated(Generic[T_co]):
    """What is known of one property of a device; nothing at all is possible, too."""

    measured: Claim[T_co] | None = None
    configured: Claim[T_co] | None = None
    declared: Claim[T_co] | None = None

    @property
    def best(self) -> Claim[T_co] | None:
        """The claim that is believed."""
        return self.measured or self.configured or self.declared

    @property
    def value(self) -> T_co | None:
        """The value that is believed; None if nothing is stated."""
        return self.best.value if self.best is not None else None

    @property
    def basis(self) -> Basis | None:
        """What `value` rests on."""
        return next((basis for basis, _ in self.claims()), None)

    def claims(self) -> Iterator[tuple[Basis, Claim[T_co]]]:
        """Everything stated, the most trustworthy first."""
        for basis in Basis:
            claim: Claim[T_co] | None = getattr(self, basis.value)
            if claim is not None:
                yield basis, claim


def disagree(one: object, other: object) -> bool:
    """Whether two claims about one property cannot both hold: numbers by more than `DISAGREEMENT`, all else at all."""
    if isinstance(one, int | Fraction) and isinstance(other, int | Fraction) and not isinstance(one, bool):
        first, second = Fraction(one), Fraction(other)
        return abs(first - second) > DISAGREEMENT * max(abs(first), abs(second))
    return one != other


def stated_values(part: object, path: str = "") -> Iterator[tuple[str, Stated[object]]]:
    """Every `Stated` within a part of a profile, by its path, such as `queues[3].ecn.kmin_bytes`.

    Parts in a tuple are told apart by their first field: a name or a number.
    """
    if isinstance(part, Stated):
        yield path, part
    elif isinstance(part, tuple):
        for item in part:
            if is_dataclass(item) and not isinstance(item, type):
                yield from stated_values(item, f"{path}[{getattr(item, fields(item)[0].name)}]")
    elif is_dataclass(part) and not isinstance(part, type):
        for field in fields(part):
            inner = f"{path}.{field.name}" if path else field.name
            yield from stated_values(getattr(part, field.name), inner)
