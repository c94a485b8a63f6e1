"""Results of a sweep, or of a search, as a printed table. Decides wording and which figures get a column."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from etloop.results.compare.change import change_text
from etloop.results.compare.compare import JCT as IN_ALL
from etloop.results.compare.sweep_results import JCT, P99, Group
from etloop.results.schema.comparison import ComparisonSettings, Outcome
from etloop.results.schema.kpis import BY_NAME
from etloop.results.schema.sweep import (
    SEARCH_PAGE,
    PointResult,
    SearchedPoint,
    SearchRecord,
    SweepRecord,
    TrialRecord,
)
from etloop.results.text.compare import WORDS
from etloop.results.text.layout import aligned, printable, wrapped
from etloop.results.text.units import value_words

TITLES: Final = {
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
_SHOWN: Final = ("goodput_bps", "busiest_port_share")
_HEADINGS: Final = ("point", "passes up to", "fails at", "trials", "goodput", "of line rate")


def render_sweep(
    record: SweepRecord, found: Sequence[Group], settings: ComparisonSettings, out_dir: str
) -> str:
    """Return one table a group, followed by the guarantee of the intervals."""
    results = {result.name: result for result in record.results}
    lines = wrapped(
        "sweep", f"{record.source}: {len(record.points)} points, {len(record.runs)} runs, {record.mode}"
    )
    for group in found:
        title = f"{group.words}: " if group.words else ""
        lines += ["", f"{title}{record.compare}"]
        lines += group_table(group, record.compare, results)
    lines += ["", *wrapped("false alarms", promise(settings))]
    lines += [*wrapped("results", out_dir), *wrapped("page", f"{out_dir}/compare.html")]
    return "\n".join(printable(line) for line in lines) + "\n"


def promise(settings: ComparisonSettings) -> str:
    """Return the guarantee of a group's intervals in words."""
    return (
        f"where nothing changed, anything in a table is called a regression or an improvement in at most "
        f"{1 - settings.confidence:.1%} of sweeps; changes below {settings.least_effect:.1%} do not count; runs are held "
        "against those of the same repeat"
    )


def group_table(group: Group, axis: str, results: Mapping[str, PointResult]) -> list[str]:
    """Return the table of a group, one line a point."""
    column_names = shown_columns(group, results)
    rows = [
        (
            "",
            "point",
            "runs",
            "iteration",
            "CV",
            *(TITLES[name] for name in column_names),
            "change",
            "interval",
            "",
        )
    ]
    for point in group.points:
        result = results.get(point.name)
        if result is None:
            rows.append(
                (point.labels[axis], point.name, "0", *("-" for _ in range(4 + len(column_names))), "no run")
            )
            continue
        rows.append(
            (point.labels[axis], point.name, *figure_cells(result, column_names), *change_cells(result))
        )
    return [f"  {line}" for line in aligned(rows, (0, 1, len(rows[0]) - 1))]


def shown_columns(group: Group, results: Mapping[str, PointResult]) -> tuple[str, ...]:
    """Return the key figures with a non-zero mean in some point of the group."""
    column_names = []
    for name in TITLES:
        means = {
            figure.mean
            for point in group.points
            if point.name in results
            for figure in results[point.name].figures
            if figure.name == name
        }
        if means - {0.0}:
            column_names.append(name)
    return tuple(column_names)


def figure_cells(result: PointResult, shown: Sequence[str]) -> tuple[str, ...]:
    """Return the number of runs, the job's time, its variation between runs, and the figures in `shown`."""
    figures = {figure.name: figure for figure in result.figures}
    jct = figures[JCT]
    means = (
        value_words(figures[name].mean, figures[name].unit) if name in figures else "-" for name in shown
    )
    cv = "-" if jct.cv is None else f"{jct.cv:.2%}"
    return str(result.runs), value_words(jct.mean, "ns"), cv, *means


def change_cells(result: PointResult) -> tuple[str, str, str]:
    """Return the change, its interval and the outcome in words."""
    if result.outcome is None or result.change is None:
        return "-", "-", "the others are held against it" if not result.against else "-"
    interval = "-"
    if result.low is not None and result.high is not None:
        interval = f"{change_text(result.low, 1)} .. {change_text(result.high, 1)}"
    return change_text(result.change, 1), interval, outcome_words(result)


def outcome_words(result: PointResult) -> str:
    """Return the outcome of a point in words, with the figure it applies to if that is not the job's time."""
    if result.outcome is None:
        return ""
    word = WORDS[result.outcome].lower()
    if result.outcome is Outcome.OPEN and result.open_words:
        return result.open_words
    decided = result.outcome in {Outcome.REGRESSION, Outcome.IMPROVEMENT}
    figure_names = [reason.split(":", 1)[0] for reason in result.reasons]
    if not decided or figure_names[:1] == [IN_ALL]:
        return word
    return (
        f"{word} of {figure_names[0]}{f' and {len(figure_names) - 1} more' if len(figure_names) > 1 else ''}"
    )


def render_search(record: SearchRecord, words: Callable[[int], str], where: str) -> str:
    """Return the table, the reason why the first value beyond the limit failed, and the location of the runs."""
    rows: list[tuple[str, ...]] = [("settings", *_HEADINGS)]
    rows += [_row(point, words) for point in record.points]
    lines = aligned(rows, range(len(rows[0])))
    text = [f"{record.path}, {words(record.begin)} to {words(record.end)}", *lines, ""]
    for point in record.points:
        beyond = _trial(point, point.fails_at)
        if beyond is not None:
            text += wrapped(point.name, f"at {beyond.words}: {beyond.reason}")
    return "\n".join([*text, *wrapped("results", where), *wrapped("page", f"{where}/{SEARCH_PAGE}")]) + "\n"


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
