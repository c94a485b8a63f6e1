"""The processes of a sweep for `etloop sweep`: how many there are, what they plan and make, and the shards of a batch system.

Runs in virtual time are spread over worker processes; those of labs and of hardware are made one after the other in this
process, because they use the same ports. A shell: processes, directories.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from etloop.cli.progress import StatusWatcher, print_status
from etloop.cli.result import CommandResult
from etloop.contract.base.errors import ConfigError, ExitCode, InputError, Problem
from etloop.contract.base.yaml_reader import MOST_PROBLEMS
from etloop.experiments.sweep.directory import SweepDirectory
from etloop.experiments.sweep.file import Sweep, points_of
from etloop.experiments.sweep.index import sweep_record
from etloop.experiments.sweep.points import Point, Turn, points
from etloop.experiments.sweep.run import Study, SweepOptions, carry_out
from etloop.experiments.sweep.shard import Shard, points_of_turns
from etloop.experiments.sweep.tasks import PlannedPoint, Pool, carry_out_on, find_runs, outcomes, plan_point
from etloop.experiments.sweep.workers import WorkerLost, Workers
from etloop.results.schema.run_output import Output
from etloop.results.schema.sweep import Mode, PointRecord, SweepRecord
from etloop.results.schema.verdict import RunResult
from etloop.runtime.machine_share import available_memory_bytes, usable_cores

if TYPE_CHECKING:
    import argparse

    from etloop.experiments.sweep.points import PointFiles
    from etloop.experiments.sweep.run import Keep
    from etloop.experiments.sweep.slurm import SlurmJobs

RUNS_PER_WORKER: Final = 8
"""Fewest runs for which a further worker is started: its modules take about as long to load as a run of a small twin."""
MOST_JOBS: Final = 1024
STATUS_EVERY: Final = 50
"""Points planned between two status lines."""
T = TypeVar("T")


class Crew:
    """The workers of a sweep; without workers everything is done in this process."""

    def __init__(self, workers: Workers | None, slurm: tuple[int, SlurmJobs] | None = None) -> None:
        self._workers = workers
        self._slurm = slurm
        self._stack = ExitStack()

    @classmethod
    def of(cls, parsed: argparse.Namespace, sweep: Sweep, mode: Mode) -> Crew:
        """Return the crew for a sweep: --jobs processes, or as many as cores and runs justify. Raise `ConfigError`."""
        jobs: int | None = parsed.jobs
        if jobs is not None and not 1 <= jobs <= MOST_JOBS:
            raise ConfigError(Problem("--jobs", f"{jobs} processes", f"write 1 to {MOST_JOBS}"))
        if mode is not Mode.TWIN:
            return cls(None)
        runs = points_of(sweep) * (1 if parsed.dry_run else sweep.repeats)
        count = min(usable_cores(), runs // RUNS_PER_WORKER) if jobs is None else min(jobs, runs)
        memory_bytes = available_memory_bytes() * 3 // 4 if parsed.memory is None else parsed.memory
        return cls(Workers(count, memory_bytes) if count > 1 else None, _slurm_of(parsed))

    def __enter__(self) -> Self:
        slurm = None if self._slurm is None else self._slurm[1]
        for executor in (self._workers, slurm):
            if executor is not None:
                self._stack.enter_context(executor)
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(error_type, error, trace)

    def map(self, function: Callable[..., T], tasks: Sequence[tuple[Any, ...]]) -> Iterator[T]:
        """Yield the results of a function for every task, in their order. Raise `WorkerLost`."""
        if self._workers is None:
            yield from (function(*task) for task in tasks)
            return
        results: dict[int, T] = {}
        awaited = 0
        for number, result in outcomes(self._workers, 2 * self._workers.count, function, tasks):
            if isinstance(result, WorkerLost):
                raise result
            results[number] = result
            while awaited in results:
                yield results.pop(awaited)
                awaited += 1

    def carry_out(
        self, study: Study, turns: tuple[Turn, ...], record: SweepRecord, keep: Keep
    ) -> SweepRecord:
        """Make the runs that do not exist yet, and return the index. Raise as `run.carry_out`."""
        executor: Workers | SlurmJobs | None = self._workers
        count = 1 if self._workers is None else self._workers.count
        if self._slurm is not None:
            count, executor = self._slurm
        if executor is None:
            return carry_out(study, turns, record, StatusWatcher(), keep)
        pool = Pool(executor, count, in_batches=self._slurm is not None)
        try:
            return carry_out_on(pool, study, turns, record, StatusWatcher(), keep)
        except BaseException:
            executor.kill()
            for turn in turns:
                study.directory.drop(study.points[turn.point][0].name, turn.repeat)
            raise


def _slurm_of(parsed: argparse.Namespace) -> tuple[int, SlurmJobs] | None:
    """Return the number of jobs at a time, and their executor; None without --slurm. Raise `ConfigError`."""
    jobs: int | None = getattr(parsed, "slurm", None)
    if jobs is None or parsed.dry_run:
        return None
    if not 1 <= jobs <= MOST_JOBS:
        raise ConfigError(Problem("--slurm", f"{jobs} jobs", f"write 1 to {MOST_JOBS}"))
    from etloop.experiments.sweep.slurm import SlurmJobs

    folder: Path = parsed.out.resolve()
    return jobs, SlurmJobs(folder.with_name(f"{folder.name}.slurm"), dict(parsed.slurm_option))


def refuse_mode(parsed: argparse.Namespace, sweep: Sweep, mode: Mode) -> None:
    """Raise `ConfigError` for options of virtual time with runs in real time, and for shards of a search."""
    options = {"--jobs": parsed.jobs, "--shard": parsed.shard, "--collect": parsed.collect}
    names = [name for name, value in options.items() if value is not None]
    names += ["--output"] if parsed.output is not Output.EVERYTHING else []
    names += ["--slurm"] if parsed.slurm is not None else []
    if parsed.slurm is not None and (parsed.shard is not None or parsed.collect is not None):
        problem = "submits jobs itself, and a shard is one job"
        raise ConfigError(Problem("--slurm", problem, "leave out --shard and --collect"))
    if names and mode is not Mode.TWIN:
        problem = "is for virtual time: runs of a lab or of hardware share its ports, and are made in turn"
        raise ConfigError(Problem(names[0], problem, "leave it out, or give --twin"))
    if sweep.search is not None and (names := [name for name in names if name != "--jobs"]):
        problem = "is for sweeps: each value of a search depends on the result of the one before"
        raise ConfigError(Problem(names[0], problem, "leave it out"))


def make_study(
    parsed: argparse.Namespace,
    sweep: Sweep,
    mode: Mode,
    planned_points: tuple[tuple[Point, PointFiles], ...],
) -> Study:
    """Return the study that the command line asks for."""
    options = SweepOptions(
        mode,
        expects=not parsed.no_ideal,
        allow_overcommit=parsed.allow_overcommit,
        allow_plugins=parsed.allow_plugins,
        strict=parsed.strict,
        output=parsed.output,
    )
    return Study(sweep, options, planned_points, SweepDirectory(parsed.out))


def plan_points(
    crew: Crew, sweep: Sweep, some_points: Sequence[Point], mode: Mode, *, strict: bool
) -> tuple[tuple[tuple[Point, PointFiles], ...], SweepRecord]:
    """Return points with their files, and the index of a sweep of them.

    Raise an `InputError` with the problems of all points.
    """
    content = pickle.dumps(sweep, pickle.HIGHEST_PROTOCOL)
    planned_points: list[tuple[Point, PointFiles]] = []
    records: list[PointRecord] = []
    problems: list[Problem] = []
    reported: set[Problem] = set()
    results = crew.map(plan_point, [(content, point, mode, strict) for point in some_points])
    for number, planned_point in enumerate(results):
        if number % STATUS_EVERY == 0 and len(some_points) > STATUS_EVERY:
            print_status(f"planning {len(some_points)} points: {number} done")
        if isinstance(planned_point, PlannedPoint):
            records.append(planned_point.record)
            # A search changes the files of its points: no plan is that of all its trials.
            point = planned_point.point if sweep.search is None else some_points[number]
            planned_points.append((point, planned_point.files))
            continue
        # A problem that several points share is reported once, for the first of them.
        faults = {
            Problem(fault.where.split(": ", 1)[-1], fault.what, fault.remedy): fault
            for fault in planned_point
        }
        problems += [fault for shared, fault in faults.items() if shared not in reported]
        reported.update(faults)
        if len(problems) > MOST_PROBLEMS:
            problems[MOST_PROBLEMS:] = [Problem(sweep.source, "more problems", "fix those above first")]
            break
    if problems:
        raise InputError(*problems)
    return tuple(planned_points), sweep_record(sweep, mode, records)


def run_shard(
    crew: Crew, parsed: argparse.Namespace, sweep: Sweep, text: bytes, shard: Shard
) -> CommandResult:
    """Make the runs of a shard that do not exist yet; the exit code is 0 if all of them ended by themselves.

    Raise as `crew.carry_out`.
    """
    all_points = points(sweep)
    turns = shard.turns(len(all_points), sweep.repeats)
    numbers = {point: number for number, point in enumerate(points_of_turns(turns))}
    own_points = [all_points[point] for point in numbers]
    directory = SweepDirectory(parsed.out)
    directory.make()
    with directory.locked_by(shard):
        planned_points, record = plan_points(crew, sweep, own_points, Mode.TWIN, strict=parsed.strict)
        directory.begin_shard(text, {point.name: files for point, files in planned_points})
        study = make_study(parsed, sweep, Mode.TWIN, planned_points)
        own_turns = tuple(Turn(numbers[turn.point], turn.repeat) for turn in turns)
        record = crew.carry_out(study, own_turns, record, lambda _: None)
    broken_runs = sum(run.result is RunResult.BROKEN for run in record.runs)
    words = f"shard {shard}: {len(record.runs)} runs are in {parsed.out}"
    code = ExitCode.RUN_ERROR if broken_runs else ExitCode.PASS
    return CommandResult(f"{words}, {broken_runs} of them broke off\n" if broken_runs else f"{words}\n", code)


def collect(
    crew: Crew, study: Study, text: bytes, record: SweepRecord, sources: Sequence[Path]
) -> SweepRecord:
    """Return the index of the runs that shards made, after copying those of other directories.

    Raise `ConfigError` if a run is missing, or was made of other inputs.
    """
    directory, repeats = study.directory, range(record.repeats)
    directory.begin_shard(text, {point.name: files for point, files in study.points})
    for source in sources:
        if not (source / "points").is_dir():
            raise ConfigError(Problem(str(source), "has no runs of a shard", "name the --out of a shard"))
        for point, _ in study.points:
            directory.take_runs(SweepDirectory(source), point.name, repeats)
    content = pickle.dumps(replace(study, points=()), pickle.HIGHEST_PROTOCOL)
    tasks = [(content, point, files, tuple(repeats)) for point, files in study.points]
    runs = [run for point_runs in crew.map(find_runs, tasks) for run in point_runs]
    existing = {(run.point, run.repeat) for run in runs}
    missing = [
        f"{point.name} repeat {repeat}"
        for point, _ in study.points
        for repeat in repeats
        if (point.name, repeat) not in existing
    ]
    if missing:
        problem = f"lacks {len(missing)} of {len(existing) + len(missing)} runs, such as {missing[0]}"
        remedy = "start the shards again that did not end; runs that exist are not made twice"
        raise ConfigError(Problem(str(directory.path), problem, remedy))
    directory.end_shards()
    return replace(record, runs=tuple(runs))
