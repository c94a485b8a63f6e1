"""JSON text of any size to values, one element of a long array at a time, in bounded memory.

Decides how JSON is taken apart and what is too large; what the values mean is left to the readers of each format. Written
for hostile text: depth, the size of one value, the number of elements and every number that is asked for have limits, and a
fault names its place inside the document (`nodes[17].inputs`). Pure: pieces come in, values go out.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, NoReturn, Protocol

from etloop.contract.base.late_dataclass import dataclass

MAX_TEXT: Final = 4 << 30
"""Characters of one document."""
MAX_VALUE: Final = 16 << 20
"""Characters of one value: an element of a streamed array, or the value of any other key."""
MAX_ELEMENTS: Final = 1 << 26
"""Elements of all streamed arrays of one document, and values of a text of several."""
MAX_KEPT: Final = 1 << 21
"""Nodes of one rank, or events that become nodes: these stay in memory until the rank is read."""

_KEPT: Final = 1 << 20
_SPACE: Final = re.compile(r"[ \t\r\n]*")
INT64_MAX: Final = (1 << 63) - 1


class JsonFault(Exception):
    """The text is no JSON, over a limit, or a value in it is not what its place asks for; the caller knows the file."""

    def __init__(self, place: str, what: str) -> None:
        super().__init__(f"{place}: {what}" if place else what)
        self.place = place
        self.what = what


@dataclass(frozen=True, slots=True)
class JsonItem:
    """A value of a document: that of `key`, or element `index` of its array (-1: the whole value)."""

    key: str
    index: int
    value: Any
    offset: int
    """Characters before it."""

    @property
    def place(self) -> str:
        return self.key if self.index < 0 else f"{self.key}[{self.index}]"


class _Text:
    """The text as it comes in, of which only what is not used yet is kept."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._decode = codecs.getincrementaldecoder("utf-8-sig")(errors="replace").decode
        self._parser = json.JSONDecoder(strict=False, parse_constant=_refuse_constant)
        self._text = ""
        self._at = 0
        self._passed = 0
        self._ended = False

    @property
    def offset(self) -> int:
        return self._passed + self._at

    def peek(self) -> str:
        """The next character that is no white space, "" at the end."""
        while True:
            space = _SPACE.match(self._text, self._at)
            self._at = space.end() if space else self._at
            if self._at < len(self._text) or not self._fill(1):
                return self._text[self._at : self._at + 1]

    def take(self, wanted: str, place: str) -> str:
        """Passes one of the characters of `wanted`."""
        found = self.peek()
        if not found or found not in wanted:
            what = f'"{found}"' if found else "the end of the text"
            raise JsonFault(
                place, f"expected {' or '.join(wanted)} at character {self.offset}, found {ascii(what)[1:-1]}"
            )
        self._at += 1
        return found

    def value(self, place: str) -> Any:
        """The value that begins here."""
        if not self.peek():
            raise JsonFault(place, f"the text ends at character {self.offset}, where a value was expected")
        while True:
            try:
                value, end = self._parser.raw_decode(self._text, self._at)
                # A number or a word that ends where the text does may go on in the next piece.
                if end < len(self._text) or self._ended or not self._fill(1):
                    self._at = end
                    return value
            except RecursionError:
                raise JsonFault(place, "is nested too deeply") from None
            except json.JSONDecodeError as error:
                held = len(self._text) - self._at
                if held > MAX_VALUE:
                    raise JsonFault(
                        place, f"is no JSON, or longer than {MAX_VALUE >> 20} Mi characters"
                    ) from None
                if not self._fill(max(held, 1)):
                    at = self._passed + error.pos
                    raise JsonFault(place, f"is no JSON: {error.msg} at character {at}") from None
            except ValueError as error:
                # The parser's own words for very many digits are advice to programmers.
                what = str(error) if len(str(error)) < 12 else "too many digits"
                raise JsonFault(place, f"has a number that cannot be read ({what})") from None

    def glanced(self, glance: Glance, index: int) -> tuple[int, bool]:
        """Have elements from the `index`-th on taken that are whole in what is here; returns the next, and whether none is."""
        if not self._text.isascii():
            return index, False
        self._at, index, has_ended = glance.scan(self._text, self._at, index)
        glance.passed(self._text, self._passed)
        return index, has_ended

    def _fill(self, more: int) -> bool:
        """Takes in at least `more` characters; False at the end of the text."""
        if self._at > _KEPT:
            self._text, self._passed, self._at = self._text[self._at :], self._passed + self._at, 0
        parts = []
        while more > 0 and not self._ended:
            piece = next(self._pieces, b"")
            self._ended = not piece
            part = self._decode(piece, self._ended)
            parts.append(part)
            more -= len(part)
        added = "".join(parts)
        self._text += added
        if self._passed + len(self._text) > MAX_TEXT:
            raise JsonFault("", f"is over the limit of {MAX_TEXT >> 30} Gi characters")
        return bool(added)


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(word)


