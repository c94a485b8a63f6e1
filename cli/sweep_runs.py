"""Run the points of a sweep for `etloop sweep`: arguments in, table, sweep.json and compare.html out.

Plans every point before the first run, so that the problems of all points are reported at once; then carries out the runs and
compares them. A shell for randomness: it draws the order of runs from the sweep's seed.
"""

from __future__ import annotations

import os
import random
from dataclasses import replace
from typing import TYPE_CHECKING

from etloop.cli.arguments.comparison import comparison_settings
from etloop.cli.progress import StatusWatcher, print_status
from etloop.cli.result import CommandResult, to_json
from etloop.cli.sweep_crew import Crew, collect, make_study, plan_points, refuse_mode, run_shard
from etloop.contract.base.errors import ConfigError, Problem
from etloop.controller.inputs.files import read_file
from etloop.controller.run.prepare import InputFile
from etloop.experiments.sweep.directory import SweepDirectory
from etloop.experiments.sweep.file import MOST_REPEATS, MOST_RUNS, Sweep, parse_sweep, points_of
from etloop.experiments.sweep.index import refuse_another
from etloop.experiments.sweep.points import Turn, points, turns
from etloop.experiments.sweep.run import run_record_of
from etloop.experiments.sweep.serving import is_serving
from etloop.experiments.sweep.shard import parse_shard
from etloop.results.schema.comparison import ComparisonSettings
from etloop.results.schema.sweep import Mode, SweepRecord
from etloop.results.schema.verdict import RunResult, worst_result

if TYPE_CHECKING:
    import argparse

    from etloop.experiments.sweep.directory import ReadRun
    from etloop.experiments.sweep.points import Point, PointFiles
    from etloop.experiments.sweep.run import Study
    from etloop.results.compare.samples import Side
    from etloop.results.schema.sweep import RunRecord


def run_sweep(file: InputFile, parsed: argparse.Namespace) -> CommandResult:
    """Run the sweep of a file, or list it.

    Raise an `InputError` with the problems of all points before the first run.
    """
    from etloop.results.compare.compare import refuse_figures

    settings = comparison_settings(parsed)
    text = file.read()
    sweep = _with_options(parse_sweep(text, file.source, file.path.parent), parsed)
    mode = Mode.TWIN if parsed.twin else Mode.LAB if parsed.lab else Mode.LIVE
    refuse_figures(settings.figures)
    if sweep.optimize is not None:
        remedy = "run etloop search, or remove optimize"
        raise ConfigError(Problem(f"{sweep.source}: optimize", "is for a search over all axes", remedy))
    if parsed.out is None and not parsed.dry_run:
        raise ConfigError(Problem("--out", "is missing", "name a directory for the results"))
    refuse_mode(parsed, sweep, mode)
    with Crew.of(parsed, sweep, mode) as crew:
        if parsed.shard is not None:
            return run_shard(crew, parsed, sweep, text, parse_shard(parsed.shard, os.environ))
        planned_points, record = plan_points(crew, sweep, points(sweep), mode, strict=parsed.strict)
        run_turns = _run_order(sweep, len(planned_points))
        if parsed.dry_run:
            return _list_points(record, run_turns, as_json=parsed.json)
        if is_serving(planned_points[0][1]):
            return _run_serving(crew, parsed, sweep, text, record, planned_points)
        study = make_study(parsed, sweep, mode, planned_points)
        if parsed.collect is not None:
            return _collect(crew, parsed, study, text, record, settings)
        return _run_all(crew, parsed, study, text, record, settings)


