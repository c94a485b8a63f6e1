"""Describes the form of a configuration value: its noun, its limits, and the JSON Schema that editors check it by.

Decides how parsers of single values describe themselves. A parser carries its form, so that the reference pages and the
schemas agree with the parser; the readers of each file decide which keys exist.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from fractions import Fraction
from typing import Any, Final, Generic, TypeVar

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import (
    LARGEST,
    format_bytes,
    format_duration,
    format_rate,
    parse_bytes,
    parse_duration_ns,
    parse_factor,
    parse_flops,
    parse_name,
    parse_port_label,
    parse_rate_bps,
    parse_share_per_million,
    unit_names,
)

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ValueForm:
    """Form of one value in a file."""

    noun: str
    """Name of the kind of value, such as "duration"."""
    schema: Mapping[str, Any] = field(default_factory=lambda: {"type": ["string", "number", "boolean"]})
    limits: str = ""
    """Allowed values, such as "0 to 63"; "" without limits."""
    write: Callable[[Any], str] = field(default=str, compare=False)
    """Formats a value as it is written in a file."""
    bounds: tuple[int, int] | None = None
    """Least and greatest parsed value; None if values are not whole numbers, or have no bounds."""


@dataclass(frozen=True, slots=True)
class FormedParser(Generic[T_co]):
    """A parser of one value with the form of that value."""

    parse: Callable[[str], T_co]
    form: ValueForm

    def __call__(self, text: str) -> T_co:
        """Parse a text. Raises `QuantityError`."""
        return self.parse(text)


def with_form(form: ValueForm) -> Callable[[Callable[[str], T]], FormedParser[T]]:
    """Return a decorator that gives a parser its form."""
    return lambda parse: FormedParser(parse, form)


def pattern_form(noun: str, pattern: str, limits: str = "") -> ValueForm:
    """Return the form of texts that match a regular expression entirely, such as names; numbers may be such texts, too."""
    return ValueForm(noun, {"type": ["string", "number", "boolean"], "pattern": f"^(?:{pattern})$"}, limits)


def integer_form(least: int, most: int) -> ValueForm:
    """Return the form of whole numbers within limits."""
    largest = "2^63-1" if most == LARGEST else str(most)
    schema = {"type": "integer", "minimum": least, "maximum": most}
    return ValueForm("whole number", schema, f"{least} to {largest}", bounds=(least, most))


def choice_form(choices: Mapping[str, object]) -> ValueForm:
    """Return the form of a choice among several words."""

    def write(value: object) -> str:
        same = (word for word, choice in choices.items() if choice is value)
        equal = (word for word, choice in choices.items() if choice == value)
        return next(same, "") or next(equal, "")

    numbers = [int(choice) for choice in choices.values() if isinstance(choice, int)]
    bounds = (min(numbers), max(numbers)) if 0 < len(numbers) == len(choices) else None
    return ValueForm("one of", {"enum": list(choices)}, ", ".join(choices), write, bounds)


def with_limits(form: ValueForm, limits: str, bounds: tuple[int, int] | None = None) -> ValueForm:
    """Return a form with limits; `bounds` are the same limits as parsed values."""
    return replace(form, limits=limits, bounds=bounds)


def list_form(noun: str, items: Mapping[str, Any]) -> ValueForm:
    """Return the form of a list that is passed on unread."""
    return ValueForm(noun, {"type": "array", "items": dict(items)})


def either(first: ValueForm, second: ValueForm, noun: str) -> ValueForm:
    """Return the form of a value that has one of two forms; it is written in the first form."""
    return ValueForm(noun, {"anyOf": [dict(first.schema), dict(second.schema)]}, first.limits, first.write)


ZERO: Final = ValueForm("0", {"const": 0})
"""Value without a unit that switches some quantities off."""
BOOLEAN: Final = ValueForm("true or false", {"type": "boolean"}, write=lambda value: str(value).lower())
TEXT: Final = ValueForm("text")
FILE: Final = ValueForm("file name")


def _quantity(noun: str, of: str, write: Callable[[int], str]) -> ValueForm:
    units = "|".join(unit_names(of))
    pattern = rf"^\s*[0-9]+(\.[0-9]+)? ?({units})\s*$"
    return ValueForm(noun, {"type": "string", "pattern": pattern}, write=write)


def _factor_text(factor: Fraction) -> str:
    return str(factor)


_SHARE: Final = {"type": "string", "pattern": r"^\s*[0-9]+(\.[0-9]+)? ?%\s*$"}
_FACTOR: Final = {
    "type": ["string", "number"],
    "exclusiveMinimum": 0,
    "pattern": r"^\s*[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,2}|/[0-9]+|%)?\s*$",
}
NAME_PATTERN: Final = "[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
SIZE: Final = _quantity("size", "bytes", format_bytes)
DURATION: Final = _quantity("duration", "duration", format_duration)
RATE: Final = _quantity("rate", "rate", format_rate)
_FORMS: Final[Mapping[object, ValueForm]] = {
    parse_bytes: SIZE,
    parse_duration_ns: DURATION,
    parse_rate_bps: RATE,
    parse_flops: _quantity("compute rate", "flops", lambda flops: f"{flops}FLOPS"),
    parse_factor: ValueForm("number above 0", _FACTOR, write=_factor_text),
    parse_share_per_million: ValueForm("share", _SHARE, "0% to 100%", lambda parts: f"{parts / 10_000:g}%"),
    parse_name: pattern_form("name", NAME_PATTERN),
    parse_port_label: pattern_form("AGENT/PORT", f"{NAME_PATTERN}/{NAME_PATTERN}"),
    str: TEXT,
}
"""Forms of the parsers in units.py, which do not carry their form."""


def form_of(parse: Callable[[str], object]) -> ValueForm | None:
    """Return the form of the value that a parser reads; None if unknown."""
    return parse.form if isinstance(parse, FormedParser) else _FORMS.get(parse)
