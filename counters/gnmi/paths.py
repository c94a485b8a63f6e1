"""gNMI paths as values: formatted, parsed and matched with wildcards. Pure.

Decides the bounds of a path, and the matches of a pattern: `*` is any one element or any key, `...` any number of elements (gNMI
specification 2.4.1), and a key that is left out matches any value, too. The text form is the specification's
(gnmi-path-strings.md): `/a/b[k=v]`, with `\\` before `]`, `=`, `/` and itself.
"""

from __future__ import annotations

import re
from typing import Final

from etloop.contract.base.late_dataclass import dataclass

MOST_ELEMENTS: Final = 32
MOST_KEYS: Final = 8
MOST_CHARACTERS: Final = 256
"""Most characters of a name, a key's name or its value."""
ANY: Final = "*"
ANY_DEPTH: Final = "..."


class BadPath(ValueError):
    """An invalid path; the text gives the reason."""


@dataclass(frozen=True, slots=True)
class Element:
    """One element of a path."""

    name: str
    keys: tuple[tuple[str, str], ...] = ()
    """Sorted by name."""

    def __str__(self) -> str:
        keys = "".join(f"[{name}={_escape(value, ']')}]" for name, value in self.keys)
        return _escape(self.name, "/[") + keys

    def key(self, name: str) -> str:
        """Return the value of a key, or "" if the element has no key of that name."""
        return next((value for key, value in self.keys if key == name), "")

    def fits(self, pattern: Element) -> bool:
        """Return whether this concrete element matches a pattern's element."""
        if pattern.name not in (ANY, self.name):
            return False
        own_keys = dict(self.keys)
        return all(value == ANY or own_keys.get(key) == value for key, value in pattern.keys) and all(
            key in own_keys for key, _ in pattern.keys
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
        """Return the names of the elements, without keys."""
        return tuple(element.name for element in self.elements)

    def below(self, prefix: GnmiPath) -> GnmiPath:
        """Return this path appended to a prefix; target and origin are the prefix's where it has them."""
        return GnmiPath(
            prefix.elements + self.elements, prefix.target or self.target, prefix.origin or self.origin
        )


def first_key(elements: tuple[Element, ...]) -> str:
    """Return the key of the first list on a path, or "" if a pattern leaves it open.

    In all trees of counters this key is the port.
    """
    for element in elements:
        if element.name == ANY_DEPTH:
            return ""
        if element.keys:
            value = element.keys[0][1]
            return "" if value == ANY else value
    return ""


def matched_length(elements: tuple[Element, ...], pattern: tuple[Element, ...]) -> int:
    """Return how many elements from the root the pattern covers: the depth of the node that it matches on the path to a leaf.

    Return -1 if the pattern does not match. A pattern that ends in `...` covers the leaf itself.
    """
    # The numbers of elements that the pattern so far can cover; one pass is enough, as patterns have at most MOST_ELEMENTS.
    lengths = {0}
    for part in pattern:
        if part.name == ANY_DEPTH:
            lengths = set(range(min(lengths), len(elements) + 1))
        else:
            lengths = {
                length + 1 for length in lengths if length < len(elements) and elements[length].fits(part)
            }
        if not lengths:
            return -1
    if pattern and pattern[-1].name == ANY_DEPTH:
        return len(elements)
    return min(lengths)


def check_bounds(path: GnmiPath) -> GnmiPath:
    """Return the path unchanged. Raise `BadPath` if it exceeds the bounds of a path."""
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


def _escape(text: str, ends: str) -> str:
    return re.sub(rf"([\\{re.escape(ends)}])", r"\\\1", text)
