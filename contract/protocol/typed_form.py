"""Describes a frozen type to the codec: bounds and meanings of fields, rules of a form, mistakes by key path. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, cast

from etloop.contract.base.errors import Problem
from etloop.contract.base.late_dataclass import dataclass

MAX_PROBLEMS: Final = 64
"""Most mistakes that are reported for one value."""
MIN_INTEGER: Final = -(1 << 63)
MAX_INTEGER: Final = (1 << 63) - 1
THE_MESSAGE: Final = "the message"
_SHOWN_CHARS: Final = 40
_BOUNDS: Final = "bounds"
_DESCRIPTION: Final = "description"


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules of a type's encoding that its annotations and fields do not give."""

    text_chars: int = 4096
    """Longest text of a field without a bound of its own."""
    items: int = 4096
    """Most items of a list and entries of a map without a bound of their own."""
    binary: bool = False
    """Bytes are allowed and columns are encoded as bytes (msgpack); otherwise columns are lists of numbers (JSON)."""
    skip_unknown: bool = False
    """Ignore unknown keys: their writer may be newer."""


JSON_RULES: Final = Rules()
FILE_RULES: Final = Rules(text_chars=1 << 62, items=1 << 62)
"""Rules of files that this project writes, whose length has no bound."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of one field; None: the field has none of its own."""

    minimum: int | None = None
    maximum: int | None = None
    max_length: int | None = None
    """Most characters of a text, items of a list, or entries of a map."""


NO_BOUNDS: Final = Bounds()


def field(
    description: str,
    *,
    minimum: int | None = None,
    maximum: int | None = None,
    max_length: int | None = None,
    **default: Any,
) -> Any:
    """Return a dataclass field with its description and bounds; with `default` or `default_factory` it may be left out."""
    metadata = {_DESCRIPTION: description, _BOUNDS: Bounds(minimum, maximum, max_length)}
    return dataclasses.field(metadata=metadata, **default)


def description_of(declared: dataclasses.Field[Any]) -> str:
    """Return the description given to `field` for a dataclass field; "" without it."""
    return cast("str", declared.metadata.get(_DESCRIPTION, ""))


def bounds_of(declared: dataclasses.Field[Any]) -> Bounds:
    """Return the bounds given to `field` for a dataclass field; no bounds without it."""
    return cast("Bounds", declared.metadata.get(_BOUNDS, NO_BOUNDS))


def may_be_left_out(declared: dataclasses.Field[Any]) -> bool:
    """Return whether a field has a default."""
    return declared.default is not dataclasses.MISSING or declared.default_factory is not dataclasses.MISSING


class Misfit(Exception):
    """A value that does not fit its type, with all mistakes by key path from the value down."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = problems

    def under(self, part: str) -> Iterable[Problem]:
        """Return the mistakes with `part` put in front of their paths."""
        return (Problem(part + problem.where, problem.what, problem.remedy) for problem in self.problems)

    def with_full_paths(self, where: str) -> Misfit:
        """Return the mistakes by full paths; `where` names the outermost value, "" if it has no name."""
        return Misfit(
            *(
                Problem(
                    (where + problem.where if where else problem.where.removeprefix(".")) or THE_MESSAGE,
                    problem.what,
                    problem.remedy,
                )
                for problem in self.problems[:MAX_PROBLEMS]
            )
        )


def fit_in_64_bits(values: Sequence[Any]) -> bool:
    """Return whether all values are signed 64-bit integers, without Python code per value; False for no values."""
    return set(map(type, values)) == {int} and min(values) >= MIN_INTEGER and max(values) <= MAX_INTEGER


class Node(NamedTuple):
    """Both directions of one annotation: plain value to typed value and back. Each raises `Misfit`."""

    read: Callable[[Any], Any]
    write: Callable[[Any], Any]


def wrong_type(expected: str, value: object) -> Misfit:
    """Return a `Misfit` with the expected form and the actual value."""
    return Misfit(Problem("", f"expected {expected}, got {describe_value(value)}", f"write {expected}"))


def too_long(unit: str, maximum: int, actual: int) -> Misfit:
    """Return a `Misfit` for more characters, items or bytes than allowed."""
    return Misfit(
        Problem("", f"expected at most {maximum} {unit}, got {actual}", f"give at most {maximum} {unit}")
    )


def convert_all(parts: Iterable[tuple[int | str, Callable[[Any], Any], Any]]) -> list[Any]:
    """Return the converted parts, given as (index or key, step, value).

    Raises `Misfit` with the mistakes of all parts, at most `MAX_PROBLEMS` or the last part's more.
    """
    results: list[Any] = []
    problems: list[Problem] = []
    for part, step, value in parts:
        try:
            results.append(step(value))
        except Misfit as misfit:
            problems += misfit.under(f"[{part}]" if isinstance(part, int) else f".{key_text(part)}")
            if len(problems) >= MAX_PROBLEMS:
                break
    if problems:
        raise Misfit(*problems)
    return results


def key_text(key: object) -> str:
    """Return a key from an input as a part of a path, escaped and shortened."""
    return shorten(ascii(key[: _SHOWN_CHARS + 1])[1:-1]) if isinstance(key, str) else describe_value(key)


def describe_value(value: object) -> str:
    """Return a value in a few words, however large it is."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case str():
            return f'"{shorten(ascii(value[: _SHOWN_CHARS + 1])[1:-1])}"'
        case list() | tuple():
            return f"a list of {len(value)}"
        case dict():
            return f"an object of {len(value)} keys"
        case bytes():
            return f"{len(value)} bytes"
        case int() | float():
            return shorten(repr(value))
    kind = str(getattr(value, "dtype", type(value).__name__))
    return f"{kind} of shape {value.shape}" if hasattr(value, "shape") else kind


def shorten(text: str) -> str:
    """Return the beginning of a text, with a mark where it was cut."""
    return text if len(text) <= _SHOWN_CHARS else f"{text[: _SHOWN_CHARS - 3]}..."
