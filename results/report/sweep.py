"""A sweep or a search: a table a group of points, and the limits that a search found."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from etloop.results.compare.change import change_text
from etloop.results.compare.sweep_results import JCT, P99, Group
from etloop.results.report.comparison import outcome_cell
from etloop.results.report.findings import common_words
from etloop.results.report.table import Cell, Column, Table, Unit, Value, table_of
from etloop.results.report.values import value_words
from etloop.results.report.verdict import result_cell
from etloop.results.schema.comparison import ComparisonSettings, Outcome
from etloop.results.schema.kpis import BY_NAME
from etloop.results.schema.sweep import (
    PointResult,
    RunRecord,
    SearchedPoint,
    SearchRecord,
    SweepRecord,
    TrialRecord,
)
from etloop.results.schema.verdict import Result, RunResult, worst_result

_FIGURES: Final = {
    P99: "p99",
    "share_of_ideal": "of ideal",
    "retransmitted_share": "retransmitted",
    "ecn_marked_share": "marked",
    "cnps": "CNPs",
    "pause_frames": "pauses",
    "lost_packets": "lost",
    "dut_dropped_packets": "dropped",
    "unexplained_packets": "unexplained",
}
"""Heading by key figure, of the figures that get a column if any point has a non-zero value."""


_SERVING_FIGURES: Final = {
    "ttft_p50_ns": "TTFT p50",
    "ttft_p99_ns": "p99",
    "ttft_fabric_p99_ns": "fabric p99",
    "itl_p50_ns": "ITL p50",
    "itl_p99_ns": "p99",
    "kv_latency_p99_ns": "KV p99",
    "exchange_p99_ns": "exchange p99",
    "goodput": "goodput",
    "output_tokens_per_s": "tokens/s",
    "fairness_decode_tokens": "JFI",
}
"""Heading by figure of a serving run, of the figures that get a column if any point has them."""


def serving_table(record: SweepRecord) -> Table:
    """Return the points of a sweep of serving workloads with the means of their figures, and the worst result of their runs."""
    means = {result.name: {spread.name: spread for spread in result.figures} for result in record.results}
    names = [name for name in _SERVING_FIGURES if any(name in figures for figures in means.values())]
    columns = (
        *(Column("setting", "setting"), Column("point", "point")),
        *(Column(name, _SERVING_FIGURES[name], Unit.NUMBER) for name in names),
        Column("result", "result"),
    )
    rows: list[tuple[Value, ...]] = []
    for point in record.points:
        figures = means[point.name]
        values = [
            value_words(figures[name].mean, figures[name].unit) if name in figures else None for name in names
        ]
        results = [run.result for run in record.runs if run.point == point.name]
        words = ", ".join(point.labels.values())
        rows.append((words, point.name, *values, str(worst_result(results))))
    return Table("serving", "serving", columns, tuple(rows))


def promise_words(settings: ComparisonSettings) -> str:
    """Return the guarantee of a group's intervals."""
    return (
        f"if nothing changed, a regression or an improvement of anything in a table is reported in at most "
        f"{1 - settings.confidence:.1%} of sweeps; changes below {settings.least_effect:.1%} do not count; runs are compared "
        "with those of the same repeat"
    )


def group_table(
    group: Group, axis: str, results: Mapping[str, PointResult], runs: Sequence[RunRecord] = ()
) -> Table:
    """Return the figures of a group's points, each compared with the first point, and the findings of their `runs`."""
    names = _figures_with_values(group, results)
    findings = {
        point.name: common_words([run.findings for run in runs if run.point == point.name])
        for point in group.points
    }
    columns = (
        *(Column("setting", "setting"), Column("point", "point"), Column("runs", "runs", Unit.NUMBER)),
        *(Column("iteration", "iteration", Unit.NUMBER), Column("cv", "CV", Unit.NUMBER)),
        *(Column(name, _FIGURES[name], Unit.NUMBER) for name in names),
        *(Column("change", "change", Unit.NUMBER), Column("interval", "interval", Unit.NUMBER)),
        *(
            Column("outcome", "outcome"),
            *((Column("findings", "findings"),) if any(findings.values()) else ()),
        ),
    )
    rows: list[tuple[Value, ...]] = []
    for point in group.points:
        result = results.get(point.name)
        label = (Cell(point.labels[axis], is_strong=True), point.name)
        named = (findings[point.name],) if any(findings.values()) else ()
        if result is None:
            rows.append((*label, 0, *(None for _ in range(4 + len(names))), "no run", *named))
        else:
            rows.append((*label, *_figure_values(result, names), *_change_values(result), *named))
    return Table("", f"{axis}: each setting compared with the first", columns, tuple(rows))


def _figures_with_values(group: Group, results: Mapping[str, PointResult]) -> tuple[str, ...]:
    """Return the key figures with a non-zero mean in some point of the group."""
    with_values = {
        figure.name
        for point in group.points
        if point.name in results
        for figure in results[point.name].figures
        if figure.mean
    }
    return tuple(name for name in _FIGURES if name in with_values)


