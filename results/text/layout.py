"""Layout of the printed table: lines with a label, aligned cells, times. Pure wording, no figures."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from textwrap import wrap
from typing import Final

WIDTH: Final = 118
"""Columns of a line; only a line of one word, such as a path, may be longer."""
LABEL_WIDTH: Final = 16
NS_NOT_SPELT_OUT: Final = 1_000_000_000_000
"""A thousand seconds; longer times are printed with an exponent so that columns stay narrow."""


def aligned(rows: Sequence[Sequence[str]], left: Container[int] = (0, 1), gap: str = "  ") -> list[str]:
    """Return rows as lines, every column as wide as its longest cell; columns in `left` are aligned to the left, all
    others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        gap.join(
            text.ljust(width) if column in left else text.rjust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def labelled(label: str, text: str) -> list[str]:
    """Return one line with its label."""
    return [f"{label.ljust(LABEL_WIDTH)}{text}"]


def wrapped(label: str, text: str) -> list[str]:
    """Return `text` after its label, wrapped between words at the full width. A longer word, such as a path, is not
    broken, so that it can be copied."""
    clean_text = printable(" ".join(text.split()))
    parts = wrap(clean_text, WIDTH - LABEL_WIDTH, break_on_hyphens=False, break_long_words=False) or [""]
    return [line for index, part in enumerate(parts) for line in labelled("" if index else label, part)]


def each_wrapped(label: str, texts: Iterable[str]) -> list[str]:
    """Return every text wrapped after the same label."""
    return [line for text in texts for line in wrapped(label, text)]


def printable(text: str) -> str:
    """Return the text with `?` for control characters: agents and files supply some of the printed text, and a terminal
    would execute them."""
    return "".join(character if character.isprintable() else "?" for character in text)


def us(time_ns: int | None) -> str:
    """Return microseconds in at most nine characters, with no more digits than a reader needs; "-" for None."""
    if time_ns is None:
        return "-"
    if abs(time_ns) >= NS_NOT_SPELT_OUT:
        return f"{time_ns / 1000:.1e}"
    digits = 3 if abs(time_ns) < 100_000 else 1 if abs(time_ns) < 100_000_000 else 0
    return f"{time_ns / 1000:.{digits}f}"
