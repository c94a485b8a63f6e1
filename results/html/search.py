"""The page of a search: the furthest value that passes for each combination of settings, the trials, and what failed
beyond it.

Decides order, wording and limits. Templates escape everything that a file named.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from etloop.results.html.blocks import Block, Cell, Fold, LegendEntry, Page, Section, Text, table
from etloop.results.html.render import render
from etloop.results.html.rows import Dot, Row, row_chart
from etloop.results.schema.kpis import BY_NAME
from etloop.results.schema.sweep import TRIAL_FIGURES
from etloop.results.text.units import value_words

if TYPE_CHECKING:
    from etloop.results.schema.sweep import SearchedPoint, SearchRecord, TrialRecord

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
_TITLES: Final = {
    "goodput_bps": "goodput",
    "busiest_port_share": "of line rate",
    "jct_avg_ns": "iteration",
    "lost_share": "lost",
    "slip_share": "our lateness",
}
assert _TITLES.keys() == set(TRIAL_FIGURES)


def search_html(record: SearchRecord, words: Callable[[int], str]) -> str:
    """Return the page. `words` formats a value as the sweep file writes it."""
    shown_points = record.points[:MOST_POINTS]
    points_left_out = len(record.points) - len(shown_points)
    more = (
        (Text(f"{points_left_out} more points are in search.json.", is_dim=True),) if points_left_out else ()
    )
    sections = (
        Section(
            "found",
            "How far it passes",
            (*_chart(record, shown_points), *_table(record, shown_points, words), *more),
        ),
        Section("tried", "What was tried", tuple(_trials(point) for point in shown_points if point.trials)),
    )
    points_done = sum(point.done for point in record.points)
    subtitle = (
        f"{record.path} from {words(record.begin)} to {words(record.end)}; {points_done} of {len(record.points)} points done; "
        f"{record.repeats} runs a value; {record.mode}"
    )
    return render(Page(f"ETLoop search: {record.source}", subtitle, "", "", (), sections))


def _named(point: SearchedPoint) -> str:
    return ", ".join(point.labels.values()) or point.name


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
            _named(point),
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


def _table(
    record: SearchRecord, shown: tuple[SearchedPoint, ...], words: Callable[[int], str]
) -> tuple[Block, ...]:
    rows: list[tuple[str | Cell, ...]] = []
    for point in shown:
        best, beyond = _trial(point, point.best), _trial(point, point.fails_at)
        rows.append(
            (
                Cell(_named(point), note=point.name, is_strong=True),
                "nowhere" if point.best is None else words(point.best),
                "-" if point.fails_at is None else words(point.fails_at),
                str(len(point.trials)),
                *(_figure(best, name) for name in ("goodput_bps", "busiest_port_share")),
                "" if beyond is None else beyond.reason,
            )
        )
    heads = (
        "settings",
        "passes up to",
        "fails at",
        "trials",
        "goodput",
        "of line rate",
        "what did not hold there",
    )
    return table(f"The furthest {record.path} at which every condition holds", heads, rows, range(1, 6))


def _trials(point: SearchedPoint) -> Fold:
    rows: list[tuple[str | Cell, ...]] = [
        (
            trial.words,
            Cell("PASS" if trial.passed else "FAIL", badge="pass" if trial.passed else "fail"),
            str(len(trial.runs)),
            *(_figure(trial, name) for name in _TITLES),
            trial.reason,
            Cell(f"points/{point.name}/{trial.name}", is_code=True),
        )
        for trial in point.trials
    ]
    heads = ("value", "result", "runs", *_TITLES.values(), "what did not hold", "directory")
    caption = "In the order in which they were tried; figures are of the last run of each"
    return Fold(f"{_named(point)} ({point.name})", table(caption, heads, rows, range(2, 3 + len(_TITLES))))


def _trial(point: SearchedPoint, value: int | None) -> TrialRecord | None:
    return next((trial for trial in point.trials if trial.value == value), None)


def _figure(trial: TrialRecord | None, name: str) -> str:
    if trial is None or name not in trial.figures:
        return "-"
    return value_words(trial.figures[name], BY_NAME[name].unit)
