"""Makes foreign text safe to print: characters that move a cursor, end a line or are invisible are escaped. Pure."""

from __future__ import annotations


def printable(text: str) -> str:
    """Return `text` with every unprintable character escaped: controls, formats, lone surrogates, line ends."""
    return "".join(character if character.isprintable() else _escape(character) for character in text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
