"""Make text of others safe to print: whatever moves a cursor, ends a line or cannot be seen is escaped. Pure."""

from __future__ import annotations


def printable(text: str) -> str:
    """Return `text` with every character escaped that does not stand for itself: control, format, lone surrogate, line end."""
    return "".join(each if each.isprintable() else _escaped(each) for each in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
