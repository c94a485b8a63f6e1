"""Parsers of one value of a configuration file: numbers with bounds, choices, switches, text. Each carries its form.

Decides what such a value may look like; quantities with units are parsed in `units`. Every parser raises `QuantityError`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeVar

from etloop.contract.base.units import QuantityError, parse_share_per_million
from etloop.contract.base.value_form import (
    BOOLEAN,
    FILE,
    TEXT,
    FormedParser,
    choice_form,
    form_of,
    integer_form,
    with_form,
    with_limits,
)

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)


def integer(least: int, most: int) -> Callable[[str], int]:
    """Return a parser of whole numbers from `least` to `most`."""
    remedy = f"write a whole number from {least} to {most}"

    def parse(text: str) -> int:
        if not re.fullmatch(r"-?[0-9]{1,19}", text.strip()):
            raise QuantityError(f'"{text[:64]}" is not a whole number', remedy)
        if not least <= int(text) <= most:
            raise QuantityError(f"{int(text)} is out of range", remedy)
        return int(text)

    return FormedParser(parse, integer_form(least, most))


SEED: Final = integer(0, 2**63 - 1)


def with_bounds(
    parse: Callable[[str], int], least: int, most: int, write: Callable[[int], str]
) -> Callable[[str], int]:
    """Return `parse` with bounds; `write` formats them in the remedy."""

    def parse_bounded(text: str) -> int:
        value = parse(text)
        if not least <= value <= most:
            raise QuantityError(
                f'"{text}" is out of range', f"write a value from {write(least)} to {write(most)}"
            )
        return value

    form = form_of(parse)
    if form is None:
        return parse_bounded
    return FormedParser(parse_bounded, with_limits(form, f"{write(least)} to {write(most)}", (least, most)))


_SHARE: Final = form_of(parse_share_per_million) or TEXT


@with_form(replace(_SHARE, write=lambda value: f"{value * 100:g}%"))
def share(text: str) -> float:
    """Parse a share such as "5%" as a part of 1."""
    return parse_share_per_million(text) / 1e6


def one_of(choices: Mapping[str, T]) -> Callable[[str], T]:
    """Return a parser of one of several words, each with its value."""

    def parse(text: str) -> T:
        if text not in choices:
            near = difflib.get_close_matches(text, choices, n=1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            raise QuantityError(
                f'"{text[:64]}" is not one of the choices', f"write {' or '.join(choices)}{hint}"
            )
        return choices[text]

    return FormedParser(parse, choice_form(choices))


def word_of(words: Iterable[E]) -> Callable[[str], E]:
    """Return a parser of one of the words of an enum."""
    return one_of({str(word): word for word in words})


@with_form(BOOLEAN)
def yes_or_no(text: str) -> bool:
    """Parse true or false, as YAML 1.2 writes them."""
    return one_of({"true": True, "false": False})(text)


@with_form(TEXT)
def words(text: str) -> str:
    """Parse any text that is not empty and has no NUL."""
    if not text.strip():
        raise QuantityError("the text is empty", "write a value")
    if "\0" in text:
        raise QuantityError("there is a NUL in the text", "write it without")
    return text


@with_form(FILE)
def file_name(text: str) -> Path:
    """Parse the name of a file or a directory; `read_settings` makes it relative to the file that names it."""
    return Path(words(text))
