"""`ideal`, `twin` and `measured` next to each other, as lines of text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from etloop.results.report.collectives import (
    comparison_table,
    degraded_words,
    expected_table,
    expected_words,
)
from etloop.results.text.layout import label_each, label_text, table_lines

if TYPE_CHECKING:
    from etloop.results.expected.expected_vs_measured import ExpectedFigures
    from etloop.results.schema.summary import ComparisonSummary, ExpectedSummary


def comparison_lines(comparison: ComparisonSummary) -> list[str]:
    """Return the times of every kind and of the job, the description of each side, and why the comparison is degraded."""
    table = comparison_table(comparison)
    lines = [*table_lines(table, len(table.rows)), *_side_lines(comparison.expected)]
    lines += label_each("not compared", comparison.absent)
    lines += label_each("~ degraded", comparison.job.degraded)
    return lines + label_each("~", degraded_words(comparison))


def expected_lines(figures: ExpectedFigures) -> list[str]:
    """Return the times of every kind and of the job in expected runs without a measured one."""
    table = expected_table(figures)
    lines = [*table_lines(table, len(table.rows)), *_side_lines(figures.expected)]
    return [*lines, *label_each("missing", figures.absent), *label_each("note", figures.notes)]


def _side_lines(sides: Iterable[ExpectedSummary]) -> list[str]:
    return [line for side in sides for line in label_text(side.network, expected_words(side))]
