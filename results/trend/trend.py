"""From the runs of a history to its lines and dated changes. Pure.

Decides which figures are followed, what better and worse is, and which changes decide: the last one of a figure, if it is
at least the least effect.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.results.compare.compare import UNDIRECTED
from etloop.results.schema.kpis import BY_NAME, Nature
from etloop.results.schema.trend import (
    BANDWIDTH,
    TREND_SCHEMA,
    Change,
    ChangedFigure,
    ChangeKind,
    FalseAlarmRate,
    FigureLine,
    JobHistory,
    RecordedRun,
    Trend,
)
from etloop.results.trend.change_points import Cut, FalseAlarms, find_cuts, least_runs, measure_false_alarms
from etloop.results.verdict.own_share import MORE_IS_BETTER

if TYPE_CHECKING:
    from etloop.results.store.history import HistoryRow

MOST_RUNS: Final = 2000
"""Most runs of a job that are searched: the newest."""
_SURPRISING: Final = 1e-3
"""Probability of the measured number of false alarms below which a warning names it."""


@dataclass(frozen=True, slots=True)
class TrendSettings:
    """Settings of a search for changes."""

    level: float = 0.005
    """Probability that a job's history without a change gets one."""
    least_effect: float = 0.02
    since: str = ""
    """A time (ISO 8601, UTC) or a version of the device."""
    figures: tuple[str, ...] = ()
    """Names of the figures; () for all."""


def build_trend(
    source: str, rows: Sequence[HistoryRow], settings: TrendSettings, unreadable: Sequence[str]
) -> Trend:
    """Return the histories of all jobs. `rows` are in order of job and start. Raises `ConfigError` for bad settings."""
    usable = [row for row in rows if not row.unusable]
    _refuse_unknown_figures(settings.figures, usable)
    since = _time_of(settings.since, usable)
    histories, too_short = [], []
    least = least_runs(settings.level)
    for _, members in groupby(usable, key=lambda row: row.series):
        runs = list(members)
        if len(runs) < least:
            too_short.append(f"{runs[0].job} ({runs[0].series}): {_runs(len(runs))}, expected {least}")
        else:
            histories.append(_history(runs[-MOST_RUNS:], len(runs), replace(settings, since=since)))
    broken = (f"{row.run.place}: {row.unusable}" for row in rows if row.unusable)
    return Trend(
        TREND_SCHEMA,
        source,
        settings.least_effect,
        since,
        tuple(histories),
        tuple(too_short),
        (*unreadable, *broken),
    )


def _history(rows: Sequence[HistoryRow], total: int, settings: TrendSettings) -> JobHistory:
    names = sorted({name for row in rows for name in row.figures if _is_followed(name, settings.figures)})
    values = np.array([[row.figures.get(name, math.nan) for row in rows] for name in names], np.float64)
    values = values.reshape(len(names), len(rows))
    cuts = find_cuts(values, settings.level)
    alarms = measure_false_alarms(values, cuts, settings.level)
    runs = tuple(row.run for row in rows)
    lines = tuple(
        _line(name, values[index], runs, [cut.run for cut in cuts if index in cut.figures], settings)
        for index, name in enumerate(names)
    )
    return JobHistory(
        rows[-1].job,
        rows[-1].series,
        runs,
        lines,
        tuple(_change(cut, runs, lines, settings) for cut in cuts),
        FalseAlarmRate(settings.level, alarms.alarms, alarms.histories, alarms.block_runs),
        _warnings(runs, total, alarms, settings.level),
    )


def _line(
    name: str,
    values: NDArray[np.float64],
    runs: Sequence[RecordedRun],
    changes: Sequence[int],
    settings: TrendSettings,
) -> FigureLine:
    figure = BY_NAME.get(name)
    levels = tuple(_median(part) for part in np.split(values, changes))
    better = _more_is_better(name)
    change_kind, worse = ChangeKind.STEADY, ""
    if changes:
        change_kind = _kind_of_change(levels[-2], levels[-1], better, settings)
        if change_kind is ChangeKind.WORSE and runs[changes[-1]].at >= settings.since:
            worse = (
                f"{_amount(levels[-2], levels[-1])} {change_words(runs[changes[-1] - 1], runs[changes[-1]])}"
            )
    return FigureLine(
        name,
        figure.unit if figure else "bytes/s",
        figure.words if figure else "bus bandwidth, all members present",
        better,
        tuple(None if math.isnan(value) else value for value in values.tolist()),
        levels,
        tuple(changes),
        change_kind,
        worse,
    )


