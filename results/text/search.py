"""What a search found as a table for people. Wording only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from etloop.results.schema.kpis import BY_NAME
from etloop.results.schema.search import SearchedPoint, SearchRecord, TrialRecord
from etloop.results.text.layout import aligned, printable, wrapped
from etloop.results.text.units import value_words

_SHOWN: Final = ("goodput_bps", "busiest_port_share")
_HEADINGS: Final = ("point", "passes up to", "fails at", "trials", "goodput", "of line rate")


def render_search(record: SearchRecord, words: Callable[[int], str], where: str) -> str:
    """The table, why the first value beyond did not pass, and where all runs are."""
    rows: list[tuple[str, ...]] = [("settings", *_HEADINGS)]
    rows += [_row(point, words) for point in record.points]
    lines = aligned(rows, range(len(rows[0])))
    text = [f"{record.path}, {words(record.begin)} to {words(record.end)}", *lines, ""]
    for point in record.points:
        beyond = _trial(point, point.fails_at)
        if beyond is not None:
            text += wrapped(point.name, f"at {beyond.words}: {beyond.reason}")
    return "\n".join([*text, *wrapped("results", where)]) + "\n"


def _row(point: SearchedPoint, words: Callable[[int], str]) -> tuple[str, ...]:
    best = _trial(point, point.best)
    figures = best.figures if best is not None else {}
    return (
        printable(", ".join(point.labels.values())) or "-",
        point.name,
        words(point.best) if point.best is not None else "nowhere",
        words(point.fails_at) if point.fails_at is not None else "-",
        str(len(point.trials)),
        *(value_words(figures[name], BY_NAME[name].unit) if name in figures else "-" for name in _SHOWN),
    )


def _trial(point: SearchedPoint, value: int | None) -> TrialRecord | None:
    return next((trial for trial in point.trials if trial.value == value), None)
