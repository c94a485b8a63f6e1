"""Run the points of a sweep for `etloop sweep`: arguments in, table, sweep.json and compare.html out.

Plans every point before the first run, so that the problems of all points are reported at once; then carries out the runs and
compares them. A shell for randomness: it draws the order of runs from the sweep's seed.
"""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from etloop.cli.arguments.comparison import comparison_settings
from etloop.cli.progress import StatusWatcher, print_status
from etloop.cli.result import CommandResult, to_json
from etloop.contract.base.errors import ConfigError, InputError, Problem
from etloop.contract.base.yaml_reader import MOST_PROBLEMS
from etloop.controller.inputs.files import read_file
from etloop.controller.run.prepare import InputFile, PrepareOptions, RunInputs, prepare
from etloop.experiments.sweep.directory import SweepDirectory
from etloop.experiments.sweep.file import MOST_REPEATS, MOST_RUNS, Sweep, parse_sweep, points_of
from etloop.experiments.sweep.index import point_record, refuse_another, sweep_record
from etloop.experiments.sweep.points import Point, PointFiles, Turn, at_point, point_files, points, turns
from etloop.results.schema.comparison import ComparisonSettings
from etloop.results.schema.sweep import Mode, PointRecord, SweepRecord
from etloop.results.schema.verdict import worst_result

if TYPE_CHECKING:
    import argparse

    from etloop.experiments.sweep.run import Study

STATUS_EVERY: Final = 50
"""Points planned between two status lines."""


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
    if parsed.out is None and not parsed.dry_run:
        raise ConfigError(Problem("--out", "is missing", "name a directory for the results"))
    planned_points, record = _plan_points(sweep, mode, strict=parsed.strict)
    run_turns = _run_order(sweep, len(planned_points))
    if parsed.dry_run:
        return _list_points(record, run_turns, as_json=parsed.json)
    # Imported here, because only runs need the event loop, sockets and labs.
    from etloop.experiments.sweep.run import Study, SweepOptions

    options = SweepOptions(
        mode,
        expects=not parsed.no_ideal,
        allow_overcommit=parsed.allow_overcommit,
        allow_plugins=parsed.allow_plugins,
        strict=parsed.strict,
    )
    directory = SweepDirectory(parsed.out)
    study = Study(sweep, options, planned_points, directory)
    files = {point.name: point_file_set for point, point_file_set in planned_points}
    if not parsed.resume:
        directory.make()
    elif not directory.path.is_dir():
        directory.earlier()  # raises its error
    with directory.locked():
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
        return _run(parsed, study, run_turns, record, settings)


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


def _plan_points(
    sweep: Sweep, mode: Mode, *, strict: bool
) -> tuple[tuple[tuple[Point, PointFiles], ...], SweepRecord]:
    """Return every point with its files, and the index of the sweep.

    Raise an `InputError` with the problems of all points.
    """
    contents: dict[Path, bytes] = {}

    def read(path: Path) -> bytes:
        if path not in contents:
            contents[path] = read_file(path)
        return contents[path]

    planned_points: list[tuple[Point, PointFiles]] = []
    records: list[PointRecord] = []
    problems: list[Problem] = []
    reported: set[Problem] = set()
    all_points = points(sweep)
    for number, point in enumerate(all_points):
        if number % STATUS_EVERY == 0 and len(all_points) > STATUS_EVERY:
            print_status(f"planning {len(all_points)} points: {number} done")
        try:
            files = point_files(sweep, point, read, lab=mode is Mode.LAB)
            records.append(_point_record(point, files, mode, PrepareOptions(strict=strict, keeps_case=False)))
            planned_points.append((point, files))
        except InputError as error:
            # A problem that several points share is reported once, for the first of them.
            new_problems = [
                problem
                for problem in error.problems
                if replace(problem, where=problem.where.split(": ", 1)[-1]) not in reported
            ]
            reported.update(
                replace(problem, where=problem.where.split(": ", 1)[-1]) for problem in error.problems
            )
            problems += new_problems
        if len(problems) > MOST_PROBLEMS:
            problems[MOST_PROBLEMS:] = [Problem(sweep.source, "more problems", "fix those above first")]
            break
    if problems:
        raise InputError(*problems)
    return tuple(planned_points), sweep_record(sweep, mode, records)


def _point_record(point: Point, files: PointFiles, mode: Mode, options: PrepareOptions) -> PointRecord:
    try:
        prepared = prepare(RunInputs(files.scenario, files.rig, files.topology), options)
    except InputError as error:
        raise InputError(*(at_point(point, problem) for problem in error.problems)) from None
    needs_topology = mode in {Mode.TWIN, Mode.LAB}
    if needs_topology and files.topology is None:
        missing = "the sweep names no topology"
        remedy = f"write topology: FILE; --{mode} runs on the switches that it describes"
        raise ConfigError(Problem(f"point {point.name} ({point.words}): topology", missing, remedy))
    return point_record(point, files, prepared.plan)


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
    parsed: argparse.Namespace,
    study: Study,
    plan_of_runs: tuple[Turn, ...],
    record: SweepRecord,
    settings: ComparisonSettings,
) -> CommandResult:
    from etloop.experiments.sweep.run import carry_out

    directory = study.directory
    try:
        record = carry_out(study, plan_of_runs, record, StatusWatcher())
    except BaseException:
        kept_runs = len(directory.earlier().runs)
        print_status(
            f"{kept_runs} of {len(plan_of_runs)} runs are in {parsed.out}; the same command with --resume continues"
        )
        raise
    record, table = finish(record, directory, settings)
    text = (directory.path / "sweep.json").read_text(encoding="utf-8") if parsed.json else table
    return CommandResult(text, worst_result(run.result for run in record.runs).exit_code)


def finish(
    record: SweepRecord, directory: SweepDirectory, settings: ComparisonSettings
) -> tuple[SweepRecord, str]:
    """Compare all runs, write sweep.json, compare.html and junit.xml, and return the index and the table."""
    from etloop.experiments.sweep.directory import JUNIT_FILE, PAGE_FILE
    from etloop.results.compare.samples import read_side
    from etloop.results.compare.sweep_results import groups, point_results
    from etloop.results.html.sweep import sweep_html
    from etloop.results.schema.typed_json import RunDirError
    from etloop.results.text.sweep import render_sweep

    sides = {}
    for point in record.points:
        words = ", ".join(point.labels.values())
        try:
            sides[point.name] = read_side(directory.point(point.name), settings.warm_up, words)
        except RunDirError as error:
            print_status(f"{point.name} ({words}): {error}")
    compared_groups = groups(record, sides, settings)
    record = replace(record, results=point_results(compared_groups, sides))
    page = sweep_html(record, compared_groups, sides, settings)
    directory.keep(record, {PAGE_FILE: page, JUNIT_FILE: directory.junit(record)})
    return record, render_sweep(record, compared_groups, settings, str(directory.path))
