"""What a command answers, and how answers and errors look to programs. Pure."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from etloop.contract.base.errors import EtloopError, ExitCode, InputError


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What a command has to say: text for standard output, and the exit code."""

    text: str
    exit_code: int = ExitCode.PASS
    """An `ExitCode`, or that of a command that was run for the user."""


def to_json(value: object) -> str:
    """JSON for a program that reads a command's answer; ends with a newline."""
    return json.dumps(value, indent=2, default=str) + "\n"


def error_as_json(error: EtloopError) -> str:
    """An error for a program that asked for JSON: its message, and its problems one by one."""
    problems = error.problems if isinstance(error, InputError) else ()
    report = {"error": type(error).__name__, "exit_code": int(error.exit_code), "message": str(error)}
    return to_json(report | {"problems": [asdict(problem) for problem in problems]})
