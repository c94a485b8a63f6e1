"""Runs a search: trial after trial at every point, each as a run of a sweep.

A shell: directories, processes, signals. `bisection` decides the next value, `run` makes the runs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from etloop.contract.base.errors import ConfigError, ExitCode, Problem
from etloop.controller.run.pipeline import RunWatcher
from etloop.experiments.sweep.bisection import Search, Trial, bounds, next_value
from etloop.experiments.sweep.file import Sweep
from etloop.experiments.sweep.points import Point, point_files
from etloop.experiments.sweep.run import Runs, Study, run_record_of
from etloop.results.html.search import search_html
from etloop.results.schema.summary import Summary
from etloop.results.schema.sweep import (
    SEARCH_FILE,
    SEARCH_PAGE,
    SEARCH_SCHEMA,
    TRIAL_FIGURES,
    Mode,
    PointRecord,
    SearchedPoint,
    SearchRecord,
    TrialRecord,
)
from etloop.results.schema.typed_json import from_json, to_json
from etloop.results.schema.verdict import Result, RunResult, worst_result
from etloop.results.store.run_dir import read_index, read_kpis, write_files
from etloop.results.text.sweep import render_search

if TYPE_CHECKING:
    from etloop.experiments.sweep.directory import SweepDirectory

    Read = Callable[[Path], bytes]


def begin_search(
    sweep: Sweep,
    text: bytes,
    mode: Mode,
    points: Sequence[PointRecord],
    directory: SweepDirectory,
    *,
    resume: bool,
) -> SearchRecord:
    """Return an empty index, or the one to resume. Raises `ConfigError` if the existing one is of another search."""
    search = sweep.search
    assert search is not None
    digest = hashlib.sha256(
        text + repr([(point.files, point.plan) for point in points]).encode()
    ).hexdigest()[:32]
    begun = SearchRecord(
        schema=SEARCH_SCHEMA,
        source=sweep.source,
        digest=digest,
        mode=mode,
        path=search.path_text,
        unit=search.unit.name,
        begin=search.easy,
        end=search.hard,
        repeats=sweep.repeats,
        points=tuple(SearchedPoint(point.name, point.labels, (), None, None, done=False) for point in points),
    )
    if not resume:
        return begun
    path = directory.path / SEARCH_FILE
    if not path.is_file():
        difference = f"has no {SEARCH_FILE}: no search was started here"
        raise ConfigError(
            Problem(str(directory.path), difference, "leave --resume out, or name its directory")
        )
    before = from_json(SearchRecord, read_index(path), str(path), SEARCH_SCHEMA)
    if (before.digest, before.mode, before.repeats) != (digest, mode, sweep.repeats):
        difference = "is of another search: its files, plans, mode or repeats differ"
        raise ConfigError(
            Problem(str(directory.path), difference, "restore them, or use another directory (--out)")
        )
    return before


def carry_out_search(
    study: Study, record: SearchRecord, read: Read, watcher: RunWatcher
) -> tuple[str, ExitCode]:
    """Make all trials that do not exist yet; write the index after each. Return the table and the exit code.

    Raises KeyboardInterrupt once the interrupted run is removed, `InputError` if a value cannot be planned or a rig is
    not ready.
    """
    search = study.sweep.search
    assert search is not None
    searched_points, directory = list(record.points), study.directory
    with Runs(study, watcher) as runs:
        for number, (point, _) in enumerate(study.points):
            trials = list(searched_points[number].trials)
            while (
                value := next_value(
                    search, [Trial(done_trial.value, done_trial.passed) for done_trial in trials]
                )
            ) is not None:
                trial = _trial(study, runs, point, len(trials), value, read)
                trials.append(trial)
                outcome = "passes" if trial.passed else f"fails: {trial.reason}"
                watcher.report(f"{point.name} {point.words or search.path_text}: {trial.words} {outcome}")
                searched_points[number] = _updated_point(search, searched_points[number], trials, done=False)
                record = _keep(record, searched_points, directory, search.words)
            searched_points[number] = _updated_point(search, searched_points[number], trials, done=True)
            record = _keep(record, searched_points, directory, search.words)
    return render_search(record, search.words, str(directory.path)), _exit_code(record)


def _keep(
    record: SearchRecord,
    points: Sequence[SearchedPoint],
    directory: SweepDirectory,
    words: Callable[[int], str],
) -> SearchRecord:
    record = replace(record, points=tuple(points))
    write_files(directory.path, {SEARCH_FILE: to_json(record), SEARCH_PAGE: search_html(record, words)})
    return record


def _updated_point(
    search: Search, point: SearchedPoint, trials: Sequence[TrialRecord], *, done: bool
) -> SearchedPoint:
    best, fails_at = bounds(search, [Trial(trial.value, trial.passed) for trial in trials])
    return replace(point, trials=tuple(trials), best=best, fails_at=fails_at, done=done)


def _exit_code(record: SearchRecord) -> ExitCode:
    last = [point.trials[-1].runs[-1] for point in record.points if point.best is None and point.trials]
    return worst_result(last).exit_code


def _trial(study: Study, runs: Runs, point: Point, number: int, value: int, read: Read) -> TrialRecord:
    """Run a value as often as the sweep repeats; the first run that does not pass ends the trial. Return its record."""
    sweep, directory = study.sweep, study.directory
    search = sweep.search
    assert search is not None
    name = f"t{number:02d}"
    place = f"{point.name}/{name}"
    trial_point = replace(point, name=place, changes=(*point.changes, search.change(value)))
    files = point_files(sweep, trial_point, read, lab=study.options.mode is Mode.LAB)
    directory.add(place, files)
    results: list[RunResult] = []
    reason, last = "", None
    for turn in range(sweep.repeats):
        last = (
            runs.earlier(trial_point, turn)
            if directory.has(place, turn)
            else runs.run(trial_point, files, turn)
        )
        run = run_record_of(trial_point.name, turn, last)
        results.append(run.result)
        if run.result is RunResult.NO_VERDICT:
            problem = "a search needs a verdict, but the scenario has no checks"
            remedy = "write verdict: {checks: [{check: lost_packets == 0, why: ...}]}"
            raise ConfigError(Problem(f"{sweep.scenario}: verdict", problem, remedy))
        if run.result is not RunResult.PASS:
            reason = run.reason or _why(last)
            break
    assert last is not None
    kpis = read_kpis(directory.run(place, len(results) - 1))
    figures = {name: kpis.value(name) for name in TRIAL_FIGURES}
    return TrialRecord(
        name=name,
        value=value,
        words=search.words(value),
        passed=not reason,
        runs=tuple(results),
        reason=reason,
        figures={name: figure for name, figure in figures.items() if figure is not None},
        findings=run.findings,
    )


def _why(summary: Summary) -> str:
    """Return the first condition that did not hold, in the words of the verdict."""
    verdict = summary.verdict
    assert verdict is not None
    for check in verdict.checks:
        if check.result is not Result.PASS:
            why = check.reason or f"{check.value}, limit {check.limit}"
            return f"{check.expression} ({check.result.value}: {why})"
    return "; ".join((*verdict.reasons, *verdict.emulator)) or verdict.result.value
