"""Findings of a run as lines of text: each cause with its remedy, and its effects indented below it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etloop.results.report.findings import (
    ALL_FINDINGS_IN,
    MOST_CAUSES,
    MOST_EFFECTS,
    Cause,
    causes_of,
    count_words,
    detail_words,
    unexamined_words,
)
from etloop.results.schema.findings import Examined
from etloop.results.text.layout import label_text

if TYPE_CHECKING:
    from etloop.results.schema.findings import Diagnosis


def finding_lines(diagnosis: Diagnosis) -> list[str]:
    """Return the causes, or one line if there are none; no lines for a run without a diagnosis."""
    causes, counts = causes_of(diagnosis), count_words(diagnosis)
    failed = unexamined_words(diagnosis, Examined.FAILED)
    failure_lines = label_text("not examined", failed) if failed else []
    if not causes:
        return (label_text("findings", f"none ({counts})") if counts else []) + failure_lines
    lines = [line for cause in causes[:MOST_CAUSES] for line in _cause_lines(cause)]
    if len(causes) > MOST_CAUSES:
        lines += label_text("", f"and {len(causes) - MOST_CAUSES} more findings in {ALL_FINDINGS_IN}")
    not_exercised = unexamined_words(diagnosis, Examined.NOT_EXERCISED)
    return lines + (label_text("not exercised", not_exercised) if not_exercised else []) + failure_lines


def _cause_lines(cause: Cause) -> list[str]:
    finding = cause.finding
    remedy = f"; remedy: {finding.remedy}" if finding.remedy else ""
    lines = label_text("finding", finding.sentence) + label_text("", f"{detail_words(finding)}{remedy}")
    for effect in cause.effects[:MOST_EFFECTS]:
        lines += label_text("  effect", effect.sentence)
    left_out = len(cause.effects) - MOST_EFFECTS
    return lines + (label_text("", f"and {left_out} more effects") if left_out > 0 else [])
