"""Wrap the prose of pages at 100 columns: `python tools/wrap_docs.py [PAGE ...]`; without a page, all of them.

Paragraphs and items of lists are wrapped; code, tables, headings and HTML stay unchanged, and so does a paragraph whose
meaning in Markdown would change. Spans of code are kept on one line, because tests search for commands in them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import Final

from markdown_it import MarkdownIt

ROOT: Final = Path(__file__).resolve().parent.parent
COLUMNS: Final = 100
MOST_WORDS: Final = 35
_KEPT: Final = "\0"
_MARKDOWN: Final = MarkdownIt("commonmark").enable("table")
_SENTENCE_END: Final = re.compile(r"(?<=[.!?:;])[)*\"']*\s+(?=[^a-z])|(?<=[:;])\s+")
_SPAN: Final = re.compile(r"(`+)[^`]+?\1")
_LINK: Final = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph of a page."""

    begin: int
    """First line of the paragraph, from 0."""
    end: int
    """The line after the last one."""
    content: str
    column: int
    """Column where its first line begins, after list markers."""


def pages() -> list[Path]:
    """Return all pages whose prose is written by hand."""
    paths = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    return sorted(path for path in paths if "Written by tools/" not in path.read_text(encoding="utf-8")[:300])


def paragraphs(text: str) -> Iterator[Paragraph]:
    """Yield the paragraphs of a page, those of lists included."""
    lines = text.splitlines()
    tokens = _MARKDOWN.parse(text)
    for index, token in enumerate(tokens):
        if token.type == "paragraph_open" and token.map is not None:
            begin_line, end_line = token.map
            content = tokens[index + 1].content
            column = lines[begin_line].find(content.split("\n")[0])
            if column >= 0 and ">" not in lines[begin_line][:column]:
                yield Paragraph(begin_line, end_line, content, column)


def wrap_page(text: str) -> str:
    """Return a page with its prose wrapped, and with the same meaning in Markdown."""
    for paragraph in reversed(list(paragraphs(text))):
        lines = text.split("\n")
        first = lines[paragraph.begin][: paragraph.column]
        if any(line.endswith(("  ", "\\")) for line in lines[paragraph.begin : paragraph.end - 1]):
            continue
        protected = _SPAN.sub(
            lambda span: span[0].replace(" ", _KEPT).replace("\n", _KEPT), paragraph.content
        )
        parts = wrap(
            " ".join(protected.split()),
            COLUMNS,
            initial_indent=first,
            subsequent_indent=" " * paragraph.column,
            break_long_words=False,
            break_on_hyphens=False,
        )
        lines[paragraph.begin : paragraph.end] = [part.replace(_KEPT, " ") for part in parts]
        changed = "\n".join(lines)
        if _reading(changed) == _reading(text):
            text = changed
    return text


def _reading(text: str) -> str:
    return " ".join(_MARKDOWN.render(text).split())


def wide_lines(text: str) -> list[int]:
    """Return the numbers of lines of prose that are too long and could be shorter."""
    lines = text.splitlines()
    return [
        index + 1
        for paragraph in paragraphs(text)
        for index in range(paragraph.begin, paragraph.end)
        if len(lines[index]) > COLUMNS and " " in _SPAN.sub("x", lines[index].strip()).rstrip()
    ]


def long_sentences(text: str) -> list[str]:
    """Return the sentences of more than `MOST_WORDS` words. A colon or a semicolon ends one, and a span of code is a
    word.
    """
    sentences = []
    for paragraph in paragraphs(text):
        plain = _LINK.sub(r"\1", _SPAN.sub("CODE", " ".join(paragraph.content.split())))
        sentences += [
            sentence
            for sentence in _SENTENCE_END.split(plain)
            if len(re.findall(r"\w[\w'/.-]*", sentence)) > MOST_WORDS
        ]
    return sentences


def main() -> int:
    """Wrap the pages named on the command line, or all; return the exit code."""
    named_pages = [Path(name) for name in sys.argv[1:]]
    for page in named_pages or pages():
        text = page.read_text(encoding="utf-8")
        page.write_text(wrap_page(text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