def _run_serving(
    crew: Crew,
    parsed: argparse.Namespace,
    sweep: Sweep,
    text: bytes,
    record: SweepRecord,
    planned_points: tuple[tuple[Point, PointFiles], ...],
) -> CommandResult:
    """Make all runs of a sweep of serving workloads, which cannot be continued or searched."""
    from etloop.experiments.sweep.serving import serve_point, with_results
    from etloop.results.text.sweep import render_serving_sweep

    unusable = {
        "--resume": parsed.resume,
        "--collect": parsed.collect,
        "--slurm": parsed.slurm,
        "search": sweep.search,
    }
    for name, value in unusable.items():
        if value not in (None, False):
            problem = "is not for sweeps of serving workloads"
            raise ConfigError(Problem(name, problem, "leave it out; etloop twin --find-rate searches a rate"))
    directory = SweepDirectory(parsed.out)
    directory.make()
    with directory.lock():
        directory.begin(record, text, {point.name: files for point, files in planned_points})
        tasks = [
            (*planned_points[turn.point], turn.repeat, record.mode, parsed.level or "packet")
            for turn in _run_order(sweep, len(planned_points))
        ]
        run_tasks = [(*task, directory.run(task[0].name, task[2])) for task in tasks]
        served = []
        for task, run in zip(tasks, crew.map(serve_point, run_tasks), strict=True):
            served.append(run)
            print_status(f"[{len(served)}/{len(tasks)}] {task[0].name} repeat {task[2]} ({task[0].words})")
        record = with_results(record, served)
        directory.keep(record)
    output = (directory.path / "sweep.json").read_text(encoding="utf-8") if parsed.json else ""
    code = worst_result(run.result for run in record.runs).exit_code
    return CommandResult(output or render_serving_sweep(record, str(directory.path)), code)


def _run_all(
    crew: Crew,
    parsed: argparse.Namespace,
    study: Study,
    text: bytes,
    record: SweepRecord,
    settings: ComparisonSettings,
) -> CommandResult:
    directory, sweep = study.directory, study.sweep
    files = {point.name: point_file_set for point, point_file_set in study.points}
    if not parsed.resume:
        directory.make()
    elif not directory.path.is_dir():
        directory.earlier()  # raises its error
    with directory.lock():
        if sweep.search is not None:
            if not parsed.resume:
                directory.begin(None, text, files)
            return _search(parsed, study, text, record)
        if parsed.resume:
            earlier = directory.earlier()
            refuse_another(
                earlier, record, str(parsed.out), lambda name: directory.changed_values(name, files[name])
            )
            record = replace(record, runs=earlier.runs)
        else:
            directory.begin(record, text, files)
        return _run(crew, parsed, study, record, settings)


def _collect(
    crew: Crew,
    parsed: argparse.Namespace,
    study: Study,
    text: bytes,
    record: SweepRecord,
    settings: ComparisonSettings,
) -> CommandResult:
    """Take the runs of shards as the sweep that one process would have made."""
    study.directory.make()
    with study.directory.lock():
        record = collect(crew, study, text, record, parsed.collect)
        return _evaluate(crew, parsed, study, record, settings)


def _with_options(sweep: Sweep, parsed: argparse.Namespace) -> Sweep:
    """Return the sweep with the values that the command line overrides."""
    if parsed.rig is not None:
        sweep = replace(sweep, rig=parsed.rig)
    if parsed.repeats is not None:
        runs = parsed.repeats * points_of(sweep)
        if not 1 <= parsed.repeats <= MOST_REPEATS or runs > MOST_RUNS:
            problem = f"{parsed.repeats} of each point are {runs} runs"
            raise ConfigError(
                Problem("--repeats", problem, f"write 1 to {MOST_REPEATS}, {MOST_RUNS} runs in all")
            )
        sweep = replace(sweep, repeats=parsed.repeats)
    return sweep


def _search(parsed: argparse.Namespace, study: Study, text: bytes, record: SweepRecord) -> CommandResult:
    from etloop.experiments.sweep.search import begin_search, carry_out_search
    from etloop.results.schema.sweep import SEARCH_FILE

    directory = study.directory
    search = begin_search(
        study.sweep, text, study.options.mode, record.points, directory, resume=parsed.resume
    )
    try:
        table, code = carry_out_search(study, search, read_file, StatusWatcher())
    except BaseException:
        print_status(f"finished runs are in {parsed.out}; the same command with --resume continues")
        raise
    output = (directory.path / SEARCH_FILE).read_text(encoding="utf-8") if parsed.json else table
    return CommandResult(output, code)


def _run_order(sweep: Sweep, count: int) -> tuple[Turn, ...]:
    rng = random.Random(sweep.seed)  # noqa: S311 - the same order again for the same seed
    return turns(sweep.order, count, sweep.repeats, rng)


