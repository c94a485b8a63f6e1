"""What a command answers, in text, as JSON or in a file, and how errors look to programs."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

from etloop.contract.base.errors import ConfigError, EtloopError, ExitCode, InputError, Problem
from etloop.contract.base.late_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What a command has to say: text for standard output, and the exit code."""

    text: str
    exit_code: int = ExitCode.PASS
    """An `ExitCode`, or that of a command that was run for the user."""


def on_terminal(table: str) -> str:
    """Return the table of a run as standard output takes it: in colour on a terminal, unless NO_COLOR or TERM say otherwise."""
    from etloop.results.text.colour import painted

    plain = not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return table if plain else painted(table)


def pages_of(run_dir: Path) -> dict[str, str]:
    """Return the files for people that a run left, by what they are."""
    files = {"report": "report.html", "perfetto": "trace.perfetto.json"}
    return {what: str(run_dir / name) for what, name in files.items() if (run_dir / name).is_file()}


def to_json(value: object) -> str:
    """JSON for a program that reads a command's answer; ends with a newline."""
    return json.dumps(value, indent=2, default=str) + "\n"


def write_answer(path: Path, text: str, remedy: str, *, mode: str = "w") -> None:
    """Write a file that the command line names. Raises `ConfigError` with the `remedy` where it cannot be."""
    try:
        with path.open(mode, encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        what = f"cannot be written: {error.strerror or error}"
        raise ConfigError(Problem(str(path), what, remedy)) from None


def error_as_json(error: EtloopError) -> str:
    """An error for a program that asked for JSON: its message, and its problems one by one."""
    problems = error.problems if isinstance(error, InputError) else ()
    report = {"error": type(error).__name__, "exit_code": int(error.exit_code), "message": str(error)}
    return to_json(report | {"problems": [asdict(problem) for problem in problems]})
