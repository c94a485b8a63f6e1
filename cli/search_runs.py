"""Search the best settings for `etloop search`: trials in virtual time, then a sweep of the best, as confirm.yaml has it.

A shell: directories, processes. `experiments/sweep/trials` makes the trials; the repeats are an ordinary sweep.
"""

from __future__ import annotations

import argparse
import os
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Final

import yaml

from etloop.cli.commands import sweep as sweep_command
from etloop.cli.progress import StatusWatcher, print_status
from etloop.cli.result import CommandResult
from etloop.cli.sweep_crew import Crew
from etloop.cli.sweep_runs import run_sweep
from etloop.contract.base.errors import ConfigError, ExitCode, Problem
from etloop.contract.base.yaml_tree import TEXT_TAG, Change
from etloop.controller.run.prepare import InputFile
from etloop.experiments.sweep.directory import SWEEP_TEXT_FILE, SweepDirectory
from etloop.experiments.sweep.file import MOST_REPEATS, Sweep, parse_sweep
from etloop.experiments.sweep.optimize import MOST_TRIALS, Objective, conditions_change
from etloop.experiments.sweep.run import Study, SweepOptions
from etloop.experiments.sweep.trials import START, SettingSearch
from etloop.results.html.trials import trials_html
from etloop.results.report.values import value_words
from etloop.results.schema.kpis import BY_NAME
from etloop.results.schema.sweep import Mode, SweepRecord
from etloop.results.schema.trials import TRIALS_FILE, TRIALS_PAGE, Candidate, TrialsRecord
from etloop.results.schema.typed_json import RunDirError, to_json
from etloop.results.schema.verdict import RunResult
from etloop.results.store.run_dir import read_kpis, write_files
from etloop.results.text.trials import render_trials

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from etloop.experiments.sweep.points import Point
    from etloop.results.schema.kpis import KpiSet

CONFIRM_FILE: Final = "confirm.yaml"
CONFIRM_DIRECTORY: Final = "confirm"
CANDIDATE: Final = "candidate"
"""The axis of the sweep of the best trials."""
_MAP_TAG: Final = "tag:yaml.org,2002:map"


def run_search(file: InputFile, parsed: argparse.Namespace) -> CommandResult:
    """Search in the space of a file, and repeat the best trials.

    Raise an `InputError` if files, directory, rig or lab cannot be used.
    """
    text = file.read()
    sweep = _with_options(parse_sweep(text, file.source, file.path.parent), parsed)
    if sweep.optimize is None:
        remedy = "write such as optimize: {minimize: [jct_avg_ns]}; a sweep or a search of one value is etloop sweep"
        raise ConfigError(Problem(sweep.source, "has no optimize", remedy))
    options = SweepOptions(
        Mode.TWIN, expects=True, allow_overcommit=False, strict=parsed.strict, output=parsed.output
    )
    directory = SweepDirectory(parsed.out)
    directory.make()
    with directory.lock():
        _begin(directory.path, text, resume=parsed.resume)
        parsed.dry_run = False
        with Crew.of(parsed, sweep, Mode.TWIN) as crew:
            search = SettingSearch(Study(sweep, options, (), directory), crew.map, StatusWatcher())
            try:
                record = search.carry_out()
            except BaseException:
                print_status(f"finished trials are in {parsed.out}; the same command with --resume continues")
                raise
        _write(directory.path, record)
        points = {point.name: point for point in (search.point(labels) for labels in search.feasible())}
        chosen = [points[name] for name in (*record.best, *points) if name in points]
        best = tuple(dict.fromkeys(point.name for point in chosen))[: sweep.optimize.best]
        if best and not parsed.no_confirm:
            repeats = _confirm(parsed, sweep, directory.path, [points[name] for name in best])
            record = _with_repeats(record, sweep, directory.path / CONFIRM_DIRECTORY, repeats)
            _write(directory.path, record)
    table = render_trials(record, str(directory.path))
    output = (directory.path / TRIALS_FILE).read_text(encoding="utf-8") if parsed.json else table
    return CommandResult(output, _exit_code(record))


def _with_options(sweep: Sweep, parsed: argparse.Namespace) -> Sweep:
    """Return the sweep with the values that the command line overrides."""
    for name, value, most in (
        ("trials", parsed.trials, MOST_TRIALS),
        ("repeats", parsed.repeats, MOST_REPEATS),
    ):
        if value is not None and not 1 <= value <= most:
            raise ConfigError(Problem(f"--{name}", f"{value} of them", f"write 1 to {most}"))
    if parsed.trials is not None and sweep.optimize is not None:
        sweep = replace(sweep, optimize=replace(sweep.optimize, trials=parsed.trials))
    return sweep if parsed.repeats is None else replace(sweep, repeats=parsed.repeats)


