"""The page of a search: the furthest value that passes for each combination of settings, the trials, and the failures
beyond it.

Decides order, wording and limits. Templates escape everything that a file named.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from etloop.results.html.blocks import Block, Fold, LegendEntry, Page, Section, table_blocks
from etloop.results.html.render import render
from etloop.results.html.rows import Dot, Row, row_chart
from etloop.results.report.sweep import search_table, settings_words, trials_table

if TYPE_CHECKING:
    from etloop.results.schema.sweep import SearchedPoint, SearchRecord

MOST_POINTS: Final = 60
"""Most points that are drawn; search.json has all of them."""
_PASSED: Final = 2
_FAILED: Final = 1
_SCALES: Final = {
    "bps": ((1e12, "Tbit/s"), (1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"), (1.0, "bit/s")),
    "B": ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")),
    "ns": ((1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns")),
    "": ((1.0, "count"),),
}
"""By unit of the record: sizes and names of units, the greatest first."""


def search_html(record: SearchRecord, value_text: Callable[[int], str]) -> str:
    """Return the page. `value_text` formats a value as the sweep file writes it."""
    shown_points = record.points[:MOST_POINTS]
    sections = (
        Section(
            "found",
            "Limits",
            (*_chart(record, shown_points), *table_blocks(search_table(record, value_text), MOST_POINTS)),
        ),
        Section("tried", "Trials", tuple(_trials(point) for point in shown_points if point.trials)),
    )
    points_done = sum(point.done for point in record.points)
    subtitle = (
        f"{record.path} from {value_text(record.begin)} to {value_text(record.end)}; "
        f"{points_done} of {len(record.points)} points done; {record.repeats} runs a value; {record.mode}"
    )
    return render(Page(f"ETLoop search: {record.source}", subtitle, "", "", (), sections))


def _chart(record: SearchRecord, shown: tuple[SearchedPoint, ...]) -> tuple[Block, ...]:
    """Return a chart of every value that was tried, one row a point, coloured by result."""
    most = max((abs(trial.value) for point in shown for trial in point.trials), default=1) or 1
    scale, unit = next(
        size_and_name
        for size_and_name in _SCALES[record.unit]
        if most >= size_and_name[0] or size_and_name[0] == 1.0
    )
    rows = tuple(
        Row(
            settings_words(point),
            tuple(
                Dot(
                    f"{trial.words}: {'passes' if trial.passed else 'fails'}",
                    trial.value / scale,
                    _PASSED if trial.passed else _FAILED,
                )
                for trial in sorted(point.trials, key=lambda tried: tried.passed, reverse=True)
            ),
        )
        for point in shown
    )
    legend = (LegendEntry("passes", _PASSED), LegendEntry("fails", _FAILED))
    return row_chart(
        "values", "Every value that was tried, a row a point", f"{record.path} ({unit})", rows, legend
    )


def _trials(point: SearchedPoint) -> Fold:
    table = trials_table(point)
    return Fold(f"{settings_words(point)} ({point.name})", table_blocks(table, len(table.rows)))
