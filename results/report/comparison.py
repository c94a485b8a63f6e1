"""A comparison of two sets of runs: its tables and sentences. A and B are the sides; B is compared with A."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from etloop.results.compare.change import change_text
from etloop.results.report.losses import COUNTED_BY, standalone_words
from etloop.results.report.table import Cell, Column, Table, Unit, Value
from etloop.results.report.values import time_words, value_words
from etloop.results.schema.comparison import Basis, Comparison, MetricResult, Outcome, Shift, SideRecord
from etloop.results.schema.losses import COUNTED_BY_WORDS

WORDS: Final = {
    Outcome.REGRESSION: "REGRESSION",
    Outcome.IMPROVEMENT: "IMPROVEMENT",
    Outcome.ALIKE: "NO DIFFERENCE",
    Outcome.NOT_WORSE: "NOT WORSE",
    Outcome.OPEN: "INCONCLUSIVE",
}
BADGES: Final = {
    Outcome.REGRESSION: "fail",
    Outcome.IMPROVEMENT: "pass",
    Outcome.ALIKE: "pass",
    Outcome.NOT_WORSE: "pass",
    Outcome.OPEN: "inconclusive",
}
_BASES: Final = {
    Basis.RUNS: "run to run",
    Basis.PAIRS: "pair to pair: runs of the same repeat are compared with each other",
    Basis.ITERATIONS: "iterations of the one run, and an allowance",
    Basis.NOTHING: "nothing",
}
_A: Final = Column("a", "A", Unit.NUMBER)
_B: Final = Column("b", "B", Unit.NUMBER)
_CHANGE: Final = Column("change", "change", Unit.NUMBER)
_PLAIN_CHANGE: Final = 0.05
"""Relative change above which a key figure that is not tested is in a short table."""


def false_alarm_words(comparison: Comparison) -> str:
    """Return the guarantee of the intervals."""
    settings = comparison.settings
    return (
        f"Changes below {settings.least_effect:.1%} do not count. If nothing changed, a regression or an improvement of any "
        f"figure is reported in at most {1 - settings.confidence:.1%} of comparisons."
    )


def outcome_cell(outcome: Outcome, note: str = "") -> Cell:
    """Return an outcome as a badge with a remark."""
    return Cell(WORDS[outcome], note=note.removeprefix("inconclusive: "), badge=BADGES[outcome])


def side_words(side: SideRecord) -> str:
    """Return the directory, runs and iterations of a side."""
    pairs = " in pairs" if side.basis is Basis.PAIRS else ""
    runs = f"{side.runs} runs{pairs}" if side.runs > 1 else "1 run"
    return f"{side.path}: {runs}, {side.iterations} iterations"


def sides_table(comparison: Comparison) -> Table:
    """Return both sides with their runs, the source of their spread, and doubts."""
    columns = (
        *(Column("side", "side"), Column("path", "runs of")),
        *(Column("runs", "runs", Unit.NUMBER), Column("iterations", "iterations", Unit.NUMBER)),
        *(Column("basis", "spread from"), Column("left_out", "left out"), Column("doubts", "emulator")),
    )
    rows = tuple(
        (
            *(name, side.path, side.runs, side.iterations, _BASES[side.basis]),
            *(Cell("", items=side.left_out), Cell("", items=side.doubts)),
        )
        for name, side in (("A", comparison.a), ("B", comparison.b))
    )
    return Table("", "Sides", columns, rows)


_TESTED_COLUMNS: Final = (
    Column("tested", "tested"),
    _A,
    Column("a_cv", "CV", Unit.NUMBER),
    _B,
    Column("b_cv", "CV", Unit.NUMBER),
    _CHANGE,
    Column("interval", "interval", Unit.NUMBER),
    Column("confidence", "confidence", Unit.NUMBER, is_detail=True),
    Column("p", "p", Unit.NUMBER),
    Column("outcome", "outcome"),
)


def tested_table(comparison: Comparison) -> Table:
    """Return every tested figure with its change, its interval and its outcome; "*": a CV that is not of runs."""

    def row(metric: MetricResult) -> tuple[Value, ...]:
        return (
            metric.name,
            *(value_words(metric.a, metric.unit), _cv(metric.a_cv, metric.a_basis)),
            *(value_words(metric.b, metric.unit), _cv(metric.b_cv, metric.b_basis)),
            *(change_words(metric), interval_words(metric)),
            *(f"{metric.confidence:.2%}", f"{metric.p_value:.2g}"),
            outcome_cell(metric.outcome, "; ".join(filter(None, (metric.open_words, metric.doubt)))),
        )

    rows = tuple(map(row, comparison.metrics))
    return Table("", "Tests", _TESTED_COLUMNS, rows, (false_alarm_words(comparison),))


def _cv(cv: float | None, basis: Basis) -> str | None:
    return None if cv is None else f"{cv:.1%}{'*' if basis is not Basis.RUNS else ''}"


def change_words(metric: MetricResult) -> str:
    """Return by how much B is more than A, as text."""
    return change_text(metric.change, 2) if metric.relative else f"{metric.change:+.4g}"


def interval_words(metric: MetricResult) -> str:
    """Return the bounds of the change, as text; "-" if there is no interval."""
    if metric.low is None or metric.high is None:
        return "-"
    if metric.relative:
        return f"{change_text(metric.low, 2)} .. {change_text(metric.high, 2)}"
    return f"{metric.low:+.4g} .. {metric.high:+.4g}"


def interference_table(comparison: Comparison) -> Table:
    """Return how much longer each job takes next to the other jobs of B than next to those of A."""
    columns = (
        *(Column("job", "job"), Column("factor", "time in B / in A", Unit.FACTOR)),
        Column("interval", "interval", Unit.NUMBER),
    )
    rows = tuple(
        (
            *(job.job, job.factor),
            "unknown" if job.low is None or job.high is None else f"{job.low:.3f} .. {job.high:.3f}",
        )
        for job in comparison.interference
    )
    return Table("interference-table", "interference factor", columns, rows)


def arisen_table(comparison: Comparison) -> Table:
    """Return counters of trouble that B has and A does not have, or far less of."""
    columns = (
        Column("counter", "counter", Unit.CODE),
        _A,
        _B,
        Column("unit", "unit"),
        Column("words", "meaning"),
    )
    rows = tuple(
        (counter.name, f"{counter.a:.6g}", f"{counter.b:.6g}", counter.unit, counter.words)
        for counter in comparison.arisen
    )
    return Table("arisen-table", "not in A, or far less, and in B, per run", columns, rows)


def losses_table(comparison: Comparison) -> Table:
    """Return a row for each difference in the losses of the two sides."""
    rows = tuple(
        (
            standalone_words(pair),
            *("not known" if mean is None else f"{mean:.6g}" for mean in (pair.a, pair.b)),
            COUNTED_BY_WORDS[pair.counted_by],
        )
        for pair in comparison.losses
    )
    columns = (Column("losses", "losses, packets a run"), _A, _B, COUNTED_BY)
    return Table("losses-table", "Losses in which the sides differ", columns, rows)


def conditions_table(comparison: Comparison) -> Table:
    """Return the conditions of both sides with their results and values."""
    columns = (
        Column("condition", "condition", Unit.CODE),
        *(Column("a", "A"), Column("a_value", "value"), Column("b", "B"), Column("b_value", "value")),
    )
    rows = tuple(
        (pair.expression, pair.a or "-", pair.a_value, pair.b or "-", pair.b_value)
        for pair in comparison.conditions
    )
    return Table("conditions-table", "Conditions of both sides", columns, rows)


def direction_word(comparison: Comparison) -> str:
    """Return whether the times that contribute to the verdict became shorter or longer."""
    return "shorter" if comparison.verdict is Outcome.IMPROVEMENT else "longer"


def contribution_tables(comparison: Comparison) -> tuple[Table, ...]:
    """Return the collectives, ranks and flows that contribute to the change."""
    title = f"{direction_word(comparison)} in B"
    columns = (
        *(Column("src_rank", "from rank", Unit.NUMBER), Column("dst_rank", "to rank", Unit.NUMBER)),
        *(Column("counter", "counter"), _A, _B),
    )
    rows = tuple(
        (trouble.src_rank, trouble.dst_rank, trouble.what, f"{trouble.a:.6g}", f"{trouble.b:.6g}")
        for trouble in comparison.troubles
    )
    return (
        _shift_table(f"{title}: collectives, per iteration", "collective", comparison.carriers),
        _shift_table(f"{title}: ops of ranks, first packet to completion", "rank", comparison.ranks),
        Table("", "more in B, per run", columns, rows),
    )


def _shift_table(title: str, name: str, shifts: Sequence[Shift]) -> Table:
    columns = (Column(name, name), _A, _B, Column("added", "added", Unit.NUMBER))
    rows = tuple(
        (
            *(shift.what, time_words(shift.a_ns), time_words(shift.b_ns)),
            f"{'+' if shift.added_ns > 0 else '-'}{time_words(abs(shift.added_ns))}",
        )
        for shift in shifts
    )
    return Table("", title, columns, rows)


def plain_table(comparison: Comparison, *, only_changed: bool = False) -> Table:
    """Return the key figures that are not tested: all, or those that changed by 5 % or more."""
    rows = tuple(
        (
            *(figure.name, value_words(figure.a, figure.unit), value_words(figure.b, figure.unit)),
            "" if figure.change is None else change_text(figure.change, 2),
        )
        for figure in comparison.plain
        if not only_changed
        or (figure.a != figure.b and (figure.change is None or abs(figure.change) >= _PLAIN_CHANGE))
    )
    changed = f"that changed by {_PLAIN_CHANGE:.0%} or more, " if only_changed else ""
    columns = (Column("figure", "figure", Unit.CODE), _A, _B, _CHANGE)
    return Table("plain-table", f"key figures {changed}means over runs, not tested", columns, rows)


def differing_table(comparison: Comparison) -> Table:
    """Return the settings in which the two sides differ."""
    columns = (Column("file", "file"), Column("setting", "setting"), Column("a", "A"), Column("b", "B"))
    rows = tuple(
        (difference.thing, difference.path, difference.a, difference.b) for difference in comparison.differing
    )
    return Table("", "A and B differ in", columns, rows, total=comparison.differing_total)
