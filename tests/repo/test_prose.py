"""How pages are written: short sentences, and lines that are wrapped."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.support.places import ROOT
from tools.wrap_docs import COLUMNS, MOST_WORDS, long_sentences, pages, wide_lines, wrap_page

PAGES: Final = pages()


def name_of(page: Path) -> str:
    """Return a page's name."""
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_sentences_are_short(page: Path) -> None:
    found = long_sentences(page.read_text())
    assert found == [], f"cut them at {MOST_WORDS} words"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_lines_are_wrapped(page: Path) -> None:
    assert wide_lines(page.read_text()) == [], f"run: .venv/bin/python tools/wrap_docs.py {name_of(page)}"


@pytest.mark.parametrize("page", sorted({*(ROOT / "docs").rglob("*.md")} - {*PAGES}), ids=name_of)
def test_what_tools_write_is_as_narrow_and_short(page: Path) -> None:
    text = page.read_text()
    assert (wide_lines(text), long_sentences(text)) == ([], []), "cut what its tool writes"


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("one " * 35 + "end.", 36),
        ("one " * 30 + "`a b c d e f` end.", 0),
        ("one " * 20 + "end. Two " + "two " * 20 + "end.", 0),
        ("one " * 20 + "`a`. " + "`b` " + "two " * 20 + "end.", 0),
        ("* one " + "one " * 35 + "end.", 37),
        ("```sh\n" + "one " * 40 + "\n```", 0),
        ("| " + "one " * 40 + "| a |\n|---|---|\n", 0),
    ],
)
def test_long_sentences_are_found(text: str, words: int) -> None:
    found = long_sentences(text)
    assert [len(one.split()) for one in found] == ([words] if words else [])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("word " * 25, ["word " * 19 + "word", "word " * 4 + "word"]),
        ("* " + "word " * 25, ["* " + "word " * 18 + "word", "  " + "word " * 5 + "word"]),
        ("word " * 19 + "`a b c` end", ["word " * 18 + "word", "`a b c` end"]),
    ],
)
def test_prose_is_wrapped(text: str, expected: list[str]) -> None:
    assert max(map(len, expected)) <= COLUMNS
    assert wrap_page(text).split("\n") == expected


def test_a_paragraph_that_would_read_as_a_list_stays() -> None:
    text = "word " * 20 + "- end"
    assert wrap_page(text) == text


def test_what_is_no_prose_stays() -> None:
    text = (
        "# "
        + "word " * 30
        + "\n\n```sh\n"
        + "word " * 30
        + "\n```\n\n| "
        + "word " * 30
        + "|\n|---|\n| a |\n"
    )
    assert wrap_page(text) == text
    assert wide_lines(text) == []
