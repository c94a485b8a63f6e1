"""The page of a search over several settings: the optimum or the Pareto set, importances, repeats, all trials.

Decides order and limits. Templates escape everything that a file named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from etloop.results.html.blocks import Block, LegendEntry, Page, Section, Text, table_blocks
from etloop.results.html.render import render
from etloop.results.html.rows import Dot, Row, row_chart
from etloop.results.report.trials import all_trials_table, best_table, candidates_table, importance_table
from etloop.results.schema.trials import TrialState

if TYPE_CHECKING:
    from etloop.results.schema.trials import TrialsRecord

MOST_BEST: Final = 30
MOST_TRIALS: Final = 500
_FEASIBLE: Final = 2
_OTHER: Final = 1


def trials_html(record: TrialsRecord) -> str:
    """Return the page."""
    conclusion = record.conclusion or (
        "No trial meets the conditions." if not record.best else "Not repeated."
    )
    sections = (
        Section("best", "Best", (Text(conclusion), *table_blocks(best_table(record), MOST_BEST))),
        Section("repeats", "Repeats", table_blocks(candidates_table(record))),
        Section("importance", "Importance", (*_chart(record), *table_blocks(importance_table(record)))),
        Section("trials", "Trials", (*_values_chart(record), *table_blocks(all_trials_table(record), MOST_TRIALS, 20))),
    )  # fmt: skip
    subtitle = (
        f"{', '.join(record.objectives)}; {len(record.trials)} trials of {record.combinations} combinations; "
        "optuna-dashboard study.log opens the study"
    )
    return render(Page(f"ETLoop search: {record.source}", subtitle, "", "", (), sections))


def _chart(record: TrialsRecord) -> tuple[Block, ...]:
    rows = tuple(
        Row(axis, tuple(
            Dot(f"{objective}: {shares.get(axis, 0.0):.0%}", 100 * shares.get(axis, 0.0), number)
            for number, (objective, shares) in enumerate(zip(record.objectives, record.importances, strict=True))
        ))
        for axis in record.axes
    )  # fmt: skip
    legend = tuple(LegendEntry(objective, number) for number, objective in enumerate(record.objectives))
    return row_chart("importances", "Importance of each axis", "share (%)", rows, legend)


def _values_chart(record: TrialsRecord) -> tuple[Block, ...]:
    """Return every value of the first objective by the setting of each axis."""
    rows = tuple(
        Row(f"{axis}={label}", tuple(
            Dot(f"{trial.name}: {trial.values[0]:.6g}", trial.values[0],
                _FEASIBLE if trial.state is TrialState.FEASIBLE else _OTHER)
            for trial in record.trials[:MOST_TRIALS]
            if trial.values and trial.labels[axis] == label
        ))
        for axis, labels in record.axes.items()
        for label in labels
    )  # fmt: skip
    legend = (LegendEntry("feasible", _FEASIBLE), LegendEntry("infeasible or pruned", _OTHER))
    title = "The first objective of every trial, by setting"
    return row_chart("values", title, record.figures[0], rows[:MOST_TRIALS], legend)
