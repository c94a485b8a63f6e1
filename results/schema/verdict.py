"""The shape of a verdict: whether the device is good enough, by which conditions, and which rows broke them.

Part of summary.json. `verdict.py` fills it, `junit.py` writes it for test systems, `verdict_text.py` for people.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from etloop.contract.base.errors import ExitCode
from etloop.contract.base.late_dataclass import dataclass


class Result(StrEnum):
    """What a condition, or all of them, came to."""

    PASS = "pass"  # noqa: S105 - a word, not a password
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    """Nothing can be said of the device: a figure is missing, the run broke off, or the emulator was the limit."""


class RunResult(StrEnum):
    """What came of one run, from best to worst: its verdict, or why it has none."""

    NO_VERDICT = "no_verdict"
    """It is whole, and no verdict was asked for."""
    PASS = "pass"  # noqa: S105 - a word, not a password
    INCONCLUSIVE = "inconclusive"
    FAIL = "fail"
    BROKEN = "broken"
    """It ended early, or its own records do not add up."""

    @property
    def exit_code(self) -> ExitCode:
        """Of a command that made such a run."""
        return {
            RunResult.FAIL: ExitCode.VERDICT_FAILED,
            RunResult.INCONCLUSIVE: ExitCode.INCONCLUSIVE,
            RunResult.BROKEN: ExitCode.RUN_ERROR,
        }.get(self, ExitCode.PASS)


def worst_result(results: Iterable[RunResult]) -> RunResult:
    """Return the result that several runs have together; `NO_VERDICT` of none."""
    return max(results, key=list(RunResult).index, default=RunResult.NO_VERDICT)


@dataclass(frozen=True, slots=True)
class RequestedCheck:
    """A condition that profile or scenario state."""

    expression: str
    why: str
    where: str
    """File, line and key."""


@dataclass(frozen=True, slots=True)
class CheckOutcome:
    """What became of one condition."""

    expression: str
    why: str
    where: str
    result: Result
    value: str
    """What was found, with its unit; of a column the worst that broke it."""
    limit: str
    """What it was held against."""
    checked: int
    """Rows, or 1 for a figure; 0 where there was nothing to look at."""
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
    """Why it is not a pass, in words, the gravest first."""
    emulator: tuple[str, ...]
    """In which respects the emulator itself was the limit."""
    checks: tuple[CheckOutcome, ...]