def _list_points(record: SweepRecord, plan_of_runs: tuple[Turn, ...], *, as_json: bool) -> CommandResult:
    if as_json:
        rows = [{"name": point.name} | {"settings": point.labels} for point in record.points]
        return CommandResult(to_json({"points": rows, "runs": len(plan_of_runs), "mode": record.mode}))
    lines = [
        f"{len(record.points)} points, {record.repeats} runs each: {len(plan_of_runs)} runs, {record.mode}"
    ]
    lines += [
        f"  {point.name}  {', '.join(f'{axis}={label}' for axis, label in point.labels.items())}"
        for point in record.points
    ]
    return CommandResult("\n".join(lines) + "\n")


def _run(
    crew: Crew, parsed: argparse.Namespace, study: Study, record: SweepRecord, settings: ComparisonSettings
) -> CommandResult:
    directory, plan_of_runs = study.directory, _run_order(study.sweep, len(study.points))
    try:
        record = crew.carry_out(study, plan_of_runs, record, directory.keep)
    except BaseException:
        kept_runs = len(directory.earlier().runs)
        print_status(
            f"{kept_runs} of {len(plan_of_runs)} runs are in {parsed.out}; the same command with --resume continues"
        )
        raise
    return _evaluate(crew, parsed, study, record, settings)


def _evaluate(
    crew: Crew, parsed: argparse.Namespace, study: Study, record: SweepRecord, settings: ComparisonSettings
) -> CommandResult:
    """Return the table of a sweep whose runs are all made; write its files."""
    directory = study.directory
    order = {
        (study.points[turn.point][0].name, turn.repeat): number
        for number, turn in enumerate(_run_order(study.sweep, len(study.points)))
    }
    # In the planned order, whichever process was the first to end.
    runs = sorted(record.runs, key=lambda run: order.get((run.point, run.repeat), len(order)))
    record, table = finish(crew, replace(record, runs=tuple(runs)), directory, settings)
    text = (directory.path / "sweep.json").read_text(encoding="utf-8") if parsed.json else table
    return CommandResult(text, worst_result(run.result for run in record.runs).exit_code)


def finish(
    crew: Crew, record: SweepRecord, directory: SweepDirectory, settings: ComparisonSettings
) -> tuple[SweepRecord, str]:
    """Compare all runs, write sweep.json, compare.html and junit.xml, and return the index and the table.

    A run that cannot be read is reported, and inconclusive in the index until it can be.
    """
    from etloop.experiments.sweep.directory import JUNIT_FILE, PAGE_FILE
    from etloop.experiments.sweep.tasks import read_point
    from etloop.results.compare.sweep_results import groups, point_results
    from etloop.results.html.sweep import sweep_html
    from etloop.results.text.sweep import render_sweep

    read_runs = directory.read_runs(record)
    for read_run in read_runs:
        for problem in read_run.problems:
            print_status(f"warning: a run is missing: {problem}")
    results = {(read_run.run.point, read_run.run.repeat): _result_of(read_run) for read_run in read_runs}
    record = replace(record, runs=tuple(results[run.point, run.repeat] for run in record.runs))
    sides: dict[str, Side] = {}
    words = {point.name: ", ".join(point.labels.values()) for point in record.points}
    tasks = [(directory.point(name), settings.warm_up, point_words) for name, point_words in words.items()]
    for name, side in zip(words, crew.map(read_point, tasks), strict=True):
        if isinstance(side, str):
            print_status(f"{name} ({words[name]}): {side}")
        else:
            sides[name] = side
    compared_groups = groups(record, sides, settings)
    record = replace(record, results=point_results(compared_groups, sides))
    page = sweep_html(record, compared_groups, sides, settings)
    directory.keep(record, {PAGE_FILE: page, JUNIT_FILE: directory.junit(record, read_runs)})
    return record, render_sweep(record, compared_groups, settings, str(directory.path))


def _result_of(read_run: ReadRun) -> RunRecord:
    """Return the record of a run as its directory has it now."""
    run, summary = read_run.run, read_run.summary
    if summary is None:
        return replace(
            run, result=RunResult.INCONCLUSIVE, reason=f"cannot be read: {read_run.why}", findings=()
        )
    return run_record_of(run.point, run.repeat, summary)
