"""Tasks of a sweep for any `concurrent.futures.Executor`: functions of a module, whose arguments and results are values.

`outcomes` is the only loop over an executor. A task whose worker is lost is submitted again; the runs that it had made exist and
are not made twice, so a lost worker costs one run.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from etloop.contract.base.errors import ConfigError, InputError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.controller.inputs.files import read_file
from etloop.controller.plan.kept_jobs import kept_jobs
from etloop.controller.plan.kept_plans import kept_plan
from etloop.controller.plan.run_numbers import PLAN_ID, TWIN_ID
from etloop.controller.run.execution import SilentWatcher
from etloop.controller.run.prepare import PrepareOptions, RunInputs, prepare
from etloop.experiments.sweep.index import point_record
from etloop.experiments.sweep.points import Point, PointFiles, Turn, at_point, point_files
from etloop.experiments.sweep.run import Keep, MadeRun, PacedKeep, RunLog, Runs, Stopped, Study
from etloop.experiments.sweep.workers import WorkerLost
from etloop.results.schema.sweep import Mode, PointRecord, RunRecord, SweepRecord
from etloop.results.schema.typed_json import RunDirError

if TYPE_CHECKING:
    from etloop.controller.run.execution import RunWatcher
    from etloop.experiments.sweep.file import Sweep
    from etloop.results.compare.samples import Side

MOST_ATTEMPTS: Final = 3
"""Attempts at a task whose worker is lost each time: a run that needs more memory than there is."""
TASKS_PER_WORKER: Final = 4
"""Fewest tasks of a worker, so that all workers end at about the same time."""
MOST_LISTED: Final = 8
T = TypeVar("T")


def outcomes(
    executor: Executor, window: int, function: Callable[..., T], tasks: Sequence[tuple[Any, ...]]
) -> Iterator[tuple[int, T | WorkerLost]]:
    """Yield the number and the result of every task as they come, at most `window` being submitted at a time.

    The result is a `WorkerLost` if the worker of a task was lost at every attempt. Other exceptions of a task are raised.
    """
    waiting, attempts = list(range(len(tasks)))[::-1], [0] * len(tasks)
    running: dict[Future[T], int] = {}
    while waiting or running:
        while waiting and len(running) < window:
            number = waiting.pop()
            attempts[number] += 1
            running[executor.submit(function, *tasks[number])] = number
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            number = running.pop(future)
            try:
                yield number, future.result()
            except WorkerLost as lost:
                if attempts[number] < MOST_ATTEMPTS:
                    waiting.append(number)
                else:
                    yield number, lost


@dataclass(frozen=True, slots=True, eq=False)
class PlannedPoint:
    """A point that can be run."""

    point: Point
    files: PointFiles
    record: PointRecord


def plan_point(sweep: bytes, point: Point, mode: Mode, strict: bool) -> PlannedPoint | tuple[Problem, ...]:
    """Return the files of a point and the digest of its plan, or the problems of its files. `sweep` is pickled."""
    try:
        files = point_files(_sweep_of(sweep), point, content_of, lab=mode is Mode.LAB)
        options = PrepareOptions(strict=strict, keeps_case=False, jobs=kept_jobs, plan=kept_plan)
        record = _record(point, files, mode, options)
    except InputError as error:
        return error.problems
    return PlannedPoint(replace(point, plan=record.plan), files, record)


@lru_cache(maxsize=1)
def _sweep_of(content: bytes) -> Sweep:
    sweep: Sweep = pickle.loads(content)  # noqa: S301 - written by our own parent
    return sweep


def content_of(path: Path) -> bytes:
    """Return the content of a file, which is read again if it changed. Raises as `read_file`."""
    try:
        state = path.stat()
    except OSError:
        return read_file(path)  # raises its error
    return _content_of(path, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=64)
def _content_of(path: Path, _mtime_ns: int, _size_bytes: int) -> bytes:
    return read_file(path)


def _record(point: Point, files: PointFiles, mode: Mode, options: PrepareOptions) -> PointRecord:
    try:
        run_id = TWIN_ID if mode is Mode.TWIN else PLAN_ID
        prepared = prepare(RunInputs(files.scenario, files.rig, files.topology, run_id), options)
    except InputError as error:
        raise InputError(*(at_point(point, problem) for problem in error.problems)) from None
    if mode in {Mode.TWIN, Mode.LAB} and files.topology is None:
        remedy = f"write topology: FILE; --{mode} runs on the switches that it describes"
        place = f"point {point.name} ({point.words}): topology"
        raise ConfigError(Problem(place, "the sweep names no topology", remedy))
    return point_record(point, files, prepared.plan)


class PointTask(NamedTuple):
    """Runs of one point."""

    point: Point
    files: PointFiles
    repeats: tuple[int, ...]


def make_runs(study: bytes, batch: tuple[PointTask, ...]) -> tuple[tuple[MadeRun, ...], ...]:
    """Make the runs of points in virtual time that do not exist yet. `study` is pickled, without its points."""
    runs = _runs_of(study)
    return tuple(
        tuple(runs.made_or_found(task.point, task.files, repeat) for repeat in task.repeats) for task in batch
    )


def find_runs(
    study: bytes, point: Point, files: PointFiles, repeats: tuple[int, ...]
) -> tuple[RunRecord, ...]:
    """Return the runs of a point that exist, after checking their files. Raises as `Runs.find` and `RunDirError`."""
    records = (_runs_of(study).find(point, files, repeat) for repeat in repeats)
    return tuple(run for run in records if run is not None)


@lru_cache(maxsize=1)
def _runs_of(study: bytes) -> Runs:
    return Runs(pickle.loads(study), SilentWatcher())  # noqa: S301 - written by our own parent


class Pool(NamedTuple):
    """An executor that makes runs, and its number of workers."""

    executor: Executor
    workers: int
    in_batches: bool = False
    """True if a task makes many points, because a worker ends with its task."""


def carry_out_on(
    pool: Pool,
    study: Study,
    turns: Sequence[Turn],
    record: SweepRecord,
    watcher: RunWatcher,
    keep: Keep,
) -> SweepRecord:
    """Make the runs of `turns` that do not exist yet, on the workers of a pool; return the index.

    Raises `Stopped` if runs are missing because their workers were lost, or after several failed runs in a row; otherwise as
    the tasks do. The index is correct in every case.
    """
    log = RunLog(record, len(turns), watcher)
    missing = [turn for turn in turns if not log.is_done(study.points[turn.point][0], turn.repeat)]
    chunks = [PointTask(*study.points[point], repeats) for point, repeats in _chunks(missing, pool.workers)]
    size = -(-len(chunks) // (TASKS_PER_WORKER * pool.workers)) if pool.in_batches else 1
    batches = [tuple(chunks[at : at + size]) for at in range(0, len(chunks), max(size, 1))]
    content = pickle.dumps(replace(study, points=()), pickle.HIGHEST_PROTOCOL)
    tasks = [(content, batch) for batch in batches]
    window = pool.workers if pool.in_batches else 2 * pool.workers
    paced, lost_runs, reason = PacedKeep(keep), list[str](), ""
    try:
        for number, result in outcomes(pool.executor, window, make_runs, tasks):
            if isinstance(result, WorkerLost):
                lost_runs += [
                    f"{task.point.name} repeat {repeat}"
                    for task in batches[number]
                    for repeat in task.repeats
                ]
                reason = str(result)
                continue
            for task, made_runs in zip(batches[number], result, strict=True):
                for made_run in made_runs:
                    log.add(task.point, made_run)
            if paced.is_due:
                paced.keep(log.record)
            log.refuse_broken_row()
    finally:
        keep(log.record)
    if lost_runs:
        raise Stopped(
            f"{_join_names(lost_runs)} not made: {MOST_ATTEMPTS} times {reason}; give --memory or --jobs"
        )
    return log.record


def _chunks(turns: Sequence[Turn], workers: int) -> list[tuple[int, tuple[int, ...]]]:
    """Return tasks as (point, repeats): a point with all its repeats, which share a plan, if there are enough points."""
    repeats: dict[int, list[int]] = {}
    for turn in turns:
        repeats.setdefault(turn.point, []).append(turn.repeat)
    if len(repeats) >= TASKS_PER_WORKER * workers:
        return [(point, tuple(numbers)) for point, numbers in sorted(repeats.items())]
    return [(point, (number,)) for point, numbers in sorted(repeats.items()) for number in numbers]


def _join_names(names: Sequence[str]) -> str:
    more = len(names) - MOST_LISTED
    return ", ".join(names[:MOST_LISTED]) + (f" and {more} more" if more > 0 else "")


def read_point(path: Path, warm_up: int, words: str) -> Side | str:
    """Return the runs of a point for comparison, or why none can be used."""
    from etloop.results.compare.samples import read_side

    try:
        return read_side(path, warm_up, words)
    except RunDirError as error:
        return str(error)
