"""The history of a device: the table of its figures and the table of its changes, with their columns and words."""

from __future__ import annotations

from typing import Final

from etloop.results.compare.change import change_text
from etloop.results.report.table import Cell, Column, Table, Unit
from etloop.results.report.values import value_words
from etloop.results.schema.trend import ChangeKind, FigureLine, JobHistory, Trend

BADGES: Final = {ChangeKind.WORSE: "fail", ChangeKind.BETTER: "pass", ChangeKind.DIFFERENT: "inconclusive"}
_FIGURES: Final = (
    Column("figure", "figure"),
    Column("runs", "runs", Unit.COUNT),
    Column("now", "now", Unit.NUMBER),
    Column("before", "before", Unit.NUMBER),
    Column("change", "change", Unit.NUMBER),
    Column("change_kind", "last change"),
    Column("since", "since"),
    Column("version", "version", most_characters=24),
    Column("words", "meaning", is_detail=True),
)
_CHANGES: Final = (
    Column("at", "since"),
    Column("run", "first run", most_characters=-28),
    Column("before", "version before", most_characters=24),
    Column("after", "version after", most_characters=24),
    Column("p", "p", Unit.NUMBER),
    Column("figures", "figures, the clearest first", most_characters=50),
)


def verdict_words(trend: Trend) -> str:
    """Return whether a figure became worse, in words."""
    if trend.worse:
        return f"{len(trend.worse)} figure{'s' if len(trend.worse) > 1 else ''} became worse"
    return "no figure became worse" if trend.histories else "too few runs for a verdict"


def false_alarm_words(history: JobHistory) -> str:
    """Return the stated and the measured rate of false alarms."""
    rate = history.false_alarms
    return (
        f"false alarms: at most {rate.level:.2%} of histories without a change, all figures together; measured "
        f"{rate.alarms} of {rate.histories} (these runs without their changes, in shuffled blocks of {rate.block_runs})"
    )


def figures_table(history: JobHistory) -> Table:
    """Return one row per figure, those that became worse first."""
    order = list(ChangeKind)
    lines = sorted(history.figures, key=lambda line: (order.index(line.change_kind), line.name))
    return Table("figures", "Figures", _FIGURES, tuple(_row(history, line) for line in lines))


def _row(history: JobHistory, line: FigureLine) -> tuple[Cell | str | float | None, ...]:
    now, before = line.levels[-1], line.levels[-2] if line.changes else None
    first = history.runs[line.changes[-1]] if line.changes else None
    has_change = now is not None and before is not None and before != 0
    return (
        line.name,
        sum(value is not None for value in line.values),
        "-" if now is None else value_words(now, line.unit),
        "" if before is None else value_words(before, line.unit),
        change_text(now / before - 1, 1) if has_change and now is not None and before is not None else "",
        Cell(line.change_kind.value, badge=BADGES.get(line.change_kind, "")),
        "" if first is None else first.at,
        "" if first is None else first.version,
        line.words,
    )


def changes_table(history: JobHistory) -> Table:
    """Return one row per change."""
    rows = tuple(
        (
            change.after.at,
            change.after.place,
            change.before.version or "-",
            change.after.version or "-",
            f"{change.p_value:.2g}",
            ", ".join(figure.name for figure in change.figures),
        )
        for change in history.changes
    )
    return Table("changes", "Changes", _CHANGES, rows, (false_alarm_words(history),))
