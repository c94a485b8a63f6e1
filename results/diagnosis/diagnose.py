"""Applies all rules to the evidence of a run, and orders what they find.

Decides which rules there are, the role of each finding, and the report of a rule that fails: the figures of the run
stay, and its kinds are not examined. `precedence` decides the order of findings and which are effects.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from etloop.results.diagnosis.precedence import ORDER, mark_effects
from etloop.results.diagnosis.rules import (
    buffer_drops,
    buffer_share_small,
    cnp_late,
    damaged_link,
    ecn_marking,
    emulator_late,
    foreign_packets,
    from_agents,
    link_balance,
    link_flap,
    lossless_drops,
    lossy_link,
    mtu,
    pauses,
    placement,
    reordering,
    slow_link,
    straggler,
    traffic_class,
    trim_unanswered,
)
from etloop.results.schema.findings import ROLES, Diagnosis, Examination, Examined, Finding

if TYPE_CHECKING:
    from etloop.results.diagnosis.evidence import Evidence
    from etloop.results.diagnosis.rule import Rule

RULES: Final[tuple[Rule, ...]] = (
    emulator_late.look,
    foreign_packets.look,
    link_flap.look,
    traffic_class.look,
    mtu.look,
    damaged_link.look,
    lossy_link.look,
    buffer_drops.look,
    lossless_drops.look,
    pauses.look,
    slow_link.look,
    ecn_marking.look,
    cnp_late.look,
    buffer_share_small.look,
    trim_unanswered.look,
    link_balance.look,
    reordering.look,
    from_agents.look,
    placement.look,
    straggler.look,
)
"""A new rule is a new file in `rules` and a line here."""


_LONGEST_WHY: Final = 300


def diagnose(evidence_of: Callable[[], Evidence]) -> Diagnosis:
    """Return the findings of a run, causes before their effects; `evidence_of` returns the evidence.

    Evidence or a rule that fails ends nothing: the kinds that were not examined for it have the outcome `FAILED`.
    """
    findings: list[Finding] = []
    examinations: list[Examination] = []
    failures: list[str] = []
    try:
        evidence = evidence_of()
    except Exception as error:  # noqa: BLE001 - whatever a defect raises, the measured figures must be kept
        return _with_failures((), [], [f"the evidence cannot be computed: {_words(error)}"])
    for rule in RULES:
        try:
            result = rule(evidence)
            _refuse_nan(result.findings)
        except Exception as error:  # noqa: BLE001 - as above
            failures.append(f"{rule.__module__.rpartition('.')[2]}: {_words(error)}")
            continue
        findings += [
            replace(finding, role=ROLES.get(finding.kind, finding.role)) for finding in result.findings
        ]
        examinations += result.examinations
    ordered = tuple(findings)
    try:
        ordered = mark_effects(ordered, evidence)
    except Exception as error:  # noqa: BLE001 - as above
        failures.append(f"precedence: {_words(error)}")
    return _with_failures(ordered, examinations, failures)


def _refuse_nan(findings: tuple[Finding, ...]) -> None:
    """Raise `ValueError` for a figure that is not a number: JSON has none, and no reader could compare it."""
    for finding in findings:
        figures = [(fact.name, value) for fact in finding.evidence for value in (fact.value, fact.expected)]
        for name, value in (*figures, ("confidence", finding.confidence), ("share", finding.share)):
            if value is not None and not math.isfinite(value):
                message = f"{finding.kind}: {name} is {value}"
                raise ValueError(message)


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:_LONGEST_WHY]


def _with_failures(
    findings: tuple[Finding, ...], examinations: list[Examination], failures: list[str]
) -> Diagnosis:
    """Return the diagnosis, in which kinds that no rule examined have failed if any rule has."""
    missing = ORDER.keys() - {examination.kind for examination in examinations} if failures else ()
    why = f"a rule failed, which is a defect of ETLoop: {'; '.join(failures)}"
    failed = [Examination(kind, Examined.FAILED, why) for kind in missing]
    return Diagnosis(
        findings, tuple(sorted((*examinations, *failed), key=lambda examination: ORDER[examination.kind]))
    )
