"""A value of a device with its basis and source: declared, configured and measured values are kept apart.

Decides their order of precedence (measured before configured before declared) and when two of them contradict each other.
`profile` decides which values a profile has.
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
    """The basis of a value, the most trustworthy first."""

    MEASURED = "measured"
    """By a test of the device itself."""
    CONFIGURED = "configured"
    """In the device's configuration, or in one that is shipped for it."""
    DECLARED = "declared"
    """In a datasheet, a paper or an announcement."""


@dataclass(frozen=True, slots=True)
class Source:
    """An origin of values that a reader can look up."""

    name: str
    """The name by which a profile's values refer to it."""
    title: str
    url: str
    """Empty for a source without an address, such as the user's own measurement."""
    dated: date
    """Date of publication, access or measurement."""


@dataclass(frozen=True, slots=True)
class Claim(Generic[T_co]):
    """A value with its source."""

    value: T_co
    source: Source
    where: str = ""
    """File, line and key, for messages."""


@dataclass(frozen=True, slots=True)
class Stated(Generic[T_co]):
    """All claims about one property of a device; there may be none."""

    measured: Claim[T_co] | None = None
    configured: Claim[T_co] | None = None
    declared: Claim[T_co] | None = None

    @property
    def best(self) -> Claim[T_co] | None:
        """Return the claim on the most trustworthy basis, or None if there is no claim."""
        return self.measured or self.configured or self.declared

    @property
    def value(self) -> T_co | None:
        """Return the value of the best claim, or None if there is no claim."""
        return self.best.value if self.best is not None else None

    @property
    def basis(self) -> Basis | None:
        """Return the basis of `value`, or None if there is no claim."""
        return next((basis for basis, _ in self.claims()), None)

    def claims(self) -> Iterator[tuple[Basis, Claim[T_co]]]:
        """Yield all claims, the most trustworthy first."""
        for basis in Basis:
            claim: Claim[T_co] | None = getattr(self, basis.value)
            if claim is not None:
                yield basis, claim


def disagree(first: object, second: object) -> bool:
    """Return whether two claims about one property contradict each other: numbers by more than `DISAGREEMENT`, others if
    unequal."""
    if (
        isinstance(first, int | Fraction)
        and isinstance(second, int | Fraction)
        and not isinstance(first, bool)
    ):
        first, second = Fraction(first), Fraction(second)
        return abs(first - second) > DISAGREEMENT * max(abs(first), abs(second))
    return first != second


def stated_values(part: object, path: str = "") -> Iterator[tuple[str, Stated[object]]]:
    """Yield every `Stated` within a part of a profile, with its path, such as `queues[3].ecn.kmin_bytes`.

    The path identifies an item of a tuple by its first field: a name or a number.
    """
    if isinstance(part, Stated):
        yield path, part
    elif isinstance(part, tuple):
        for item in part:
            if is_dataclass(item) and not isinstance(item, type):
                yield from stated_values(item, f"{path}[{getattr(item, fields(item)[0].name)}]")
    elif is_dataclass(part) and not isinstance(part, type):
        for field in fields(part):
            inner_path = f"{path}.{field.name}" if path else field.name
            yield from stated_values(getattr(part, field.name), inner_path)
