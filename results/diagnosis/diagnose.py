"""Applies all rules to the evidence of a run, and orders what they find.

Decides which rules there are, and the role of each finding. `precedence` decides the order of findings and which are effects.
"""

from __future__ import annotations

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
from etloop.results.schema.findings import ROLES, Diagnosis

if TYPE_CHECKING:
    from etloop.results.diagnosis.evidence import Evidence
    from etloop.results.diagnosis.rule import Rule

RULES: Final[tuple[Rule, ...]] = (
    emulator_late.look,
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


def diagnose(evidence: Evidence) -> Diagnosis:
    """Return the findings of a run, causes before their effects."""
    results = [rule(evidence) for rule in RULES]
    findings = [
        replace(finding, role=ROLES.get(finding.kind, finding.role))
        for result in results
        for finding in result.findings
    ]
    examinations = [examination for result in results for examination in result.examinations]
    return Diagnosis(
        mark_effects(tuple(findings), evidence),
        tuple(sorted(examinations, key=lambda examination: ORDER[examination.kind])),
    )
