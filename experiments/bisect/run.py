"""Carries a bisection out: installs a version by the user's command, makes its runs, compares them. A shell: processes, disk.

Decides what makes a version bad: a run whose verdict fails, or a regression against the runs of the first version.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

from etloop.contract.base.errors import ConfigError, EtloopError, InputError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.controller.run.execute import SessionExecution
from etloop.controller.run.pipeline import RunInputs, RunOptions, SilentWatcher, prepare, run_plan
from etloop.controller.run.twin import TwinExecution
from etloop.experiments.bisect.search import BisectRecord, Trial, VersionState, good_and_bad, next_version
from etloop.results.compare.compare import compare_runs
from etloop.results.compare.samples import read_side
from etloop.results.schema.comparison import ComparisonSettings, Outcome
from etloop.results.schema.typed_json import RunDirError, to_json
from etloop.results.schema.verdict import Result
from etloop.results.store.history import HISTORY_FILE, record_run
from etloop.results.store.run_dir import SUMMARY_FILE, read_summary, write_files
from etloop.traffic.twin import TwinSettings

BISECT_SCHEMA: Final = "etloop-bisect/1"
BISECT_FILE: Final = "bisect.json"
VERSION_FIELD: Final = "{version}"
MOST_VERSIONS: Final = 1000
_LAST_LINES: Final = 3
_MOST_OUTPUT_BYTES: Final = 1 << 16


class Runner(Protocol):
    """Makes one run."""

    def run(self, run_dir: Path, repeat: int) -> None:
        """Write a complete run directory, or raise an `EtloopError`."""


@dataclass(frozen=True, slots=True)
class OwnRunner:
    """Runs on the agents of a rig, or in virtual time; files are read anew for each run."""

    scenario: Path
    rig: Path
    topology: Path | None
    in_virtual_time: bool

    def run(self, run_dir: Path, repeat: int) -> None:
        """Make a run. See `Runner`."""
        prepared = prepare(RunInputs.of(self.scenario, self.rig, self.topology))
        execution = (
            TwinExecution(TwinSettings(seed=repeat + 1)) if self.in_virtual_time else SessionExecution()
        )
        run_plan(prepared, execution, RunOptions(run_dir, expects=False), SilentWatcher())


@dataclass(frozen=True, slots=True)
class BisectSettings:
    """Versions to try, and how each is compared."""

    versions: tuple[str, ...]
    install: tuple[str, ...]
    """Words of the command; `VERSION_FIELD` in them is replaced by the version."""
    repeats: int
    install_limit_ns: int
    comparison: ComparisonSettings


def bisect(
    settings: BisectSettings, runner: Runner, out_dir: Path, report: Callable[[str], None]
) -> BisectRecord:
    """Try versions until the first bad one is known, and write bisect.json.

    Runs that `out_dir` already has are kept, and a version that has all of its runs is not installed again. Raises `InputError`
    for inputs that no version can have, such as a wrong scenario.
    """
    states: dict[int, VersionState] = {}
    trials: list[Trial] = []
    while (index := next_version(states, len(settings.versions))) is not None:
        version = settings.versions[index]
        report(f"version {version}: {len(trials) + 1}. trial")
        trial = _try(settings, version, runner, out_dir)
        report(f"version {version}: {trial.state}" + "".join(f"; {text}" for text in trial.reasons[:2]))
        states[index] = trial.state
        trials.append(trial)
    record = _record(settings.versions, states, trials)
    write_files(out_dir, {BISECT_FILE: to_json(record)})
    return record


def parse_install(text: str) -> tuple[str, ...]:
    """Return the words of an install command. Raises `ConfigError` without the version in it, or for open quotes."""
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise ConfigError(Problem("--install", f"{error}", "close the quotes")) from None
    if not any(VERSION_FIELD in word for word in words):
        remedy = (
            f'write {VERSION_FIELD} where the command takes the version, as "./install.sh {VERSION_FIELD}"'
        )
        raise ConfigError(Problem("--install", f"does not contain {VERSION_FIELD}", remedy))
    return words


def parse_versions(text: str) -> tuple[str, ...]:
    """Return versions, oldest first: the lines of a file, without comments, or words between commas.

    Raises `ConfigError` unless there are two or more, each a usable name of a directory.
    """
    path = Path(text)
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else text.split(",")
    versions = [line.partition("#")[0].strip() for line in lines]
    versions = [version for version in versions if version]
    for version in versions:
        if (
            version.startswith((".", "-"))
            or "/" in version
            or not version.isprintable()
            or len(version) > 100
        ):
            problem = f'"{version[:64]}" cannot name a directory'
            raise ConfigError(
                Problem("--versions", problem, "write versions without / that begin with a letter or digit")
            )
    if not 2 <= len(versions) <= MOST_VERSIONS or len(set(versions)) < len(versions):
        problem = f"has {len(set(versions))} different versions in {len(versions)} places"
        raise ConfigError(
            Problem("--versions", problem, f"name 2 to {MOST_VERSIONS}, each once, the oldest first")
        )
    return tuple(versions)


def _try(settings: BisectSettings, version: str, runner: Runner, out_dir: Path) -> Trial:
    directory = out_dir / version
    run_dirs = [directory / f"r{repeat:03}" for repeat in range(settings.repeats)]
    missing = [run_dir for run_dir in run_dirs if not (run_dir / SUMMARY_FILE).is_file()]
    if missing:
        if failure := _install(settings, version):
            return Trial(version, VersionState.UNCLEAR, (f"not installed: {failure}",), "")
        for run_dir in missing:
            if run_dir.exists():
                shutil.rmtree(run_dir)  # broke off
            try:
                runner.run(run_dir, run_dirs.index(run_dir))
            except InputError:
                raise
            except EtloopError as error:
                return Trial(version, VersionState.UNCLEAR, (f"not run: {error}",), str(directory))
            record_run(run_dir, out_dir, out_dir / HISTORY_FILE, version)
    state, reasons = _state_of(settings, version, out_dir)
    return Trial(version, state, reasons, str(directory))


def _install(settings: BisectSettings, version: str) -> str:
    """Run the install command; return why it failed, "" if it did not."""
    words = [word.replace(VERSION_FIELD, version) for word in settings.install]
    environment = {**os.environ, "ETLOOP_VERSION": version}
    try:
        completed = subprocess.run(
            words,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            timeout=settings.install_limit_ns / 1e9,
        )
    except FileNotFoundError:
        problem = f'there is no command "{words[0][:100]}"'
        raise ConfigError(Problem("--install", problem, "name an executable file or a command")) from None
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if completed.returncode == 0:
        return ""
    lines = completed.stdout[-_MOST_OUTPUT_BYTES:].decode(errors="replace").split("\n")
    last = "; ".join([line.strip() for line in lines if line.strip()][-_LAST_LINES:])
    return f"exit code {completed.returncode}: {last}"


def _state_of(settings: BisectSettings, version: str, out_dir: Path) -> tuple[VersionState, tuple[str, ...]]:
    """Return the state of a version that has its runs, with reasons."""
    directory = out_dir / version
    summaries = [read_summary(directory / f"r{repeat:03}") for repeat in range(settings.repeats)]
    verdicts = [
        summary.verdict for summary in summaries if summary.verdict is not None and summary.verdict.checks
    ]
    failed = [verdict for verdict in verdicts if verdict.result is Result.FAIL]
    if failed:
        return VersionState.BAD, (
            f"verdict failed in {len(failed)} of {len(summaries)} runs",
            *failed[0].reasons,
        )
    if version == settings.versions[0]:
        return VersionState.GOOD, ("the reference",)
    try:
        first = read_side(out_dir / settings.versions[0], settings.comparison.warm_up)
        side = read_side(directory, settings.comparison.warm_up)
    except RunDirError as error:
        return VersionState.UNCLEAR, (str(error),)
    comparison = compare_runs(first, side, settings.comparison)
    if comparison.verdict is Outcome.REGRESSION:
        return VersionState.BAD, comparison.reasons
    is_open = comparison.verdict in {Outcome.OPEN, Outcome.DIFFERENT}
    if is_open and not verdicts and not comparison.metrics[0].surely_no_regression:
        return VersionState.UNCLEAR, comparison.reasons
    return VersionState.GOOD, comparison.reasons


def _record(
    versions: Sequence[str], states: dict[int, VersionState], trials: Sequence[Trial]
) -> BisectRecord:
    low, high = good_and_bad(states)
    is_found = states.get(0) is VersionState.GOOD and high is not None
    return BisectRecord(
        BISECT_SCHEMA,
        tuple(versions),
        tuple(trials),
        versions[low] if states.get(0) is VersionState.GOOD else "",
        versions[high] if is_found and high is not None else "",
        tuple(versions[low + 1 : high]) if is_found else (),
    )
