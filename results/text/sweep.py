"""Results of a sweep, or of a search, as text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from etloop.results.report.sweep import group_table, promise_words, search_table, serving_table, trial_at
from etloop.results.schema.sweep import SEARCH_PAGE
from etloop.results.text.layout import label_text, printable, table_lines

if TYPE_CHECKING:
    from etloop.results.compare.sweep_results import Group
    from etloop.results.schema.comparison import ComparisonSettings
    from etloop.results.schema.sweep import SearchRecord, SweepRecord


def render_sweep(
    record: SweepRecord, groups: Sequence[Group], settings: ComparisonSettings, out_dir: str
) -> str:
    """Return a table for each group, followed by the guarantee of the intervals."""
    results = {result.name: result for result in record.results}
    lines = label_text(
        "sweep", f"{record.source}: {len(record.points)} points, {len(record.runs)} runs, {record.mode}"
    )
    for group in groups:
        table = group_table(group, record.compare, results, record.runs)
        title = f"{group.words}: {record.compare}" if group.words else record.compare
        lines += ["", printable(title), *table_lines(table, len(table.rows), "  ")]
    lines += ["", *label_text("false alarms", promise_words(settings))]
    lines += [*label_text("results", out_dir), *label_text("page", f"{out_dir}/compare.html")]
    return "\n".join(lines) + "\n"


def render_serving_sweep(record: SweepRecord, out_dir: str) -> str:
    """Return a table of the points of a sweep of serving workloads: means over their runs."""
    lines = label_text(
        "sweep", f"{record.source}: {len(record.points)} points, {len(record.runs)} runs, {record.mode}"
    )
    table = serving_table(record)
    lines += ["", *table_lines(table, len(table.rows), "  "), "", *label_text("results", out_dir)]
    return "\n".join(lines) + "\n"


def render_search(record: SearchRecord, value_text: Callable[[int], str], out_dir: str) -> str:
    """Return the table, the condition that failed at the first value beyond each limit, and the location of the runs."""
    table = search_table(record, value_text)
    lines = [f"{record.path}, {value_text(record.begin)} to {value_text(record.end)}"]
    lines += [*table_lines(table, len(table.rows)), ""]
    for point in record.points:
        beyond = trial_at(point, point.fails_at)
        if beyond is not None:
            lines += label_text(point.name, f"at {beyond.words}: {beyond.reason}")
    return (
        "\n".join([*lines, *label_text("results", out_dir), *label_text("page", f"{out_dir}/{SEARCH_PAGE}")])
        + "\n"
    )
