"""Answers of commands as text, as JSON or in a file, and errors as JSON. Cheap to import: `--help` loads it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from etloop.contract.base.errors import EtloopError


class CommandResult(NamedTuple):
    """The answer of a command: text for standard output, and the exit code."""

    text: str
    exit_code: int = 0
    """An `ExitCode`, or that of a command that was run for the user."""


def on_terminal(table: str) -> str:
    """Return the table of a run for standard output: coloured on a terminal, unless NO_COLOR or TERM forbids it."""
    from etloop.results.text.colour import paint

    is_plain = not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return table if is_plain else paint(table)


def page_paths(run_dir: Path) -> dict[str, str]:
    """Return the existing files of a run that a browser displays, by kind ("report", "perfetto")."""
    files = {"report": "report.html", "perfetto": "trace.perfetto.json"}
    return {kind: str(run_dir / name) for kind, name in files.items() if (run_dir / name).is_file()}


def to_json(value: object) -> str:
    """Return the JSON of a command's answer; it ends with a newline."""
    import json

    return json.dumps(value, indent=2, default=str) + "\n"


def write_answer(path: Path, text: str, remedy: str, *, mode: str = "w") -> None:
    """Write a file that the command line names. Raise `ConfigError` with the `remedy` if it cannot be written."""
    from etloop.contract.base.errors import ConfigError, Problem

    try:
        with path.open(mode, encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        problem = f"cannot be written: {error.strerror or error}"
        raise ConfigError(Problem(str(path), problem, remedy)) from None


def error_as_json(error: EtloopError) -> str:
    """Return an error as JSON: its message, and its problems one by one."""
    from dataclasses import asdict

    from etloop.contract.base.errors import InputError

    problems = error.problems if isinstance(error, InputError) else ()
    report = {"error": type(error).__name__, "exit_code": int(error.exit_code), "message": str(error)}
    return to_json(report | {"problems": [asdict(problem) for problem in problems]})
