"""Findings of a run in words and as tables: each cause with its evidence, its remedy and its effects.

Decides which findings belong to a cause, and how findings of two sets of runs are matched: by kind and places.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.results.report.table import Column, Table, Unit, table_of
from etloop.results.report.values import list_names, value_words, whole_percent
from etloop.results.schema.findings import Examined, Role

if TYPE_CHECKING:
    from etloop.results.schema.findings import Diagnosis, Fact, Finding, FindingKind

MOST_CAUSES: Final = 6
"""Most causes that a text shows."""
MOST_EFFECTS: Final = 4
"""Most effects of one cause that a text shows."""
ALL_FINDINGS_IN: Final = "summary.json"
ROLE_WORDS: Final = {Role.FAULT: "fault", Role.JOB: "job", Role.EMULATOR: "emulator"}
_MOST_NAMES: Final = 8
_OUTCOME_WORDS: Final = {Examined.NOT_EXERCISED: "not exercised", Examined.NO_EVIDENCE: "without evidence"}


@dataclass(frozen=True, slots=True)
class Cause:
    """A finding that is no effect of another one, with the findings that it explains."""

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
    parts = [f"{len(outcomes)} kinds examined"]
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
        parts.append(f"explains about {whole_percent(finding.share)} of the completion time")
    if finding.confidence < 1:
        parts.append(f"confidence {min(finding.confidence, 0.999999):.6g}")
    if finding.is_ambiguous:
        names = [str(place) for place in finding.places]
        parts.append(f"one of {len(names)} places: {list_names(names, _MOST_NAMES)}")
    return "; ".join(parts)


def place_words(finding: Finding) -> str:
    """Return the names of the places of a finding."""
    return list_names([str(place) for place in finding.places], _MOST_NAMES)


def column_words(diagnosis: Diagnosis, most_findings: int = 2) -> str:
    """Return the causes of a run for one column of a list: faults, or other causes if there are none; "" without any."""
    causes = diagnosis.faults or diagnosis.causes
    names = [
        f"{finding.kind.value} {list_names([place.name for place in finding.places], 1)}".strip()
        for finding in causes
    ]
    return list_names(names, most_findings)


def evidence_table(finding: Finding) -> Table:
    """Return the figures that a finding is based on, one row each."""
    columns = (
        Column("name", "evidence", Unit.CODE),
        Column("value", "value", Unit.NUMBER, value=lambda fact: value_words(fact.value, fact.unit)),
        Column("expected", "expected", Unit.NUMBER, value=_expected),
        Column("count", "observations", Unit.COUNT, value=lambda fact: fact.count or None),
    )
    return table_of("", f"Evidence of {finding.kind.value}", columns, finding.evidence)


def _expected(fact: Fact) -> str | None:
    return None if fact.expected is None else value_words(fact.expected, fact.unit)


def examinations_table(diagnosis: Diagnosis) -> Table:
    """Return every kind of cause that was examined, with its outcome and the reason for it."""
    columns = (
        Column("kind", "kind", Unit.CODE),
        Column("outcome", "outcome", value=lambda examination: examination.outcome.value.replace("_", " ")),
        Column("why", "why"),
    )
    return table_of("examinations", "Kinds of causes examined", columns, diagnosis.examinations)


_Key = tuple["FindingKind", tuple[str, ...]]


def compared_findings_table(a: Sequence[Diagnosis], b: Sequence[Diagnosis]) -> Table:
    """Return the causes in the runs of two sides, with the number of runs that have them: those of B alone first, then
    those of A alone, then those of both. Empty if no run has a cause."""
    of_a, of_b = _counted_causes(a), _counted_causes(b)
    keys = [
        *(key for key in of_b if key not in of_a),
        *(key for key in of_a if key not in of_b),
        *(key for key in of_b if key in of_a),
    ]
    rows = []
    for key in keys:
        finding = (of_b.get(key) or of_a[key])[0]
        counts = [len(causes.get(key, ())) for causes in (of_a, of_b)]
        new = "in A and B" if all(counts) else "only in B" if counts[1] else "only in A"
        runs = [f"{count} of {len(runs)}" for count, runs in zip(counts, (a, b), strict=True)]
        rows.append((new, ROLE_WORDS[finding.role], finding.kind.value, *runs, finding.sentence))
    columns = (
        Column("change", "findings"),
        Column("role", "role"),
        Column("kind", "kind", Unit.CODE),
        Column("runs_a", "runs of A", Unit.NUMBER),
        Column("runs_b", "runs of B", Unit.NUMBER),
        Column("sentence", "finding"),
    )
    return Table("findings", "Findings", columns, tuple(rows))


def _counted_causes(diagnoses: Iterable[Diagnosis]) -> dict[_Key, list[Finding]]:
    """Return the causes of several runs by kind and places, one entry per run."""
    causes: dict[_Key, list[Finding]] = {}
    for diagnosis in diagnoses:
        of_run = {(cause.kind, tuple(map(str, cause.places))): cause for cause in diagnosis.causes}
        for key, finding in of_run.items():
            causes.setdefault(key, []).append(finding)
    return causes
