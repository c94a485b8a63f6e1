"""A comparison of two sets of runs: its tables and sentences. A and B are the sides; B is compared with A."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from etloop.results.compare.change import change_text, ratio_text
from etloop.results.report.losses import COUNTED_BY, standalone_words
from etloop.results.report.table import Cell, Column, Table, Unit, table_of
from etloop.results.report.values import bytes_words, list_names, time_words, value_words
from etloop.results.schema.comparison import (
    Basis,
    Comparison,
    Interference,
    MetricResult,
    Outcome,
    Plain,
    Shift,
    SideRecord,
)

WORDS: Final = {
    Outcome.REGRESSION: "REGRESSION",
    Outcome.IMPROVEMENT: "IMPROVEMENT",
    Outcome.ALIKE: "NO DIFFERENCE",
    Outcome.NOT_WORSE: "NOT WORSE",
    Outcome.DIFFERENT: "DIFFERENT",
    Outcome.OPEN: "INCONCLUSIVE",
}
BADGES: Final = {
    Outcome.REGRESSION: "fail",
    Outcome.IMPROVEMENT: "pass",
    Outcome.ALIKE: "pass",
    Outcome.NOT_WORSE: "pass",
    Outcome.DIFFERENT: "inconclusive",
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
_A_TEXT: Final = Column("a", "A", value=lambda pair: pair.a or "-")
_B_TEXT: Final = Column("b", "B", value=lambda pair: pair.b or "-")
_A_VALUE: Final = Column("a", "A", Unit.NUMBER, value=lambda figure: value_words(figure.a, figure.unit))
_B_VALUE: Final = Column("b", "B", Unit.NUMBER, value=lambda figure: value_words(figure.b, figure.unit))
_A_TIME: Final = Column("a_ns", "A", Unit.NUMBER, value=lambda shift: time_words(shift.a_ns))
_B_TIME: Final = Column("b_ns", "B", Unit.NUMBER, value=lambda shift: time_words(shift.b_ns))
_A_KNOWN: Final = Column("a", "A", Unit.NUMBER, value=lambda pair: "not known" if pair.a is None else pair.a)
_B_KNOWN: Final = Column("b", "B", Unit.NUMBER, value=lambda pair: "not known" if pair.b is None else pair.b)
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


_SIDE_COLUMNS: Final = (
    Column("side", "side", value=lambda side: side[0]),
    Column("path", "runs of", value=lambda side: side[1].path),
    Column("runs", "runs", Unit.NUMBER, value=lambda side: side[1].runs),
    Column("iterations", "iterations", Unit.NUMBER, value=lambda side: side[1].iterations),
    Column("basis", "spread from", value=lambda side: _BASES[side[1].basis]),
    Column("left_out", "left out", value=lambda side: Cell("", items=side[1].left_out)),
    Column("doubts", "emulator", value=lambda side: Cell("", items=side[1].doubts)),
)


def sides_table(comparison: Comparison) -> Table:
    """Return both sides with their runs, the source of their spread, and doubts."""
    return table_of("sides", "Sides", _SIDE_COLUMNS, (("A", comparison.a), ("B", comparison.b)))


def _cv(cv: float | None, basis: Basis) -> str | None:
    return None if cv is None else f"{cv:.1%}{'*' if basis is not Basis.RUNS else ''}"


def _outcome(metric: MetricResult) -> Cell:
    return outcome_cell(metric.outcome, "; ".join(filter(None, (metric.open_words, metric.doubt))))


def tested_table(comparison: Comparison) -> Table:
    """Return every tested figure with its change, its interval and its outcome; "*": a CV that is not of runs."""
    columns = (
        Column("name", "tested"),
        _A_VALUE,
        Column("a_cv", "CV", Unit.NUMBER, value=lambda metric: _cv(metric.a_cv, metric.a_basis)),
        _B_VALUE,
        Column("b_cv", "CV", Unit.NUMBER, value=lambda metric: _cv(metric.b_cv, metric.b_basis)),
        Column("change", "change", Unit.NUMBER, value=change_words),
        Column("interval", "interval", Unit.NUMBER, value=interval_words),
        Column(
            "confidence",
            "confidence",
            Unit.NUMBER,
            is_detail=True,
            value=lambda metric: f"{metric.confidence:.2%}",
        ),
        Column("p_value", "p", Unit.NUMBER, value=lambda metric: f"{metric.p_value:.2g}"),
        Column("outcome", "outcome", value=_outcome),
    )
    notes = tuple(filter(None, (false_alarm_words(comparison), power_words(comparison))))
    return table_of("", "Tests", columns, comparison.metrics, notes)


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


def _factor_interval(job: Interference) -> str:
    return "unknown" if job.low is None or job.high is None else f"{job.low:.3f} .. {job.high:.3f}"


def interference_table(comparison: Comparison) -> Table:
    """Return how much longer each job takes next to the other jobs of B than next to those of A."""
    columns = (
        Column("job", "job"),
        Column("factor", "time in B / in A", Unit.FACTOR),
        Column("interval", "interval", Unit.NUMBER, value=_factor_interval),
    )
    return table_of("interference-table", "interference factor", columns, comparison.interference)


def block_table(comparison: Comparison) -> Table:
    """Return the fixed block: completion and the counters of the network, A next to B."""
    first = comparison.metrics[0]
    completion = (
        "completion",
        time_words(first.a),
        time_words(first.b),
        ratio_text(first.b / first.a),
        f"{first.p_value:.2g}",
        WORDS[first.outcome].lower(),
    )
    rows = [
        (
            row.name,
            _count(row.a, row.unit),
            _count(row.b, row.unit),
            ratio_text(row.ratio) if row.ratio is not None or row.b else "",
            None if row.p_value is None or row.a == row.b else f"{row.p_value:.2g}",
            f"{row.move.value}: {list_names(row.places, 1)}" if row.places else row.move.value,
        )
        for row in comparison.block
    ]
    columns = (
        Column("name", "per run"),
        *(Column(name, title, Unit.NUMBER) for name, title in _BLOCK_COLUMNS),
        Column("outcome", "finding"),
    )
    return Table("block", "The network, means over runs", columns, (completion, *rows))


_BLOCK_COLUMNS: Final = (("a", "A"), ("b", "B"), ("ratio", "B / A"), ("p_value", "p"))


def _count(value: float | None, unit: str) -> str | None:
    if value is None:
        return None
    return bytes_words(value) if unit == "bytes" else f"{value:.6g}"


def moved_table(comparison: Comparison) -> Table:
    """Return ports, queues and classes whose figures changed."""
    columns = (
        Column("place", "port, queue or class"),
        *(Column("figure", "figure"), _A_VALUE, _B_VALUE),
        Column("ratio", "B / A", Unit.NUMBER, value=lambda move: ratio_text(move.ratio)),
        Column("p_value", "p", Unit.NUMBER, value=lambda move: f"{move.p_value:.2g}"),
    )
    return table_of(
        "moved", "also moved: ports, queues and classes, means over runs", columns, comparison.moved
    )


def findings_table(comparison: Comparison) -> Table:
    """Return the findings of single runs in which the sides differ."""
    columns = (
        Column("sentence", "finding"),
        Column("runs_a", "runs of A", Unit.NUMBER),
        Column("runs_b", "runs of B", Unit.NUMBER),
        Column("remedy", "remedy"),
    )
    title = "findings of single runs that differ"
    return table_of("findings-table", title, columns, comparison.findings)


def power_words(comparison: Comparison) -> str:
    """Return the smallest change of the job's time that the comparison finds; "" if that is not known."""
    smallest = comparison.metrics[0].smallest_found
    if not smallest or not comparison.metrics[0].relative:
        return ""
    runs = (
        comparison.a.runs
        if comparison.a.runs == comparison.b.runs
        else f"{comparison.a.runs} and {comparison.b.runs}"
    )
    thing = "pairs of runs" if comparison.settings.paired else "runs a side"
    return (
        f"With {runs} {thing} that differ as much as these, a change of {change_text(smallest, 1)} of jct is found with a "
        "probability of 80 %."
    )