def mean_jct_ns(result: PointResult) -> float:
    """Return the job's time of a point, mean over its runs."""
    return next(figure.mean for figure in result.figures if figure.name == JCT)


def _figure_values(result: PointResult, names: Sequence[str]) -> tuple[Value, ...]:
    """Return the number of runs, the job's time, its variation between runs, and the figures in `names`."""
    figures = {figure.name: figure for figure in result.figures}
    cv = figures[JCT].cv
    return (
        *(result.runs, value_words(figures[JCT].mean, "ns"), None if cv is None else f"{cv:.2%}"),
        *(value_words(figures[name].mean, figures[name].unit) if name in figures else None for name in names),
    )


def _change_values(result: PointResult) -> tuple[Value, Value, Value]:
    """Return the change, its interval and the outcome."""
    if result.outcome is None or result.change is None:
        return None, None, None if result.against else "reference of the others"
    interval = None
    if result.low is not None and result.high is not None:
        interval = f"{change_text(result.low, 1)} .. {change_text(result.high, 1)}"
    return change_text(result.change, 1), interval, outcome_cell(result.outcome, _outcome_note(result))


def _outcome_note(result: PointResult) -> str:
    """Return the runs that an inconclusive point needs, or the changes in addition to the job's time."""
    if result.outcome is Outcome.OPEN:
        return result.open_words
    names = [reason.split(":", 1)[0] for reason in result.reasons[1:]]
    if not names:
        return ""
    return f"{names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}"


def broken_table(record: SweepRecord) -> Table:
    """Return the runs that ended early, with their reasons."""
    broken = [run for run in record.runs if run.result is RunResult.BROKEN]
    columns = (Column("point", "point"), Column("repeat", "repeat", Unit.NUMBER), Column("reason", "reason"))
    return table_of("broken-runs", "Each with its reason", columns, broken, all_rows_in="sweep.json")


def _trial_column(name: str, title: str) -> Column:
    """Return the column of a figure of a trial; "-" if the trial is None or does not have it."""

    def value(trial: TrialRecord | None) -> Value:
        figures = {} if trial is None else trial.figures
        return value_words(figures[name], BY_NAME[name].unit) if name in figures else None

    return Column(name, title, Unit.NUMBER, value=value)


_TRIAL_COLUMNS: Final = (
    _trial_column("goodput_bps", "goodput"),
    _trial_column("busiest_port_share", "of line rate"),
    _trial_column("jct_avg_ns", "iteration"),
    _trial_column("lost_share", "lost"),
    _trial_column("slip_share", "emulator lateness"),
)


def search_table(record: SearchRecord, value_text: Callable[[int], str]) -> Table:
    """Return the furthest value that passes at each combination of settings. `value_text` formats a value as the sweep
    file writes it."""

    def row(point: SearchedPoint) -> tuple[Value, ...]:
        best, beyond = trial_at(point, point.best), trial_at(point, point.fails_at)
        return (
            *(Cell(settings_words(point), is_strong=True), point.name),
            "nowhere" if point.best is None else value_text(point.best),
            None if point.fails_at is None else value_text(point.fails_at),
            *(len(point.trials), *(column.value_of(best) for column in _TRIAL_COLUMNS[:2])),
            "" if beyond is None else common_words([beyond.findings]),
            "" if beyond is None else beyond.reason,
        )

    columns = (
        *(Column("settings", "settings"), Column("point", "point")),
        *(Column("best", "passes up to", Unit.NUMBER), Column("fails_at", "fails at", Unit.NUMBER)),
        *(Column("trials", "trials", Unit.NUMBER), *_TRIAL_COLUMNS[:2], Column("findings", "findings there")),
        Column("reason", "failed condition", is_detail=True),
    )
    title = f"The furthest {record.path} at which every condition holds"
    return Table("limits", title, columns, tuple(map(row, record.points)), all_rows_in="search.json")


def trials_table(point: SearchedPoint) -> Table:
    """Return the values that were tried at a point, in the order of the trials."""
    columns = (
        Column("words", "value"),
        Column(
            "passed", "result", value=lambda trial: result_cell(Result.PASS if trial.passed else Result.FAIL)
        ),
        Column("runs", "runs", Unit.NUMBER, value=lambda trial: len(trial.runs)),
        *(*_TRIAL_COLUMNS, Column("reason", "failed condition")),
        Column("findings", "findings", value=lambda trial: common_words([trial.findings])),
        Column("name", "directory", Unit.CODE, value=lambda trial: f"points/{point.name}/{trial.name}"),
    )
    return table_of(
        "", "In the order of the trials; figures are of the last run of each", columns, point.trials
    )


def settings_words(point: SearchedPoint) -> str:
    """Return the settings of a point; its name if it has none."""
    return ", ".join(point.labels.values()) or point.name


def trial_at(point: SearchedPoint, value: int | None) -> TrialRecord | None:
    """Return the trial of a value; None if it was not tried."""
    return next((trial for trial in point.trials if trial.value == value), None)
