"""Renders a profile as one page: figures with intervals, curves, conditions, and comparisons with other sources. Pure.

Decides order and wording; it has the style of the run reports (`results.html`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.base.late_dataclass import dataclass
from etloop.experiments.nic.battery import BY_NAME
from etloop.experiments.nic.comparison import Agreement, FigurePair
from etloop.experiments.nic.conditions import ConditionResult, result_of
from etloop.experiments.nic.dut_profile import value_words
from etloop.results.html.blocks import Block, Fact, Fold, LegendEntry, Page, Plot, Section, Text, table_blocks
from etloop.results.html.drawing import NARROW, WIDE, Axis, Plotted, Steps, draw
from etloop.results.html.render import render
from etloop.results.report.table import Cell, Column, Table, Unit, Value, text_columns
from etloop.results.schema.verdict import Result

if TYPE_CHECKING:
    from etloop.experiments.nic.document import NicProfile
    from etloop.experiments.nic.link.figures import Curve

PAGE_FILE: Final = "nic.html"
_AGREEMENTS: Final = {Agreement.SAME: "pass", Agreement.DIFFERENT: "fail", Agreement.UNKNOWN: "inconclusive"}
_CONDITION: Final = Column("condition", "condition", Unit.CODE)
_FIGURE: Final = Column("figure", "figure", Unit.CODE)
_ORDER: Final = (Result.FAIL, Result.INCONCLUSIVE, Result.PASS)


@dataclass(frozen=True, slots=True)
class CardComparison:
    """Comparison of the measured figures with stated ones or with another card."""

    name: str
    pairs: tuple[FigurePair, ...]


def profile_html(
    profile: NicProfile, results: Sequence[ConditionResult] = (), comparisons: Sequence[CardComparison] = ()
) -> str:
    """Return the page as HTML."""
    facts = [Fact("resolution", f"{profile.resolution_ns} ns: error of the local timestamps")]
    if profile.floor_ns is not None:
        facts.append(Fact("floor", f"{profile.floor_ns} ns: its fastest reply"))
    began = min((experiment.began_at for experiment in profile.experiments), default="")
    facts.append(Fact("begun", began or "never"))
    sections = (
        Section("conditions", "Conditions", _conditions(results)),
        Section("figures", "Results", _figures(profile)),
        *(
            Section(f"comparison{number}", f"Next to {comparison.name}", _comparison(comparison))
            for number, comparison in enumerate(comparisons)
        ),
        Section("curves", "Curves", tuple(map(_plot, profile.curves()))),
        Section("methods", "Method of each figure", _methods(profile)),
    )
    result = result_of(results) if results else None
    badge = str(result) if result else ""
    subtitle = "Behaviour of the card under test, measured packet by packet"
    return render(Page(f"ETLoop nic: {profile.card}", subtitle, badge, badge.upper(), tuple(facts), sections))


def _conditions(results: Sequence[ConditionResult]) -> tuple[Block, ...]:
    rows: list[tuple[Value, ...]] = [
        (
            Cell(condition.expression, note=condition.why),
            Cell(str(condition.result), badge=str(condition.result)),
            condition.found,
        )
        for result in _ORDER
        for condition in results
        if condition.result is result
    ]
    columns = (_CONDITION, *text_columns("result", "value"))
    return table_blocks(
        Table("conditions-table", "Conditions, failed ones first", columns, tuple(rows)), len(rows)
    )


def _figures(profile: NicProfile) -> tuple[Block, ...]:
    rows: list[tuple[Value, ...]] = []
    failures: list[Block] = []
    for experiment in profile.experiments:
        if experiment.failure:
            failures.append(Text(f"{experiment.name} failed: {experiment.failure}."))
        rows += [(figure.name, value_words(figure), experiment.name) for figure in experiment.figures]
    columns = (_FIGURE, *text_columns("value", "experiment"))
    table = Table("figures-table", "Figures with their intervals", columns, tuple(rows))
    return *failures, *table_blocks(table, len(rows))


def _comparison(comparison: CardComparison) -> tuple[Block, ...]:
    rows: list[tuple[Value, ...]] = [
        (
            pair.name,
            pair.a,
            pair.b,
            Cell(str(pair.agreement), badge=_AGREEMENTS[pair.agreement]),
        )
        for pair in comparison.pairs
    ]
    columns = (_FIGURE, *text_columns("measured", comparison.name, "agreement"))
    return table_blocks(Table("", f"Measured, and {comparison.name}", columns, tuple(rows)), len(rows))


def _plot(curve: Curve) -> Plot:
    xs, values = np.array(curve.xs), np.array(curve.ys)
    last_x = float(xs.max()) * (2.0 if curve.is_log else 1.0)
    axis = Axis(
        curve.along, float(xs.min()), last_x if last_x > xs.min() else float(xs.min()) + 1, curve.is_log
    )
    panels = (Plotted(curve.of, (Steps(curve.of, 0, xs, values),)),)
    return Plot(
        name=f"curve-{curve.name}",
        title=curve.title,
        description=f"{curve.title}: {curve.of} over {curve.along}, {len(curve.xs)} points "
        f"from {min(curve.ys):.4g} to {max(curve.ys):.4g}.",
        wide=draw(panels, axis, WIDE),
        narrow=draw(panels, axis, NARROW),
        legend=(LegendEntry(curve.of, 0),),
    )


def _methods(profile: NicProfile) -> tuple[Block, ...]:
    rows: list[tuple[Value, ...]] = []
    for record in profile.experiments:
        experiment = BY_NAME.get(record.name)
        if experiment is not None:
            frames = f"{record.frames_sent} sent, {record.frames_received} received"
            rows.append((record.name, experiment.provokes, experiment.reads, experiment.clause, frames))
    columns = text_columns("experiment", "provokes", "reads", "compare", "frames")
    table = Table("methods-table", "Methods", columns, tuple(rows))
    return (Fold("Methods", table_blocks(table, len(rows))),) if rows else ()