def _begin(directory: Path, text: bytes, *, resume: bool) -> None:
    """Write the sweep's file, or check that it is the one that the directory was begun with. Raise `ConfigError`."""
    path = directory / SWEEP_TEXT_FILE
    if resume:
        if not path.is_file():
            problem = f"has no {SWEEP_TEXT_FILE}: no search was started here"
            raise ConfigError(
                Problem(str(directory), problem, "leave --resume out, or name the search's directory")
            )
        if path.read_bytes() != text:
            remedy = "restore the file, or use another directory (--out); --trials continues with more trials"
            raise ConfigError(Problem(str(directory), "was begun with another text of the sweep", remedy))
        return
    if any(directory.iterdir()):
        remedy = "name a new one with --out, or continue in it with --resume"
        raise ConfigError(Problem(str(directory), "is not an empty directory", remedy))
    path.write_bytes(text)


def _write(directory: Path, record: TrialsRecord) -> None:
    write_files(directory, {TRIALS_FILE: to_json(record), TRIALS_PAGE: trials_html(record)})


def _confirm(
    parsed: argparse.Namespace, sweep: Sweep, directory: Path, points: Sequence[Point]
) -> SweepRecord:
    """Run the best trials and the scenario without changes as a sweep; return its index."""
    file, out = directory / CONFIRM_FILE, directory / CONFIRM_DIRECTORY
    mode = Mode.LAB if parsed.lab else Mode.TWIN if parsed.rig is None else Mode.LIVE
    text = confirm_text(sweep, directory, points)
    is_another = not file.is_file() or file.read_text(encoding="utf-8") != text
    if (out / "sweep.json").is_file():
        is_another = is_another or SweepDirectory(out).earlier().mode is not mode
        if is_another:
            _keep_earlier(out)
    file.write_text(text, encoding="utf-8")
    where = {Mode.LAB: ["--lab"], Mode.TWIN: ["--twin"], Mode.LIVE: ["--rig", str(parsed.rig)]}[mode]
    arguments = [str(file), "--out", str(out), *where, "--repeats", str(sweep.repeats)]
    arguments += ["--resume"] if (out / "sweep.json").is_file() else []
    arguments += ["--allow-overcommit"] if parsed.allow_overcommit else []
    parser = argparse.ArgumentParser()
    sweep_command.add_arguments(parser)
    print_status(f"repeating the best {len(points)} trials and the scenario without changes ({mode})")
    run_sweep(InputFile(file), parser.parse_args(arguments))
    return SweepDirectory(out).earlier()


def _keep_earlier(out: Path) -> None:
    """Rename the repeats of other trials, or in another mode, to the next free number."""
    number = next(number for number in range(1, 10_000) if not out.with_name(f"{out.name}-{number}").exists())
    out.rename(out.with_name(f"{out.name}-{number}"))


def confirm_text(sweep: Sweep, directory: Path, points: Sequence[Point]) -> str:
    """Return the sweep.yaml of trials: an axis whose first setting is the scenario without changes."""
    assert sweep.optimize is not None
    common = list(sweep.common)
    if sweep.optimize.constraints:
        scenario = InputFile(sweep.scenario)
        common.append(conditions_change(scenario.read(), scenario.source, sweep.optimize.constraints))
    count = len(sweep.common)
    settings = {START: _mapping({})} | {
        point.name: _changes(point.changes[count:], directory) for point in points
    }
    files = {
        name: _text(os.path.relpath(path, directory))
        for name, path in (("scenario", sweep.scenario), ("topology", sweep.topology), ("rig", sweep.rig))
        if path is not None
    }
    root = files | {
        "repeats": yaml.ScalarNode("tag:yaml.org,2002:int", str(sweep.repeats)),
        "seed": yaml.ScalarNode("tag:yaml.org,2002:int", str(sweep.seed + 1)),
        "set": _changes(common, directory),
        "axes": _mapping({CANDIDATE: _mapping(settings)}),
    }
    return str(yaml.serialize(_mapping(root), Dumper=yaml.SafeDumper, allow_unicode=True, width=120))


