"""Defines errors by their cause, and `Problem`, the one form in which a mistake is reported.

Every error that a user can cause names what was expected, what was found, where, and the remedy. Mistakes of one input
are collected as `Problem` values and raised together. `assert` is for bugs and never guards input.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import TypeVar

T = TypeVar("T")


class ExitCode(IntEnum):
    """Exit codes of both commands; stable, since racks branch on them."""

    PASS = 0
    USAGE = 2
    INCONCLUSIVE = 20
    VERDICT_FAILED = 30
    RUN_ERROR = 50
    PREPARATION_FAILED = 65


class Severity(StrEnum):
    """Severity of a finding, the worst first."""

    ERROR = "error"
    """The job cannot be run, or not as intended."""
    WARNING = "warning"
    """The job runs, but not as written, or measures less well."""
    INFO = "info"
    """Worth knowing."""
    OK = "ok"
    """As it should be."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake: its place, the fault (expected and found), and the remedy."""

    where: str
    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}; {self.remedy}"


class EtloopError(Exception):
    """Base of all errors that end a command with a message instead of a traceback."""

    exit_code = ExitCode.RUN_ERROR


class InputError(EtloopError):
    """Input that cannot be used, with every mistake found in it. No traffic has been sent."""

    exit_code = ExitCode.PREPARATION_FAILED

    def __init__(self, *problems: Problem) -> None:
        assert problems
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems

    def __reduce__(self) -> tuple[type[InputError], tuple[Problem, ...]]:
        """Return what pickle makes the error of in another process: its problems, not its message."""
        return type(self), self.problems


class Mistakes:
    """The mistakes of several inputs, reported together."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def of(self, read: Callable[[], T]) -> T | None:
        """Return the result of `read`; None if it raises an `InputError`, whose problems are kept."""
        try:
            return read()
        except InputError as error:
            self.problems += error.problems
            return None

    def refuse(self, kind: type[InputError] = InputError) -> None:
        """Raise `kind` with the collected problems, each once, if there are any."""
        if self.problems:
            raise kind(*dict.fromkeys(self.problems))


class TraceError(InputError):
    """A trace file or a set of them is at fault."""


class ConfigError(InputError):
    """A file of settings is at fault: a scenario, a rig, a profile."""


class NoRoom(ConfigError):
    """The disk has no room for the results of a run; the run is not at fault and may start later."""


class PlanError(InputError):
    """The workload does not fit the rig."""


class RigError(InputError):
    """An agent, an address or the device under test is not ready."""


class ProtocolError(EtloopError):
    """A peer sent what the control protocol does not allow."""


class RunAborted(EtloopError):
    """A run that began ended early; the reason names the agent, rank or link that broke."""
