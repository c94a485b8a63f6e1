"""A verdict: its conditions with values and limits, failed ones first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from etloop.results.report.table import Cell, Column, Table, Unit, Value
from etloop.results.schema.verdict import CheckOutcome, Result

if TYPE_CHECKING:
    from etloop.results.schema.verdict import Verdict

WORDS: Final = {Result.PASS: "PASS", Result.FAIL: "FAIL", Result.INCONCLUSIVE: "INCONCLUSIVE"}
_ORDER: Final = (Result.FAIL, Result.INCONCLUSIVE, Result.PASS)
_COLUMNS: Final = (
    Column("result", "result"),
    Column("condition", "condition", Unit.CODE),
    Column("value", "value"),
    Column("limit", "limit"),
    Column("why", "why it matters"),
)


def failed_first(verdict: Verdict) -> list[CheckOutcome]:
    """Return the conditions, failed ones first, then inconclusive ones."""
    return sorted(verdict.checks, key=lambda condition: _ORDER.index(condition.result))


def count_words(verdict: Verdict) -> str:
    """Return how many conditions passed, failed and are inconclusive."""
    counts = {result: sum(condition.result is result for condition in verdict.checks) for result in Result}
    words = ", ".join(f"{counts[result]} {result.value}" for result in Result if counts[result])
    return words or "no conditions"


def broken_words(condition: CheckOutcome) -> str:
    """Return how many rows of a table break a condition; "" for a condition on one figure, or if none does."""
    if not condition.broken or condition.checked <= 1:
        return ""
    return f"{condition.broken} of {condition.checked} rows break it"


def conditions_table(verdict: Verdict) -> Table:
    """Return the conditions with their values, limits and reasons."""

    def row(condition: CheckOutcome) -> tuple[Value, ...]:
        reasons = filter(None, (condition.reason, broken_words(condition)))
        return (
            Cell(WORDS[condition.result], badge=condition.result.value),
            condition.expression,
            Cell(condition.value or "-", note="; ".join(reasons), items=condition.rows),
            *(condition.limit, condition.why),
        )

    rows = tuple(map(row, failed_first(verdict)))
    return Table("conditions", "Conditions, failed ones first", _COLUMNS, rows)
