"""A search over several settings: its best trials, all trials, the importance of axes, and the repeats of the best."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etloop.results.report.findings import common_words
from etloop.results.report.table import Cell, Column, Table, Unit, Value
from etloop.results.report.values import value_words
from etloop.results.schema.kpis import BY_NAME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etloop.results.schema.trials import SettingTrial, TrialsRecord


def best_table(record: TrialsRecord) -> Table:
    """Return the best trials: the first ones of one objective, the Pareto set of several."""
    trials = {trial.name: trial for trial in record.trials}
    title = "The best trials" if len(record.objectives) == 1 else "Trials that no other one dominates"
    return _table("best", title, record, [trials[name] for name in record.best])


def all_trials_table(record: TrialsRecord) -> Table:
    """Return all trials in their order."""
    return _table("trials", "All trials, in their order", record, record.trials)


def _table(table_id: str, title: str, record: TrialsRecord, trials: Sequence[SettingTrial]) -> Table:
    columns = (
        Column("name", "trial"),
        *(Column(figure, objective, Unit.NUMBER) for figure, objective in zip(record.figures, record.objectives, strict=True)),
        Column("state", "result"),
        *(Column(f"axis{number}", axis) for number, axis in enumerate(record.axes)),
        *((Column("findings", "findings"),) if any(trial.findings for trial in trials) else ()),
        Column("reason", "reason", is_detail=True),
    )  # fmt: skip
    rows: list[tuple[Value, ...]] = []
    for trial in trials:
        values = trial.values or (None,) * len(record.figures)
        labels = (trial.labels[axis] for axis in record.axes)
        figures = (_words(figure, value) for figure, value in zip(record.figures, values, strict=True))
        findings = (common_words([trial.findings]),) if any(trial.findings for trial in trials) else ()
        rows.append(
            (Cell(trial.name, is_strong=True), *figures, str(trial.state), *labels, *findings, trial.reason)
        )
    return Table(table_id, title, columns, tuple(rows), all_rows_in="trials.json")


def importance_table(record: TrialsRecord) -> Table:
    """Return the share of every axis in each objective, the most important first."""
    columns = (
        Column("axis", "axis"),
        *(Column(figure, objective, Unit.NUMBER) for figure, objective in zip(record.figures, record.objectives, strict=True)),
    )  # fmt: skip
    axes = sorted(record.axes, key=lambda axis: -max(shares.get(axis, 0.0) for shares in record.importances))
    rows: tuple[tuple[Value, ...], ...] = tuple(
        (Cell(axis, is_strong=True), *(f"{shares.get(axis, 0.0):.0%}" for shares in record.importances))
        for axis in axes
    )
    return Table(
        "importance", "Share of each axis in the settings common to good trials (PED-ANOVA)", columns, rows
    )


def candidates_table(record: TrialsRecord) -> Table:
    """Return the repeats of the best trials; the first row is the scenario without changes."""
    columns = (
        *(Column("name", "trial"), Column("runs", "repeats", Unit.NUMBER)),
        Column("passed", "meet the conditions", Unit.NUMBER),
        *(Column(figure, f"mean {figure}", Unit.NUMBER) for figure in record.figures),
        Column("outcome", "job's time against start"),
    )
    rows: tuple[tuple[Value, ...], ...] = tuple(
        (
            *(Cell(candidate.name, is_strong=True), candidate.runs, candidate.passed),
            *(_words(figure, mean) for figure, mean in zip(record.figures, candidate.means, strict=True)),
            candidate.outcome,
        )
        for candidate in record.candidates
    )
    return Table("repeats", "Repeats of the best trials, with other seeds", columns, rows)


def _words(figure: str, value: float | None) -> str | None:
    return None if value is None else value_words(value, BY_NAME[figure].unit)