def _amount(before: float | None, after: float | None) -> str:
    assert before is not None
    assert after is not None
    return f"{after / before - 1:+.1%}" if before else f"from 0 to {after:.6g}"


def _change(
    cut: Cut, runs: Sequence[RecordedRun], lines: Sequence[FigureLine], settings: TrendSettings
) -> Change:
    changed = []
    for index in cut.figures:
        line = lines[index]
        at = line.changes.index(cut.run)
        before, after = line.levels[at], line.levels[at + 1]
        if before is not None and after is not None:
            relative = after / before - 1 if before else None
            change_kind = _kind_of_change(before, after, line.more_is_better, settings)
            changed.append(ChangedFigure(line.name, line.unit, before, after, relative, change_kind))
    return Change(cut.run, runs[cut.run - 1], runs[cut.run], cut.p_value, tuple(changed))


def _kind_of_change(
    before: float | None, after: float | None, more_is_better: bool | None, settings: TrendSettings
) -> ChangeKind:
    """Return how a figure changed. A change from 0 counts whatever its size."""
    if before is None or after is None or abs(after - before) < settings.least_effect * abs(before):
        return ChangeKind.SMALL
    if more_is_better is None:
        return ChangeKind.DIFFERENT
    return ChangeKind.BETTER if (after > before) == more_is_better else ChangeKind.WORSE


def change_words(before: RecordedRun, after: RecordedRun) -> str:
    """Return when a change between two runs happened, in words."""
    old, new = (run.version or "an unrecorded version" for run in (before, after))
    versions = f"with {new} after {old}" if new != old else f"within {new}"
    return f"since {after.at} ({after.place}), {versions}"


def _warnings(runs: Sequence[RecordedRun], total: int, alarms: FalseAlarms, level: float) -> tuple[str, ...]:
    warnings = []
    if total > len(runs):
        warnings.append(f"only the newest {len(runs)} of {total} runs are searched")
    unrecorded = sum(not run.version for run in runs)
    if unrecorded:
        remedy = "name a profile with identity.software as dut.profile of the rig"
        warnings.append(f"{_runs(unrecorded)} of {len(runs)} do not record the device's version: {remedy}")
    if alarms.histories and _upper_tail(alarms.alarms, alarms.histories, level) < _SURPRISING:
        warnings.append(
            f"runs resemble their neighbours: {alarms.alarms} of {alarms.histories} shuffled histories without a change raise "
            f"an alarm, expected {level:.2%}; a change may be the testbed's"
        )
    return tuple(warnings)


def _upper_tail(count: int, trials: int, probability: float) -> float:
    """Return the probability of at least `count` successes (binomial)."""
    return 1 - sum(
        math.comb(trials, number) * probability**number * (1 - probability) ** (trials - number)
        for number in range(count)
    )


def _is_followed(name: str, wanted: tuple[str, ...]) -> bool:
    if wanted:
        return name in wanted
    return name.startswith(BANDWIDTH) or (name in BY_NAME and BY_NAME[name].nature is not Nature.OWN)


def _more_is_better(name: str) -> bool | None:
    return None if name in UNDIRECTED else name in MORE_IS_BETTER or name.startswith(BANDWIDTH)


def _median(values: NDArray[np.float64]) -> float | None:
    known = values[~np.isnan(values)]
    return float(np.median(known)) if known.size else None


def _refuse_unknown_figures(names: tuple[str, ...], rows: Sequence[HistoryRow]) -> None:
    known = {name for row in rows for name in row.figures}
    if unknown := [name for name in names if name not in known]:
        problem = f'no run has a figure "{unknown[0][:64]}"'
        raise ConfigError(Problem("--figures", problem, f"name some of {', '.join(sorted(known)[:40])}"))


def _time_of(since: str, rows: Sequence[HistoryRow]) -> str:
    """Return `since` as a time: of the first run of that version, unless it is a time."""
    starts = [row.run.at for row in rows if row.run.version == since]
    if not since or (not starts and since[:4].isdigit() and since[4:5] == "-"):
        return since
    if not starts:
        problem = f'"{since[:64]}" is neither a time nor the version of a run'
        raise ConfigError(Problem("--since", problem, "write a time such as 2026-11-29, or a version"))
    return min(starts)


def _runs(count: int) -> str:
    return f"{count} run{'' if count == 1 else 's'}"
