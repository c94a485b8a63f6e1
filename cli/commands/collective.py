"""The command `collective`: a benchmark of collectives on a rig, or on this machine for a first try. A shell: files, screen.

Decides what is printed, and where a first try takes place; what is measured is decided by `experiments.collective`.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Final

from etloop.cli.commands import demo
from etloop.cli.progress import run_watcher
from etloop.cli.result import to_json
from etloop.cli.stderr import print_status
from etloop.contract.base.errors import ConfigError, ExitCode, Problem
from etloop.controller.inputs.collective_spec import BenchSpec
from etloop.controller.run.prepare import InputFile, read_rig
from etloop.experiments.collective.nccl_json import tests_as_json
from etloop.experiments.collective.result import TestResult
from etloop.experiments.collective.run import (
    BenchRequest,
    measure_trial,
    plan_trials,
    result_of,
    spec_on,
)
from etloop.experiments.collective.scenario import Layout
from etloop.experiments.collective.table import SweepLine, render_sweep, render_test

MOST_LOOPBACK_RANKS: Final = 508
"""Two networks of 254 addresses."""
_MOST_JSON_FILES: Final = 10_000


@dataclass(frozen=True, slots=True)
class Request:
    """What the command line asks for. `spec.ranks` is 0 where the rig decides: a rank for every address."""

    spec: BenchSpec
    rig_path: Path | None
    """None: two agents on loopback addresses of this machine, started and ended here."""
    scenario_path: Path | None
    layout: Layout
    json_file: str
    """"-": standard output, and no table; "": none."""
    out_dir: Path | None
    per_iteration: bool
    least_busbw: float | None
    """Bytes per second."""
    strict: bool
    arguments: tuple[str, ...]
    progress_bar: bool


def run_collective(request: Request) -> ExitCode:
    """Measure, print tests as they are done, and return whether all of it holds.

    Raises an `InputError` before any traffic if options, files, plan or rig cannot be used.
    """
    shows = request.json_file != "-"
    with contextlib.ExitStack() as stack:
        bench = _bench_request(request)
        _check_json_place(request.json_file)
        trials = plan_trials(bench)
        if request.rig_path is None:
            logs = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="etloop-collective-")))
            stack.enter_context(demo.agents(logs, read_rig(bench.rig).bind, once=False))
        tests: list[TestResult] = []
        for trial in trials:
            with run_watcher(bar=request.progress_bar) as watcher:
                found = measure_trial(bench, trial, watcher)
            tests += found
            if shows:
                texts = [
                    render_test(_version(), bench.spec, test, per_iteration=request.per_iteration)
                    for test in found
                ]
                sys.stdout.write("".join(f"{text}\n" for text in texts))
                sys.stdout.flush()
            if tests[-1].errors:
                break
        if len(trials) > 1 and shows:
            lines = [SweepLine(test.kind, test.variant, test.verdict, test.rows) for test in tests]
            sys.stdout.write(render_sweep(lines))
        _write_json(request, bench.spec, tests)
    return result_of(tests).exit_code


def _bench_request(request: Request) -> BenchRequest:
    spec, layout = request.spec, request.layout
    if request.rig_path is not None:
        rig = InputFile(request.rig_path)
        rig = replace(rig, content=rig.read())
    else:
        if not 2 <= spec.ranks <= MOST_LOOPBACK_RANKS:
            what = f"{spec.ranks} ranks, expected 2 to {MOST_LOOPBACK_RANKS}"
            raise ConfigError(Problem("--loopback", what, "choose another number, or name a rig"))
        local = demo.choose_rig(-(-spec.ranks // len(demo.AGENTS)))
        rig = InputFile(Path("loopback"), demo.rig_text(local).encode())
        # Neighbours on different agents, so that a ring crosses the sockets at every step.
        if layout.placement is None and request.scenario_path is None:
            layout = replace(layout, placement="round_robin")
    return BenchRequest(
        spec=spec_on(spec, rig),
        rig=rig,
        scenario=None if request.scenario_path is None else InputFile(request.scenario_path),
        layout=layout,
        out_dir=request.out_dir,
        least_busbw=request.least_busbw,
        strict=request.strict,
    )


def _version() -> str:
    try:
        return metadata.version("etloop")
    except metadata.PackageNotFoundError:
        return "of a source tree"


def _check_json_place(name: str) -> None:
    """Raises `ConfigError` before anything is measured if results could not be written there."""
    directory = Path(name).parent
    if name not in ("", "-") and not (directory.is_dir() and os.access(directory, os.W_OK)):
        what = "is no directory" if not directory.is_dir() else "cannot be written to"
        raise ConfigError(Problem("--json", f"{directory} {what}", "name a file elsewhere"))


def _write_json(request: Request, spec: BenchSpec, tests: list[TestResult]) -> None:
    if not request.json_file:
        return
    text = to_json(tests_as_json(_version(), request.arguments, spec, tests))
    if request.json_file == "-":
        sys.stdout.write(text)
        return
    path = next(_free_names(Path(request.json_file)))
    try:
        with path.open("x") as file:
            file.write(text)
    except OSError as error:
        what = f"cannot be written: {error.strerror or error}"
        raise ConfigError(Problem(str(path), what, "name another file with --json")) from None
    print_status(f"results are also in {path}")


def _free_names(wanted: Path) -> Iterator[Path]:
    """The file wanted, or with .0, .1 ... behind it if it is there: nothing is overwritten, as in nccl-tests."""
    if not wanted.exists():
        yield wanted
    for number in range(_MOST_JSON_FILES):
        path = wanted.with_name(f"{wanted.name}.{number}")
        if not path.exists():
            yield path
    raise ConfigError(Problem(str(wanted), f"{_MOST_JSON_FILES} results lie beside it", "remove some"))