def _changes(changes: Sequence[Change], directory: Path) -> yaml.MappingNode:
    """Return changes by key path; names of files become relative to a directory."""
    values: dict[str, yaml.Node] = {}
    for change in changes:
        path = ".".join(change.path)
        is_file = path in {"scenario", "topology", "rig"}
        # A copy, because YAML writes a node that occurs twice as an alias.
        values[path] = deepcopy(change.value)
        if is_file:
            values[path] = _text(os.path.relpath(str(change.value.value), directory))
    return _mapping(values)


def _mapping(values: Mapping[str, yaml.Node]) -> yaml.MappingNode:
    return yaml.MappingNode(_MAP_TAG, [(_text(key), value) for key, value in values.items()])


def _text(text: str) -> yaml.ScalarNode:
    return yaml.ScalarNode(TEXT_TAG, text)


def _with_repeats(record: TrialsRecord, sweep: Sweep, out: Path, repeats: SweepRecord) -> TrialsRecord:
    """Return the record with the repeats of the best trials, and the conclusion from them."""
    assert sweep.optimize is not None
    objectives = sweep.optimize.objectives
    directory = SweepDirectory(out)
    kpis: dict[tuple[str, int], KpiSet] = {}
    problems: list[Problem] = []
    for run in repeats.runs:
        try:
            kpis[run.point, run.repeat] = read_kpis(directory.run(run.point, run.repeat))
        except RunDirError as error:
            problems += error.problems
    for problem in problems:
        print_status(f"warning: a repeat is missing: {problem}")
    candidates = tuple(
        _candidate(point.name, point.labels[CANDIDATE], objectives, kpis, repeats) for point in repeats.points
    )
    conclusion, is_confirmed = _conclude(candidates, objectives)
    if problems:
        more = f"; and {len(problems) - 1} more problems" if len(problems) > 1 else ""
        conclusion, is_confirmed = f"not confirmed: a repeat is missing: {problems[0]}{more}", False
    return replace(record, candidates=candidates, conclusion=conclusion, is_confirmed=is_confirmed)


def _candidate(
    point: str,
    name: str,
    objectives: Sequence[Objective],
    kpis: Mapping[tuple[str, int], KpiSet],
    repeats: SweepRecord,
) -> Candidate:
    """Return a candidate from its runs; a run without `kpis` cannot be read, and has not passed."""
    runs = [run for run in repeats.runs if run.point == point]
    read_runs = [run for run in runs if (run.point, run.repeat) in kpis]
    figures = [
        [kpis[run.point, run.repeat].value(objective.figure) for run in read_runs] for objective in objectives
    ]
    known_figures = [[value for value in values if value is not None] for values in figures]
    result = next((result for result in repeats.results if result.name == point), None)
    return Candidate(
        name=name,
        runs=len(runs),
        passed=sum(run.result in {RunResult.PASS, RunResult.NO_VERDICT} for run in read_runs),
        means=tuple(fmean(values) if values else None for values in known_figures),
        outcome="" if result is None or result.outcome is None else str(result.outcome),
    )


def _conclude(candidates: Sequence[Candidate], objectives: Sequence[Objective]) -> tuple[str, bool]:
    """Return whether repeats confirm the first of the best trials, and why not."""
    start, best, *others = candidates
    if best.passed < best.runs:
        return (
            f"not confirmed: {best.name} meets the conditions in {best.passed} of {best.runs} repeats",
            False,
        )
    figure, sign = objectives[0].figure, -1 if objectives[0].is_maximized else 1
    unit = BY_NAME[figure].unit
    if best.means[0] is None:
        return f"not confirmed: the repeats of {best.name} have no {figure}", False
    if len(objectives) > 1:
        return f"confirmed: {best.name} meets all conditions in {best.runs} repeats", True
    for other in others if start.passed < start.runs else (*others, start):
        mean = other.means[0]
        if mean is not None and other.passed == other.runs and sign * mean < sign * best.means[0]:
            comparison = (
                f"{figure} of {other.name} is {value_words(mean, unit)} in the mean, "
                f"of {best.name} {value_words(best.means[0], unit)}"
            )
            return f"not confirmed: {comparison}", False
    mean_words = value_words(best.means[0], unit)
    return f"confirmed: {best.name} is the best in {best.runs} repeats, {figure} {mean_words}", True


def _exit_code(record: TrialsRecord) -> ExitCode:
    if not record.best:
        return ExitCode.VERDICT_FAILED
    return ExitCode.INCONCLUSIVE if record.conclusion and not record.is_confirmed else ExitCode.PASS
