"""The shape of a verdict: whether the device is good enough, by which conditions, and which rows broke them.

Part of summary.json. `verdict/verdict.py` fills it, `verdict/junit.py` writes it for test systems, `text/verdict.py` for
people.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from etloop.contract.base.errors import ExitCode
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.setting import required_setting, setting
from etloop.contract.base.value_parsers import words


class Result(StrEnum):
    """Result of one condition, or of all of them."""

    PASS = "pass"  # noqa: S105 - a word, not a password
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    """No statement on the device is possible: a figure is missing, the run ended early, or the emulator was the limit."""


class RunResult(StrEnum):
    """Result of one run, from best to worst: its verdict, or why it has none."""

    NO_VERDICT = "no_verdict"
    """The run is complete, and no verdict was asked for."""
    PASS = "pass"  # noqa: S105 - a word, not a password
    INCONCLUSIVE = "inconclusive"
    FAIL = "fail"
    BROKEN = "broken"
    """The run ended early, or a consistency check failed."""

    @property
    def exit_code(self) -> ExitCode:
        """Return the exit code of a command that made such a run."""
        return {
            RunResult.FAIL: ExitCode.VERDICT_FAILED,
            RunResult.INCONCLUSIVE: ExitCode.INCONCLUSIVE,
            RunResult.BROKEN: ExitCode.RUN_ERROR,
        }.get(self, ExitCode.PASS)


def worst_result(results: Iterable[RunResult]) -> RunResult:
    """Return the combined (worst) result of several runs; `NO_VERDICT` if there are none."""
    return max(results, key=list(RunResult).index, default=RunResult.NO_VERDICT)


@dataclass(frozen=True, slots=True)
class RequestedCondition:
    """A condition that the profile or the scenario states."""

    expression: str = required_setting(
        "check", words, "?", "write a condition on the results, see docs/verdict.md"
    )
    """The condition, in the language of docs/verdict.md."""
    why: str = setting("why", words, "")
    """Reason that is printed when it fails."""
    where: str = ""
    """File, line and key of the condition."""


@dataclass(frozen=True, slots=True)
class ConditionOutcome:
    """Result of one condition."""

    expression: str
    why: str
    where: str
    result: Result
    value: str
    """The measured value with its unit; for a column the worst value that broke the condition."""
    limit: str
    """The limit that the value was compared with."""
    checked: int
    """Rows, or 1 for a figure; 0 if there was no row to check."""
    broken: int
    rows: tuple[str, ...]
    """The first of the rows that broke it, worst first."""
    reason: str
    """Why it is inconclusive; "" otherwise."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """All conditions together: failed if one is, else inconclusive if one is, else passed."""

    result: Result
    device: str
    """The profile's name; "" if the run names none."""
    reasons: tuple[str, ...]
    """Why it is not a pass, in words, the most severe first."""
    emulator: tuple[str, ...]
    """In which respects the emulator itself was the limit."""
    checks: tuple[ConditionOutcome, ...]
