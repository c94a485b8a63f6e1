"""A verdict: its conditions with values and limits, failed ones first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from etloop.results.report.table import Cell, Column, Table, Unit, table_of
from etloop.results.schema.verdict import ConditionOutcome, Result

if TYPE_CHECKING:
    from etloop.results.schema.verdict import Verdict

WORDS: Final = {Result.PASS: "PASS", Result.FAIL: "FAIL", Result.INCONCLUSIVE: "INCONCLUSIVE"}
_ORDER: Final = (Result.FAIL, Result.INCONCLUSIVE, Result.PASS)


def failed_first(verdict: Verdict) -> list[ConditionOutcome]:
    """Return the conditions, failed ones first, then inconclusive ones."""
    return sorted(verdict.checks, key=lambda condition: _ORDER.index(condition.result))


def count_words(verdict: Verdict) -> str:
    """Return how many conditions passed, failed and are inconclusive."""
    counts = {result: sum(condition.result is result for condition in verdict.checks) for result in Result}
    words = ", ".join(f"{counts[result]} {result.value}" for result in Result if counts[result])
    return words or "no conditions"


def broken_words(condition: ConditionOutcome) -> str:
    """Return how many rows of a table break a condition; "" for a condition on one figure, or if none does."""
    if not condition.broken or condition.checked <= 1:
        return ""
    return f"{condition.broken} of {condition.checked} rows break it"


def _value_cell(condition: ConditionOutcome) -> Cell:
    note = "; ".join(filter(None, (condition.reason, broken_words(condition))))
    return Cell(condition.value or "-", note=note, items=condition.rows)


def conditions_table(verdict: Verdict) -> Table:
    """Return the conditions with their values, limits and reasons."""
    columns = (
        Column("result", "result", value=lambda condition: result_cell(condition.result)),
        Column("expression", "condition", Unit.CODE),
        Column("value", "value", value=_value_cell),
        *(Column("limit", "limit"), Column("why", "why it matters")),
    )
    return table_of("conditions-table", "Conditions, failed ones first", columns, failed_first(verdict))


def result_cell(result: Result) -> Cell:
    """Return a result as a badge."""
    return Cell(WORDS[result], badge=result.value)