def losses_table(comparison: Comparison) -> Table:
    """Return a row for each difference in the losses of the two sides."""
    columns = (
        Column("losses", "losses, packets a run", value=standalone_words),
        _A_KNOWN,
        _B_KNOWN,
        COUNTED_BY,
    )
    return table_of("losses-table", "Losses in which the sides differ", columns, comparison.losses)


def conditions_table(comparison: Comparison) -> Table:
    """Return the conditions of both sides with their results and values."""
    columns = (
        Column("expression", "condition", Unit.CODE),
        *(_A_TEXT, Column("a_value", "value"), _B_TEXT, Column("b_value", "value")),
    )
    return table_of("conditions-table", "Conditions of both sides", columns, comparison.conditions)


def direction_word(comparison: Comparison) -> str:
    """Return whether the completion time became shorter or longer."""
    return "shorter" if comparison.metrics[0].change < 0 else "longer"


def contribution_tables(comparison: Comparison) -> tuple[Table, ...]:
    """Return the collectives, ranks and flows that contribute to the change."""
    title = f"{direction_word(comparison)} in B"
    columns = (
        Column("src_rank", "from rank", Unit.NUMBER),
        Column("dst_rank", "to rank", Unit.NUMBER),
        *(Column("what", "counter"), _A, _B),
    )
    return (
        _shift_table(f"{title}: collectives, per iteration", "collective", comparison.carriers),
        _shift_table(f"{title}: ops of ranks, first packet to completion", "rank", comparison.ranks),
        table_of("", "more in B, per run", columns, comparison.troubles),
    )


def _shift_table(title: str, name: str, shifts: Sequence[Shift]) -> Table:
    columns = (
        Column("what", name),
        _A_TIME,
        _B_TIME,
        Column("added_ns", "added", Unit.NUMBER, value=_addition_text),
    )
    return table_of("", title, columns, shifts)


def _addition_text(shift: Shift) -> str:
    return f"{'+' if shift.added_ns > 0 else '-'}{time_words(abs(shift.added_ns))}"


def _plain_change(figure: Plain) -> str:
    return "" if figure.change is None else change_text(figure.change, 2)


def plain_table(comparison: Comparison, *, only_changed: bool = False) -> Table:
    """Return the key figures that are not tested: all, or those that changed by 5 % or more."""
    figures = [
        figure
        for figure in comparison.plain
        if not only_changed
        or (figure.a != figure.b and (figure.change is None or abs(figure.change) >= _PLAIN_CHANGE))
    ]
    changed = f"that changed by {_PLAIN_CHANGE:.0%} or more, " if only_changed else ""
    columns = (
        *(Column("name", "figure", Unit.CODE), _A_VALUE, _B_VALUE),
        Column("change", "change", Unit.NUMBER, value=_plain_change),
    )
    return table_of("plain-table", f"key figures {changed}means over runs, not tested", columns, figures)


def differing_table(comparison: Comparison) -> Table:
    """Return the settings in which the two sides differ."""
    columns = (Column("thing", "file"), Column("path", "setting"), _A_TEXT, _B_TEXT)
    return table_of("", "A and B differ in", columns, comparison.differing, total=comparison.differing_total)
