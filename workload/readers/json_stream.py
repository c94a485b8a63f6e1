"""Parses JSON text of any size into values, one element of a long array at a time, in bounded memory.

Decides how JSON is split and which sizes are refused. Leaves the meaning of values to the readers of each format.
Written for hostile text: depth, the size of one value, the number of elements and every parsed number have limits,
and a fault names its place inside the document (`nodes[17].inputs`). Pure: pieces in, values out.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, Protocol

from etloop.contract.base.late_dataclass import dataclass

MAX_TEXT: Final = 4 << 30
"""Limit of characters in one document."""
MAX_VALUE: Final = 16 << 20
"""Limit of characters in one value: an element of a streamed array, or the value of any other key."""
MAX_ELEMENTS: Final = 1 << 26
"""Limit of elements in all streamed arrays of one document, and of values in a text of several."""
MAX_KEPT: Final = 1 << 21
"""Limit of nodes of one rank, or of events that become nodes; these stay in memory until the rank is read."""

_KEPT: Final = 1 << 20
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_NO_NUMBER: Final = re.compile(r"-?(?:inf|nan)(?=[\s,}\]])")
"""Infinity or not-a-number as C++ streams print it; profilers write the bandwidth of a copy of no duration so."""
_MOST_NO_NUMBERS: Final = 10_000
"""Limit of such values in one document."""
INT64_MAX: Final = (1 << 63) - 1


class JsonFault(Exception):
    """The text is not JSON, is over a limit, or has a value of a wrong type or range. The caller knows the file."""

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(f"{place}: {problem}" if place else problem)
        self.place = place
        self.what = problem


@dataclass(frozen=True, slots=True)
class JsonItem:
    """A value of a document: that of `key`, or element `index` of its array (-1: the whole value)."""

    key: str
    index: int
    value: Any
    offset: int
    """Number of characters in front of it."""

    @property
    def place(self) -> str:
        """Return the place of the value as shown in messages."""
        return self.key if self.index < 0 else f"{self.key}[{self.index}]"


class _Text:
    """The text as it is received; only its unconsumed part, and up to `_KEPT` characters before that, are kept in
    memory."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._decode = codecs.getincrementaldecoder("utf-8-sig")(errors="replace").decode
        # Infinity and NaN become texts: harmless where nothing needs the value, refused by type where something does.
        self._parser = json.JSONDecoder(strict=False, parse_constant=str)
        self._no_numbers = 0
        self._text = ""
        self._at = 0
        self._passed = 0
        self._ended = False

    @property
    def offset(self) -> int:
        """Return the number of characters consumed so far."""
        return self._passed + self._at

    def peek(self) -> str:
        """Return the next character that is not white space, without consuming it; "" at the end."""
        while True:
            space = _SPACE.match(self._text, self._at)
            self._at = space.end() if space else self._at
            if self._at < len(self._text) or not self._fill(1):
                return self._text[self._at : self._at + 1]

    def take(self, wanted: str, place: str) -> str:
        """Consume and return the next character. Raises `JsonFault` unless it is one of `wanted`."""
        character = self.peek()
        if not character or character not in wanted:
            found_words = f'"{character}"' if character else "the end of the text"
            raise JsonFault(
                place,
                f"expected {' or '.join(wanted)} at character {self.offset}, found {ascii(found_words)[1:-1]}",
            )
        self._at += 1
        return character

    def value(self, place: str) -> Any:
        """Parse and consume the value that begins here. Raises `JsonFault`."""
        if not self.peek():
            raise JsonFault(place, f"expected a value at character {self.offset}, found the end of the text")
        while True:
            try:
                value, end = self._parser.raw_decode(self._text, self._at)
                # A number or a word at the end of the received text may continue in the next piece.
                if end < len(self._text) or self._ended or not self._fill(1):
                    self._at = end
                    return value
            except RecursionError:
                raise JsonFault(place, "is nested too deeply") from None
            except json.JSONDecodeError as error:
                if self._replace_no_number(error.pos):
                    continue
                unparsed_characters = len(self._text) - self._at
                if unparsed_characters > MAX_VALUE:
                    raise JsonFault(
                        place, f"is not JSON, or longer than {MAX_VALUE >> 20} Mi characters"
                    ) from None
                if not self._fill(max(unparsed_characters, 1)):
                    position = self._passed + error.pos
                    raise JsonFault(place, f"is not JSON: {error.msg} at character {position}") from None
            except ValueError as error:
                # For a number with too many digits the parser's message is advice to programmers.
                number_fault = str(error) if len(str(error)) < 12 else "too many digits"
                raise JsonFault(place, f"has a number that cannot be read ({number_fault})") from None

    def _replace_no_number(self, position: int) -> bool:
        """Make an unquoted `inf` or `nan` at `position` a text of the same length; return whether there is one."""
        match = _NO_NUMBER.match(self._text, position)
        if match is None or self._no_numbers == _MOST_NO_NUMBERS:
            return False
        self._no_numbers += 1
        text = f'"{match[0][:-2]}"'
        self._text = self._text[:position] + text + self._text[match.end() :]
        return True

    def consume(self, glance: Glance, index: int) -> tuple[int, bool]:
        """Let `glance` consume complete elements, from the `index`-th on; return the next index and whether the array
        has ended."""
        if not self._text.isascii():
            return index, False
        self._at, index, has_ended = glance.scan(self._text, self._at, index)
        glance.process(self._text, self._passed)
        return index, has_ended

    def _fill(self, more: int) -> bool:
        """Receive at least `more` characters; return False at the end of the text. Raises `JsonFault` over `MAX_TEXT`."""
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


