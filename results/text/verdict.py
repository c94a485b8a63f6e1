"""A verdict as lines of text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etloop.results.report.verdict import WORDS, broken_words, count_words, failed_first
from etloop.results.schema.verdict import ConditionOutcome, Result
from etloop.results.text.layout import label_each, label_text

if TYPE_CHECKING:
    from etloop.results.schema.verdict import Verdict


def verdict_lines(verdict: Verdict) -> list[str]:
    """Return a summary line, then the lines of every condition, failed ones first, with the rows that broke it."""
    device = f" of {verdict.device}" if verdict.device else ""
    lines = label_text("verdict", f"{WORDS[verdict.result]}{device}: {count_words(verdict)}")
    for condition in failed_first(verdict):
        lines += _condition_lines(condition)
    return lines + label_each("emulator", verdict.emulator)


def _condition_lines(condition: ConditionOutcome) -> list[str]:
    value = f"  ({condition.value})" if condition.value else ""
    lines = label_text(f"  {condition.result.value}", f"{condition.expression}{value}")
    if condition.result is Result.PASS:
        return lines
    lines += label_each("", filter(None, (condition.reason, broken_words(condition))))
    lines += label_each("", (f"- {row}" for row in condition.rows))
    return [*lines, *(label_text("", f"why: {condition.why}") if condition.why else ())]
