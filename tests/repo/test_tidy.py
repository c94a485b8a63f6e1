"""House style that no linter knows. Every message names the remedy; the limits only ever go down."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Final

import pytest

from tests.support.places import ROOT

FOLDERS: Final = (
    *("contract", "workload", "traffic", "dut_profiles", "controller", "agent", "results"),
    *("tests", "tools", "bench", "docs", "examples", ".ci"),
)
TEXT_SUFFIXES: Final = frozenset(
    {".py", ".pyi", ".h", ".cpp", ".md", ".yaml", ".yml", ".toml", ".txt", ".json", ".sh", ""}
)
CODE_SUFFIXES: Final = frozenset({".py", ".h", ".cpp"})

FILE_LINES_LIMIT: Final = 500
FUNCTION_LINES_LIMIT: Final = 70
COLUMNS_LIMIT: Final = 130

BANNED_STEMS: Final = frozenset("common data handler helper helpers info manager misc util utils".split())
BANNED_TEXT: Final = (
    (r"\b(TODO|FIXME|XXX|HACK)\b", "finish it, or say in the docs what is not done"),
    (r"(?<![\w.])/(work|root|home/\w+)/", "write the path relative to the repository"),
    (r"\bpdb\.set_trace|\bbreakpoint\(\)", "take the debugger out"),
)
BANNED_PYTHON: Final = (
    (r"\btime\.time(_ns)?\(", "use the monotonic clock for durations, datetime.now(UTC) for people"),
    (r"\bassert\b.*\bisinstance\(.*\), \"", "raise an InputError for input; assert is for our own mistakes"),
    (r"^\s*except( Exception)?:\s*pass", "handle the error or let it pass on"),
    (r"^\s*from __future__ import (?!annotations)", "only `annotations` is still needed"),
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


def matches(path: str, source: str, banned: tuple[tuple[str, str], ...]) -> list[str]:
    """Every line that has a banned pattern, with its remedy."""
    return [
        f"{path}:{number}: {found.group().strip()!r}: {remedy}"
        for number, line in enumerate(source.splitlines(), 1)
        for pattern, remedy in banned
        if (found := re.search(pattern, line))
    ]


def long_functions(path: str, source: str) -> list[str]:
    """Functions of more lines than fit a screen."""
    return [
        f"{path}:{node.lineno}: {node.name} has {lines} lines, the limit is {FUNCTION_LINES_LIMIT}: give a part of it a name"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > FUNCTION_LINES_LIMIT
    ]


@pytest.mark.parametrize("path", TEXTS, ids=str)
def test_text_is_clean(path: Path) -> None:
    source = (ROOT / path).read_text(errors="strict")
    assert matches(path.as_posix(), source, BANNED_TEXT) == []
    assert source == "" or source.endswith("\n"), f"{path}: end the file with a newline"


@pytest.mark.parametrize("path", CODE, ids=str)
def test_files_are_read_in_one_sitting(path: Path) -> None:
    lines = (ROOT / path).read_text().splitlines()
    assert len(lines) <= FILE_LINES_LIMIT, (
        f"{path} has {len(lines)} lines: split it where its docstring says 'and'"
    )
    wide = [number for number, line in enumerate(lines, 1) if len(line) > COLUMNS_LIMIT]
    assert wide == [], f"{path}: lines longer than {COLUMNS_LIMIT} columns: break them"


@pytest.mark.parametrize("path", PYTHON, ids=str)
def test_python_is_tidy(path: Path) -> None:
    source = (ROOT / path).read_text()
    assert path.stem not in BANNED_STEMS, f"{path}: name the file for what it decides"
    assert matches(path.as_posix(), source, BANNED_PYTHON) == []
    assert long_functions(path.as_posix(), source) == []
    if path.stem != "__init__" and source:
        assert ast.get_docstring(ast.parse(source)), (
            f"{path}: open with what the module decides and what it leaves to others"
        )


@pytest.mark.parametrize("path", [path for path in PYTHON if path.parts[0] == "tests"], ids=str)
def test_tests_do_not_sleep(path: Path) -> None:
    assert matches(path.as_posix(), (ROOT / path).read_text(), BANNED_IN_TESTS) == []


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


def test_a_planted_long_function_is_found() -> None:
    body = "    x = 1\n" * FUNCTION_LINES_LIMIT
    assert len(long_functions("x.py", f"def f():\n{body}")) == 1
    assert long_functions("x.py", "def f():\n    return 1\n") == []


def test_letting_another_task_run_is_no_sleep() -> None:
    assert matches("x.py", "await asyncio.sleep(0)\n", BANNED_IN_TESTS) == []
