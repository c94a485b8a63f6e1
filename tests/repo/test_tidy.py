"""House style that ruff (pyproject.toml) cannot check. Every message names the remedy."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.support.places import ROOT
from tools.link_package import rooms

FOLDERS: Final = (
    *sorted(folder.relative_to(ROOT).as_posix() for folder in rooms().values()),
    *("tests", "tools", "docs", "examples", "deploy", ".ci"),
)
TEXT_SUFFIXES: Final = frozenset(
    {".py", ".pyi", ".h", ".cpp", ".md", ".yaml", ".yml", ".toml", ".txt", ".json", ".sh", ""}
)
CODE_SUFFIXES: Final = frozenset({".py", ".h", ".cpp"})

COLUMNS_LIMIT: Final = 130
"""For lines that no formatter breaks, such as comments."""

BANNED_STEMS: Final = frozenset("common data handler helper helpers info manager misc util utils".split())
BANNED_TEXT: Final = (
    (r"\b(TODO|FIXME|XXX|HACK)\b", "finish it, or say in the docs what is not done"),
    (r"(?<![\w.])/(work|root|home/\w+)/", "write the path relative to the repository"),
    (r"\bpdb\.set_trace|\bbreakpoint\(\)", "take the debugger out"),
)
BANNED_PYTHON: Final = (
    (r"\btime\.time(_ns)?\(", "use the monotonic clock for durations, datetime.now(UTC) for people"),
    (r"\bassert\b.*\bisinstance\(.*\), \"", "raise an InputError for input; assert is for our own mistakes"),
    (r"^[ \t]*except( Exception)?:[ \t]*pass", "handle the error or let it pass on"),
    (r"^[ \t]*from __future__ import (?!annotations)", "only `annotations` is still needed"),
)
BANNED_IN_TESTS: Final = (
    (r"\b(time|asyncio)\.sleep\((?!0\))", "wait for the event itself, or pass the time in"),
)


def texts() -> list[Path]:
    """Every text file that belongs to the project."""
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    # In a work tree beside the repository, `.git` is a file that holds a path of the machine.
    found += [path for path in ROOT.glob("*") if path.name != ".git"]
    return sorted(
        path.relative_to(ROOT)
        for path in found
        if path.is_file() and path.suffix in TEXT_SUFFIXES and "__pycache__" not in path.parts
        if path != Path(__file__)  # it has to spell what it bans
    )


TEXTS: Final = texts()
CODE: Final = [path for path in TEXTS if path.suffix in CODE_SUFFIXES]
PYTHON: Final = [path for path in CODE if path.suffix == ".py"]


@cache
def text_of(path: Path) -> str:
    """Return the text of a file by its path from the root."""
    return (ROOT / path).read_text(encoding="utf-8")


def matches(path: str, source: str, banned: tuple[tuple[str, str], ...]) -> list[str]:
    """Return every use of a banned pattern, with its remedy."""
    return [
        f"{path}:{source.count(chr(10), 0, match.start()) + 1}: {match.group().strip()!r}: {remedy}"
        for pattern, remedy in banned
        for match in re.finditer(pattern, source, re.MULTILINE)
    ]


def text_smells(path: str, source: str) -> list[str]:
    """What no text may have."""
    unended = source != "" and not source.endswith("\n")
    return matches(path, source, BANNED_TEXT) + [f"{path}: end the file with a newline"] * unended


def wide_lines(path: str, source: str) -> list[str]:
    """Return the lines that do not fit a screen."""
    return [
        f"{path}:{number}: longer than {COLUMNS_LIMIT} columns: break it"
        for number, line in enumerate(source.splitlines(), 1)
        if len(line) > COLUMNS_LIMIT
    ]


def python_smells(path: str, source: str) -> list[str]:
    """Return banned names and patterns of a module."""
    vague = [f"{path}: name the file for what it decides"] * (Path(path).stem in BANNED_STEMS)
    return vague + matches(path, source, BANNED_PYTHON)


def found_in(paths: Iterable[Path], smells: Callable[[str, str], list[str]]) -> str:
    """Everything that is wrong with any of the files, a line each."""
    found = [smell for path in paths for smell in smells(path.as_posix(), text_of(path))]
    return "\n".join(found)


def test_every_room_is_looked_at() -> None:
    assert len(TEXTS) > 2000
    assert {path.parts[0] for path in PYTHON} >= {folder.name for folder in rooms().values()}


def test_text_is_clean() -> None:
    assert found_in(TEXTS, text_smells) == ""


def test_code_fits_a_screen() -> None:
    assert found_in(CODE, wide_lines) == ""


def test_python_is_tidy() -> None:
    assert found_in(PYTHON, python_smells) == ""


def test_tests_do_not_sleep() -> None:
    measuring = Path("tests/measure")  # whose scripts sample processes at intervals
    tests = [
        path
        for path in PYTHON
        if path.parts[0] == "tests" and (measuring not in path.parents or path.name.startswith("test_"))
    ]
    assert len(tests) > 400
    assert found_in(tests, lambda path, source: matches(path, source, BANNED_IN_TESTS)) == ""


@pytest.mark.parametrize(
    ("banned", "line"),
    [
        (BANNED_TEXT, "# TODO: later"),
        (BANNED_TEXT, "see /home/someone/notes"),
        (BANNED_PYTHON, "began = time.time()"),
        (BANNED_PYTHON, "    except Exception: pass"),
        (BANNED_IN_TESTS, "    time.sleep(0.1)"),
        (BANNED_IN_TESTS, "    await asyncio.sleep(1)"),
    ],
)
def test_a_planted_smell_is_found(banned: tuple[tuple[str, str], ...], line: str) -> None:
    assert len(matches("x.py", f"ok = 1\n{line}\n", banned)) == 1


@pytest.mark.parametrize(
    ("smells", "path", "source"),
    [
        (text_smells, "x.md", "no end of a line"),
        (wide_lines, "x.h", "x" * (COLUMNS_LIMIT + 1)),
        (python_smells, "cli/utils.py", '"""Decides."""\n'),
    ],
)
def test_a_planted_file_is_found(smells: Callable[[str, str], list[str]], path: str, source: str) -> None:
    assert len(smells(path, source)) == 1


def test_letting_another_task_run_is_no_sleep() -> None:
    assert matches("x.py", "await asyncio.sleep(0)\n", BANNED_IN_TESTS) == []
