"""Findings of a run in words and as tables: each cause with its evidence, its remedy and its effects.

Decides which findings belong to a cause, and the names of findings in lists of runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.results.report.table import Column, Table, Unit, table_of
from etloop.results.report.values import list_names, value_words, whole_percent
from etloop.results.schema.findings import Examined, Role

if TYPE_CHECKING:
    from etloop.results.schema.findings import Diagnosis, Fact, Finding

MOST_CAUSES: Final = 6
"""Most causes that a text shows."""
MOST_EFFECTS: Final = 4
"""Most effects of one cause that a text shows."""
ALL_FINDINGS_IN: Final = "summary.json"
ROLE_WORDS: Final = {Role.FAULT: "fault", Role.JOB: "job", Role.EMULATOR: "emulator"}
_MOST_NAMES: Final = 8
_OUTCOME_WORDS: Final = {
    Examined.NOT_EXERCISED: "not exercised",
    Examined.NO_EVIDENCE: "without evidence",
    Examined.FAILED: "not examined because a rule failed",
}


@dataclass(frozen=True, slots=True)
class Cause:
    """A cause, with the findings that it explains."""

    finding: Finding
    effects: tuple[Finding, ...]


def causes_of(diagnosis: Diagnosis) -> tuple[Cause, ...]:
    """Return the causes in their order, each with its effects and the effects of these."""
    findings = diagnosis.findings
    effects: dict[int, list[Finding]] = {
        row: [] for row, finding in enumerate(findings) if finding.effect_of is None
    }
    for row, finding in enumerate(findings):
        if finding.effect_of is not None and (root := _root(findings, row)) in effects:
            effects[root].append(finding)
    return tuple(Cause(findings[row], tuple(explained)) for row, explained in effects.items())


def _root(findings: Sequence[Finding], row: int) -> int:
    """Return the row of the cause at the end of a chain of effects."""
    for _ in findings:
        cause = findings[row].effect_of
        if cause is None:
            break
        row = cause
    return row


def count_words(diagnosis: Diagnosis) -> str:
    """Return how many kinds of causes were examined, were not exercised and had no evidence; "" if none was examined."""
    outcomes = [examination.outcome for examination in diagnosis.examinations]
    if not outcomes:
        return ""
    parts = [f"{len(outcomes)} kind{'s' if len(outcomes) > 1 else ''} examined"]
    parts += [
        f"{outcomes.count(outcome)} {words}"
        for outcome, words in _OUTCOME_WORDS.items()
        if outcome in outcomes
    ]
    return ", ".join(parts)


def unexamined_words(diagnosis: Diagnosis, outcome: Examined) -> str:
    """Return the kinds with an `outcome` and the reasons for it, each reason once; "" if there are none."""
    kinds: dict[str, list[str]] = {}
    for examination in diagnosis.examinations:
        if examination.outcome is outcome:
            kinds.setdefault(examination.why, []).append(examination.kind.value)
    return "; ".join(
        f"{', '.join(names)} ({why})" if why else ", ".join(names) for why, names in kinds.items()
    )


def detail_words(finding: Finding) -> str:
    """Return kind, role, share of the completion time, confidence and candidates of a finding."""
    parts = [finding.kind.value]
    if finding.role is not Role.FAULT:
        parts.append(f"a matter of the {ROLE_WORDS[finding.role]}")
    if finding.share is not None:
        share = whole_percent(finding.share)
        parts.append(f"explains {share if share[0] in '<>' else f'about {share}'} of the completion time")
    if finding.confidence < 1:
        parts.append(f"confidence {min(finding.confidence, 0.999999):.6g}")
    if finding.is_ambiguous:
        names = [str(place) for place in finding.places]
        parts.append(f"one of {len(names)} places: {list_names(names, _MOST_NAMES)}")
    return "; ".join(parts)


def place_words(finding: Finding) -> str:
    """Return the names of the places of a finding."""
    return list_names([str(place) for place in finding.places], _MOST_NAMES)


def short_names(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Return kind and first place of the faults of a run, or of its other causes if there are none, for lists of runs."""
    return tuple(
        f"{finding.kind.value} {list_names([place.name for place in finding.places], 1)}".strip()
        for finding in diagnosis.faults or diagnosis.causes
    )


def common_words(names_by_run: Sequence[Sequence[str]], most_names: int = 2) -> str:
    """Return the most frequent short names of several runs, each with the number of runs that have it; "" without any."""
    counts = Counter(name for names in names_by_run for name in dict.fromkeys(names))
    several = f" of {len(names_by_run)}" if len(names_by_run) > 1 else ""
    texts = [f"{name} ({count}{several})" if several else name for name, count in counts.most_common()]
    return list_names(texts, most_names)


def evidence_table(finding: Finding) -> Table:
    """Return the figures that a finding is based on, one row each."""
    columns = (
        Column("name", "evidence", Unit.CODE),
        Column("value", "value", Unit.NUMBER, value=lambda fact: value_words(fact.value, fact.unit)),
        Column("expected", "expected", Unit.NUMBER, value=_expected_words),
        Column("count", "observations", Unit.COUNT, value=lambda fact: fact.count or None),
    )
    return table_of("", f"Evidence of {finding.kind.value}", columns, finding.evidence)


def _expected_words(fact: Fact) -> str | None:
    return None if fact.expected is None else value_words(fact.expected, fact.unit)


def examinations_table(diagnosis: Diagnosis) -> Table:
    """Return every kind of cause that was examined, with its outcome and the reason for it."""
    columns = (
        Column("kind", "kind", Unit.CODE),
        Column("outcome", "outcome", value=lambda examination: examination.outcome.value.replace("_", " ")),
        Column("why", "why"),
    )
    return table_of("examinations", "Kinds of causes examined", columns, diagnosis.examinations)
