"""The form of a rule: evidence in, findings or the reason for none out. One file per rule in `rules`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from etloop.contract.base.late_dataclass import dataclass
from etloop.results.schema.findings import (
    Examination,
    Examined,
    Finding,
    FindingKind,
)

if TYPE_CHECKING:
    from etloop.results.diagnosis.evidence import Evidence

FALSE_FINDINGS_PER_RUN: Final = 0.01
"""False findings that all rules of a run may have together, in expectation."""


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a rule: findings by falling share, and the outcome for each kind that it looks for."""

    findings: tuple[Finding, ...] = ()
    examinations: tuple[Examination, ...] = ()


Rule: TypeAlias = "Callable[[Evidence], Found]"


def report(kind: FindingKind, findings: tuple[Finding, ...]) -> Found:
    """Return the findings of a kind that the evidence was sufficient for: none means clear."""
    return Found(findings, (Examination(kind, Examined.FOUND if findings else Examined.CLEAR),))


def not_exercised(kind: FindingKind, why: str) -> Found:
    """Return that the load did not exercise what the kind is about."""
    return Found((), (Examination(kind, Examined.NOT_EXERCISED, why),))


def no_evidence(kind: FindingKind, why: str) -> Found:
    """Return that the figures that would show the kind were not counted."""
    return Found((), (Examination(kind, Examined.NO_EVIDENCE, why),))
