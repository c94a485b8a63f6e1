"""Paths of gNMI as values: written, read and matched with wildcards. Pure.

Decides what a path may be at most, and what a pattern stands for: `*` is any one element or any key, `...` any number of
elements (gNMI specification 2.4.1), and a key that is left out is any, too. The text form is the specification's
(gnmi-path-strings.md): `/a/b[k=v]`, with `\\` before `]`, `=`, `/` and itself.
"""

from __future__ import annotations

import re
from typing import Final

from etloop.contract.base.late_dataclass import dataclass

MOST_ELEMENTS: Final = 32
MOST_KEYS: Final = 8
MOST_CHARACTERS: Final = 256
"""Of a name, a key's name or its value."""
ANY: Final = "*"
ANY_DEPTH: Final = "..."


class BadPath(ValueError):
    """A path that cannot be one; the text says why."""


@dataclass(frozen=True, slots=True)
class Element:
    """One step of a path."""

    name: str
    keys: tuple[tuple[str, str], ...] = ()
    """In the order of their names."""

    def __str__(self) -> str:
        keys = "".join(f"[{name}={_escaped(value, ']')}]" for name, value in self.keys)
        return _escaped(self.name, "/[") + keys

    def key(self, name: str) -> str:
        """A key's value; "" where it has none of that name."""
        return next((value for key, value in self.keys if key == name), "")

    def fits(self, pattern: Element) -> bool:
        """Whether this concrete element is one that a pattern stands for."""
        if pattern.name not in (ANY, self.name):
            return False
        mine = dict(self.keys)
        return all(value == ANY or mine.get(key) == value for key, value in pattern.keys) and all(
            key in mine for key, _ in pattern.keys
        )


@dataclass(frozen=True, slots=True)
class GnmiPath:
    """A path from the root of a target."""

    elements: tuple[Element, ...] = ()
    target: str = ""
    origin: str = ""

    def __str__(self) -> str:
        return "".join(f"/{element}" for element in self.elements) or "/"

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the elements, without keys."""
        return tuple(element.name for element in self.elements)

    def below(self, prefix: GnmiPath) -> GnmiPath:
        """This path, as it stands behind a prefix; target and origin are the prefix's where it has them."""
        return GnmiPath(
            prefix.elements + self.elements, prefix.target or self.target, prefix.origin or self.origin
        )


def first_key(elements: tuple[Element, ...]) -> str:
    """The key of the first list on a way, which is a port in all trees of counters; "" where a pattern does not say one."""
    for element in elements:
        if element.name == ANY_DEPTH:
            return ""
        if element.keys:
            value = element.keys[0][1]
            return "" if value == ANY else value
    return ""


def matched_length(elements: tuple[Element, ...], pattern: tuple[Element, ...]) -> int:
    """How many elements from the root a pattern covers: the node that it stands for, on the way to a leaf. -1: not on it.

    A pattern that ends in `...` covers the leaf itself.
    """
    # Positions of the elements up to which the pattern can have come; one pass, as patterns have at most MOST_ELEMENTS.
    places = {0}
    for part in pattern:
        if part.name == ANY_DEPTH:
            places = set(range(min(places), len(elements) + 1))
        else:
            places = {place + 1 for place in places if place < len(elements) and elements[place].fits(part)}
        if not places:
            return -1
    if pattern and pattern[-1].name == ANY_DEPTH:
        return len(elements)
    return min(places)


def checked(path: GnmiPath) -> GnmiPath:
    """The path itself. Raises `BadPath` where it is more than a path may be."""
    if len(path.elements) > MOST_ELEMENTS:
        raise BadPath(f"it has {len(path.elements)} elements, more than {MOST_ELEMENTS}")
    for element in path.elements:
        if len(element.keys) > MOST_KEYS or len({key for key, _ in element.keys}) < len(element.keys):
            raise BadPath(f"{element.name[:64]!r} has more than {MOST_KEYS} keys, or one of them twice")
        for word in (element.name, *(word for key in element.keys for word in key)):
            if not 0 < len(word) <= MOST_CHARACTERS or not word.isprintable():
                raise BadPath("a name or a key is empty, too long or not printable")
    for word in (path.target, path.origin):
        if len(word) > MOST_CHARACTERS or not (word.isprintable() or not word):
            raise BadPath("its target or origin is too long or not printable")
    return path


def _escaped(text: str, ends: str) -> str:
    return re.sub(rf"([\\{re.escape(ends)}])", r"\\\1", text)