class Glance(Protocol):
    """Takes elements of a streamed array that it can be sure of, so that no values need be made of them."""

    def scan(self, text: str, at: int, index: int) -> tuple[int, int, bool]:
        """Take elements from `at` on, each with the comma behind it; return where it stopped, at which element, and whether the
        array has ended. `text` is ASCII."""

    def passed(self, text: str, offset: int) -> None:
        """Take notice that `text` goes, before which there were `offset` characters of the document."""


def members(
    pieces: Iterable[bytes], streamed: frozenset[str], bare: str = "", glance: Glance | None = None
) -> Iterator[JsonItem]:
    """The values of a JSON object in order; arrays of the keys in `streamed` element by element, empty ones whole.

    A document that is an array instead of an object is read as the array of the key `bare`, where that is given. What `glance`
    takes of such an array is not among them. Raises `JsonFault`.
    """
    text = _Text(pieces)
    elements = 0
    if bare and text.peek() == "[":
        yield from _elements(text, bare, elements, glance)
    else:
        text.take("{", "")
        seen: set[str] = set()
        while not (not seen and text.peek() == "}"):
            if text.peek() != '"':
                text.take('"', "")
            key = text.value("")
            text.take(":", key)
            if key in seen and key in streamed:
                raise JsonFault(key, "is there twice")
            seen.add(key)
            if key in streamed and text.peek() == "[":
                for item in _elements(text, key, elements, glance):
                    yield item
                    elements += 1
            else:
                offset = text.offset
                yield JsonItem(key, -1, text.value(key), offset)
            if text.take(",}", key) == "}":
                break
        else:
            text.take("}", "")
    if text.peek():
        raise JsonFault("", f"goes on behind its end at character {text.offset}")


def _elements(text: _Text, key: str, first: int, glance: Glance | None) -> Iterator[JsonItem]:
    text.take("[", key)
    if text.peek() == "]":
        yield JsonItem(key, -1, [], text.offset)
        text.take("]", key)
        return
    index = 0
    while True:
        if first + index >= MAX_ELEMENTS:
            raise JsonFault(key, f"has more than {MAX_ELEMENTS} elements")
        if glance is not None:
            index, has_ended = text.glanced(glance, index)
            if has_ended:
                return
        offset = text.offset
        yield JsonItem(key, index, text.value(f"{key}[{index}]"), offset)
        if text.take(",]", f"{key}[{index}]") == "]":
            return
        index += 1


def documents(pieces: Iterable[bytes]) -> Iterator[JsonItem]:
    """The values of a text that is JSON values one behind the other. Raises `JsonFault`."""
    text = _Text(pieces)
    index = 0
    while text.peek():
        if index >= MAX_ELEMENTS:
            raise JsonFault("", f"has more than {MAX_ELEMENTS} values")
        offset = text.offset
        yield JsonItem("value", index, text.value(f"value[{index}]"), offset)
        index += 1


def kept(count: int, place: str) -> None:
    """Raises `JsonFault` if `count` nodes are more than a rank may have."""
    if count > MAX_KEPT:
        raise JsonFault(place, f"is over the limit of {MAX_KEPT} nodes of one rank")


def as_object(value: object, place: str) -> dict[str, Any]:
    """`value` if it is a JSON object."""
    if not isinstance(value, dict):
        raise JsonFault(place, f"expected an object, found {spelled(value)}")
    return value


def as_list(value: object, place: str) -> list[Any]:
    """`value` if it is a JSON array."""
    if not isinstance(value, list):
        raise JsonFault(place, f"expected a list, found {spelled(value)}")
    return value


def as_text(value: object, place: str) -> str:
    """`value` if it is a JSON string."""
    if not isinstance(value, str):
        raise JsonFault(place, f"expected a string, found {spelled(value)}")
    return value


def as_int(value: object, place: str, low: int = -INT64_MAX, high: int = INT64_MAX) -> int:
    """`value` if it is an integer of the range, also one written as a string of digits."""
    number = value
    if isinstance(number, str) and len(number) < 24 and number.isascii():
        digits = number.removeprefix("-")
        number = int(number) if digits.isdigit() else value
    if isinstance(number, bool) or not isinstance(number, int):
        raise JsonFault(place, f"expected an integer, found {spelled(value)}")
    if not low <= number <= high:
        raise JsonFault(place, f"expected an integer of {low} to {high}, found {spelled(value)}")
    return number


def as_ns(value: object, place: str) -> int:
    """A time in microseconds, whole or not, as nanoseconds."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < INT64_MAX // 1000:
        raise JsonFault(place, f"expected a time in microseconds, found {spelled(value)}")
    return value * 1000 if isinstance(value, int) else round(value * 1000)


def spelled(value: object) -> str:
    """A value as a message shows it: short, and printable."""
    text = ascii(value if not isinstance(value, list | dict) else type(value).__name__)
    return text if len(text) <= 40 else f"{text[:40]}..."
