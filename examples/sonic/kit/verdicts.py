"""The requirements of a plan's cases, and the table that shows whether a run fulfils them. Pure.

A requirement is a condition of ETLoop's verdicts (docs/verdict.md) with the words of the plan, and the entry of CONFIG_DB to look
at when it fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Check:
    """A requirement of a case."""

    condition: str
    requires: str
    look_at: str


@dataclass(frozen=True, slots=True)
class Case:
    """A case of a plan: the job, the network, and the requirements."""

    plan: str
    number: str
    title: str
    network: str
    scenario: dict[str, Any]
    checks: tuple[Check, ...]

    def __str__(self) -> str:
        """Return the name that pytest selects by."""
        return f"{self.plan}-{self.number}-{self.title.replace(' ', '-')}"


def with_checks(case: Case) -> dict[str, Any]:
    """Return the case's scenario with its requirements as the verdict."""
    checks = [{"check": check.condition, "why": check.requires} for check in case.checks]
    return case.scenario | {"verdict": {"checks": checks}}


def format_verdicts(case: Case, results: Sequence[Any]) -> tuple[list[str], list[str]]:
    """Return a line for each check, and a line for each failure with the setting to look at.

    `results`: the checks of `run.summary.verdict`; a device's profile may add its own.
    """
    results = [result for result in results if result.where.startswith("scenario")]
    lines = [f"{case.plan} test case {case.number}: {case.title}"]
    failures = []
    for number, (check, result) in enumerate(zip(case.checks, results, strict=True), 1):
        outcome = str(result.result).upper()
        lines.append(
            f"[Check {number}][{outcome}] {check.requires}: {result.reason or result.value}, limit {result.limit}"
        )
        if outcome != "PASS":
            failures.append(f"[Check {number}][{outcome}] {check.requires}; look at {check.look_at}")
    return lines, failures
