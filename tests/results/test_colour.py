"""The table of a run on a terminal: the states are painted, and nothing but colour is added."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from etloop.cli.result import on_terminal, page_paths
from etloop.results.report.values import merge_places
from etloop.results.text.colour import paint


@pytest.mark.parametrize(
    ("line", "shown", "why"),
    [
        (
            "verdict         PASS: 2 pass",
            "verdict         \x1b[1;32mPASS\x1b[0m: 2 pass",
            "the verdict is what counts",
        ),
        (
            "verdict         FAIL of x: 1 fail",
            "verdict         \x1b[1;31mFAIL\x1b[0m of x: 1 fail",
            "of a device",
        ),
        ("verdict         INCONCLUSIVE: 1", "verdict         \x1b[1;33mINCONCLUSIVE\x1b[0m: 1", "is neither"),
        ("  fail          lost_share == 0", "  \x1b[31mfail\x1b[0m          lost_share == 0", "a condition"),
        (
            "consistency     7 checks pass, 1 fail",
            "consistency     7 checks pass, \x1b[31m1 fail\x1b[0m",
            "our own records are wrong",
        ),
        (
            "consistency     8 checks pass, 0 fail",
            "consistency     8 checks pass, 0 fail",
            "no failure, no colour",
        ),
        ("#   fail        busbw", "#   \x1b[31mfail\x1b[0m        busbw", "below a table of collectives"),
        ("degraded        a: late", "\x1b[33mdegraded\x1b[0m        a: late", "a doubt"),
        ("note            verdict PASS", "note            verdict PASS", "only at its place"),
        ("                fail", "                fail", "a line that goes on says nothing anew"),
    ],
)
def test_states_are_painted(line: str, shown: str, why: str) -> None:
    assert paint(f"{line}\n") == f"{shown}\n", why
    assert re.sub(r"\x1b\[[\d;]+m", "", paint(line)) == line, why


def test_colour_is_for_terminals_that_want_it(monkeypatch: pytest.MonkeyPatch) -> None:
    table = "verdict         PASS: 2 pass\n"
    assert on_terminal(table) == table, "not into a pipe"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert on_terminal(table) == paint(table) != table
    monkeypatch.setenv("NO_COLOR", "1")
    assert on_terminal(table) == table
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert on_terminal(table) == table


@pytest.mark.parametrize(
    ("texts", "shown", "why"),
    [
        (("a: late", "b: late", "c: other"), ("a, b: late", "c: other"), "what is alike is said once"),
        (("late", "a: late"), ("a: late",), "a place makes it no other"),
        (tuple(f"a{n}: late" for n in range(6)), ("a0, a1, a2, a3 and 2 more: late",), "names have an end"),
        ((), (), "nothing"),
    ],
)
def test_what_several_places_say_is_said_once(
    texts: tuple[str, ...], shown: tuple[str, ...], why: str
) -> None:
    assert merge_places(texts) == shown, why


def test_only_pages_that_are_there_are_named(tmp_path: Path) -> None:
    assert page_paths(tmp_path) == {}
    (tmp_path / "report.html").write_text("")
    assert page_paths(tmp_path) == {"report": str(tmp_path / "report.html")}