class Glance(Protocol):
    """Consumes elements of a streamed array that it recognises, so that no Python values are built for them."""

    def scan(self, text: str, at: int, index: int) -> tuple[int, int, bool]:
        """Consume elements from `at` on, each with the comma after it. `text` is ASCII. Return the position of the
        first unconsumed character, the index of its element, and whether the array has ended."""

    def process(self, text: str, offset: int) -> None:
        """Process the elements consumed from `text`, which is dropped afterwards. `offset` characters of the document
        precede it."""


def members(
    pieces: Iterable[bytes], streamed: frozenset[str], bare: str = "", glance: Glance | None = None
) -> Iterator[JsonItem]:
    """Yield the values of a JSON object in order; arrays of the keys in `streamed` element by element, empty ones
    whole.

    A document that is an array instead of an object is read as the array of the key `bare`, if that is given.
    Elements consumed by `glance` are not yielded. Raises `JsonFault`.
    """
    text = _Text(pieces)
    elements = 0
    if bare and text.peek() == "[":
        yield from _elements(text, bare, elements, glance)
    else:
        text.take("{", "")
        seen_keys: set[str] = set()
        while not (not seen_keys and text.peek() == "}"):
            if text.peek() != '"':
                text.take('"', "")
            key = text.value("")
            text.take(":", key)
            if key in seen_keys and key in streamed:
                raise JsonFault(key, "is a duplicate key")
            seen_keys.add(key)
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
        raise JsonFault("", f"has more text after its end at character {text.offset}")


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
            index, has_ended = text.consume(glance, index)
            if has_ended:
                return
        offset = text.offset
        yield JsonItem(key, index, text.value(f"{key}[{index}]"), offset)
        if text.take(",]", f"{key}[{index}]") == "]":
            return
        index += 1


def documents(pieces: Iterable[bytes]) -> Iterator[JsonItem]:
    """Yield the values of a text that is a sequence of JSON values. Raises `JsonFault`."""
    text = _Text(pieces)
    index = 0
    while text.peek():
        if index >= MAX_ELEMENTS:
            raise JsonFault("", f"has more than {MAX_ELEMENTS} values")
        offset = text.offset
        yield JsonItem("value", index, text.value(f"value[{index}]"), offset)
        index += 1


def check_node_count(count: int, place: str) -> None:
    """Raise `JsonFault` if `count` nodes are more than a rank may have."""
    if count > MAX_KEPT:
        raise JsonFault(place, f"is over the limit of {MAX_KEPT} nodes of one rank")


def as_object(value: object, place: str) -> dict[str, Any]:
    """Return `value`. Raises `JsonFault` if it is not a JSON object."""
    if not isinstance(value, dict):
        raise JsonFault(place, f"expected an object, found {spell(value)}")
    return value


def as_list(value: object, place: str) -> list[Any]:
    """Return `value`. Raises `JsonFault` if it is not a JSON array."""
    if not isinstance(value, list):
        raise JsonFault(place, f"expected a list, found {spell(value)}")
    return value


def as_text(value: object, place: str) -> str:
    """Return `value`. Raises `JsonFault` if it is not a JSON string."""
    if not isinstance(value, str):
        raise JsonFault(place, f"expected a string, found {spell(value)}")
    return value


def as_int(value: object, place: str, low: int = -INT64_MAX, high: int = INT64_MAX) -> int:
    """Return `value` as an integer, also from a string of digits. Raises `JsonFault` if it is none in `low`..`high`."""
    number = value
    if isinstance(number, str) and len(number) < 24 and number.isascii():
        digits = number.removeprefix("-")
        number = int(number) if digits.isdigit() else value
    if isinstance(number, bool) or not isinstance(number, int):
        raise JsonFault(place, f"expected an integer, found {spell(value)}")
    if not low <= number <= high:
        raise JsonFault(place, f"expected an integer of {low} to {high}, found {spell(value)}")
    return number


def as_ns(value: object, place: str) -> int:
    """Return a time in microseconds, whole or fractional, in nanoseconds. Raises `JsonFault`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < INT64_MAX // 1000:
        raise JsonFault(place, f"expected a time in microseconds, found {spell(value)}")
    return value * 1000 if isinstance(value, int) else round(value * 1000)


def spell(value: object) -> str:
    """Return a value for a message: printable, at most 40 characters."""
    text = ascii(value if not isinstance(value, list | dict) else type(value).__name__)
    return text if len(text) <= 40 else f"{text[:40]}..."
