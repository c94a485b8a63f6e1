"""Applies all rules to the evidence of a run, and orders what they find.

Decides the order of findings (kinds by precedence, then share of the completion time) and which findings are effects of
others (`precedence`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from etloop.results.diagnosis.precedence import mark_effects
from etloop.results.diagnosis.rules import from_agents, link_balance, placement, slow_link
from etloop.results.schema.findings import ROLES, Diagnosis, FindingKind, Role

if TYPE_CHECKING:
    from etloop.results.diagnosis.evidence import Evidence
    from etloop.results.diagnosis.rule import Rule

RULES: Final[tuple[Rule, ...]] = (slow_link.look, link_balance.look, from_agents.look, placement.look)
"""A new rule is a new file in `rules` and a line here."""
_ORDER: Final = {kind: number for number, kind in enumerate(FindingKind)}


def diagnose(evidence: Evidence) -> Diagnosis:
    """Return the findings of a run, causes before their effects."""
    results = [rule(evidence) for rule in RULES]
    findings = [
        replace(finding, role=ROLES.get(finding.kind, Role.FAULT))
        for result in results
        for finding in result.findings
    ]
    examinations = [examination for result in results for examination in result.examinations]
    findings.sort(key=lambda finding: (_ORDER[finding.kind], -(finding.share or 0.0)))
    return Diagnosis(
        mark_effects(tuple(findings), evidence),
        tuple(sorted(examinations, key=lambda examination: _ORDER[examination.kind])),
    )
