"""The findings at the top of a report: each cause with its evidence, its remedy and its effects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from etloop.results.html.blocks import Block, Fold, Text, listing, table_blocks
from etloop.results.report.findings import (
    MOST_CAUSES,
    ROLE_WORDS,
    Cause,
    causes_of,
    count_words,
    detail_words,
    evidence_table,
    examinations_table,
)
from etloop.results.report.values import first_upper
from etloop.results.schema.findings import Role

if TYPE_CHECKING:
    from etloop.results.schema.findings import Diagnosis

_BADGES: Final = {Role.FAULT: "fail", Role.JOB: "inconclusive", Role.EMULATOR: "inconclusive"}


def finding_blocks(diagnosis: Diagnosis) -> tuple[Block, ...]:
    """Return the causes, and the examined kinds behind a fold; () for a run without a diagnosis."""
    counts = count_words(diagnosis)
    if not counts:
        return ()
    causes = causes_of(diagnosis)
    examined = Fold(first_upper(counts), table_blocks(examinations_table(diagnosis)))
    if not causes:
        return (Text("None."), examined)
    shown = tuple(block for cause in causes[:MOST_CAUSES] for block in _cause_blocks(cause))
    rest = tuple(block for cause in causes[MOST_CAUSES:] for block in _cause_blocks(cause))
    folded = (Fold(f"{len(causes) - MOST_CAUSES} more findings", rest),) if rest else ()
    return (*shown, *folded, examined)


def _cause_blocks(cause: Cause) -> tuple[Block, ...]:
    finding = cause.finding
    sentence = Text(finding.sentence, badge=_BADGES[finding.role], badge_text=ROLE_WORDS[finding.role])
    remedy = (Text(f"Remedy: {finding.remedy}"),) if finding.remedy else ()
    return (
        sentence,
        Text(detail_words(finding), is_dim=True),
        *table_blocks(evidence_table(finding)),
        *remedy,
        *listing(tuple(effect.sentence for effect in cause.effects), "Effects"),
    )
