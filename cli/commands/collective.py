"""`collective`: a benchmark of collectives on a rig, or on this machine for a first try. A shell: sessions, files, screen.

One session measures all sizes and collectives of one variant, in the job that `collective_job` makes; every variant is
planned before the first session begins. Decides nothing that is measured.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import tempfile
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final

from etloop.cli.commands import demo
from etloop.cli.result import to_json
from etloop.contract.base.errors import ConfigError, ExitCode, InputError, Problem
from etloop.controller.inputs.collective_spec import MOST_RANKS, BenchSpec, Variant, check_spec
from etloop.controller.inputs.files import read_file
from etloop.controller.inputs.rig import Rig, parse_rig
from etloop.controller.inputs.schedule_files import with_schedule_files
from etloop.controller.plan.plan import make_plan
from etloop.controller.run.device_counters import counted_run, counting_of, device_basis
from etloop.controller.run.execute import refuse_used_directory, run_id, session_settings, shown_progress
from etloop.controller.run.prepare import Prepared
from etloop.controller.session.service import run
from etloop.experiments.collective.figures import interference, row_figures
from etloop.experiments.collective.job import BenchJob, bench_job
from etloop.experiments.collective.nccl_json import TestResult, tests_as_json
from etloop.experiments.collective.scenario import Layout, bench_scenario, choice_key, followers_of
from etloop.experiments.collective.table import (
    RankLine,
    SweepLine,
    choice_words,
    render_end,
    render_heading,
    render_interference,
    render_rows,
    render_start,
    render_sweep,
    verdict_of,
)
from etloop.results.measure.summary import Measurement, measure
from etloop.results.store.run_dir import add_device, write_run
from etloop.runtime.clock import wall_time_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from etloop.contract.model.run import PlannedChoice, RunOutcome

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
    arguments: tuple[str, ...]
    progress_bar: bool


@dataclass(frozen=True, slots=True, eq=False)
class _Trial:
    """One session to come."""

    variant: Variant
    kinds: tuple[int, ...]
    left_out: tuple[str, ...]
    """Kinds that cannot be measured in this variant, with the reason."""
    prepared: Prepared
    bench: BenchJob
    directory: Path | None


def run_collective(request: Request) -> ExitCode:
    """Measures, prints tests as they are done, and says whether all of it holds.

    Raises an `InputError` before any traffic if options, files, plan or rig cannot be used.
    """
    with contextlib.ExitStack() as stack:
        if request.rig_path is None:
            request = _with_loopback_defaults(request)
            local = demo.choose_rig(-(-request.spec.ranks // len(demo.AGENTS)))
            rig_text, source, directory = demo.rig_text(local).encode(), "loopback", Path()
        else:
            rig_text, source, directory = (
                read_file(request.rig_path),
                str(request.rig_path),
                request.rig_path.parent,
            )
        rig = parse_rig(rig_text, source, directory)
        spec = request.spec
        if not spec.ranks:
            addresses = sum(len(port.addresses) for agent in rig.agents for port in agent.ports)
            spec = replace(spec, ranks=min(addresses, MOST_RANKS))
        check_spec(spec)
        _check_json_place(request.json_file)
        trials = _plan_all(request, spec, rig, rig_text)
        if request.rig_path is None:
            logs = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="etloop-collective-")))
            stack.enter_context(demo.agents(logs, rig.bind, once=False))
        tests: list[TestResult] = []
        for trial in trials:
            tests += _measure(request, spec, trial)
            if tests[-1].errors:
                break
        if len(trials) > 1 and request.json_file != "-":
            lines = [SweepLine(test.kind, test.variant, test.verdict, test.rows) for test in tests]
            sys.stdout.write(render_sweep(lines))
        _write_json(request, spec, tests)
    if any(test.errors or test.verdict.wrong_bytes or not test.verdict.complete for test in tests):
        return ExitCode.RUN_ERROR
    if any(test.verdict.bandwidth_ok is False for test in tests):
        return ExitCode.VERDICT_FAILED
    return ExitCode.PASS


def _with_loopback_defaults(request: Request) -> Request:
    if not 2 <= request.spec.ranks <= MOST_LOOPBACK_RANKS:
        what = f"{request.spec.ranks} ranks, expected 2 to {MOST_LOOPBACK_RANKS}"
        raise ConfigError(Problem("--loopback", what, "choose another number, or name a rig"))
    # Neighbours on different agents, so that a ring crosses the sockets at every step.
    if request.layout.placement is None and request.scenario_path is None:
        return replace(request, layout=replace(request.layout, placement="round_robin"))
    return request


def _plan_all(request: Request, spec: BenchSpec, rig: Rig, rig_text: bytes) -> tuple[_Trial, ...]:
    """A plan for every variant. Raises with the problems of all variants together."""
    if request.out_dir is not None:
        refuse_used_directory(request.out_dir)
    path = request.scenario_path
    scenario_bytes = None if path is None else read_file(path)
    source, directory = ("options", Path()) if path is None else (str(path), path.parent)
    trials: list[_Trial] = []
    problems: dict[Problem, None] = {}
    for number, variant in enumerate(spec.variants):
        try:
            able = followers_of(spec.kinds, variant)
            # Beside each other all of them run; whoever cannot follow a pin does so as if there were none.
            kinds = spec.kinds if spec.concurrent else able.kinds
            apart = "keeps its own choice" if spec.concurrent else "is left out"
            bench = bench_job(replace(spec, kinds=kinds))
            scenario, text = bench_scenario(
                scenario_bytes, source, directory, request.layout, able.kinds, variant
            )
            scenario = replace(scenario, collectives=with_schedule_files(scenario.collectives))
            plan = make_plan(scenario, rig, bench.job, f"{run_id()}-{number}")
        except InputError as error:
            problems |= dict.fromkeys(error.problems)
            continue
        out = request.out_dir
        if out is not None and len(spec.variants) > 1:
            out = out / str(number + 1)
        prepared = Prepared(scenario, rig, plan, text, rig_text.decode("utf-8-sig"))
        notes = tuple(f"{name} {apart}: {why}" for name, why in able.others)
        trials.append(_Trial(variant, kinds, notes, prepared, bench, out))
    if problems:
        raise ConfigError(*problems)
    return tuple(trials)


def _measure(request: Request, spec: BenchSpec, trial: _Trial) -> list[TestResult]:
    started_at = wall_time_text()
    plan = trial.prepared.plan
    settings = session_settings(trial.prepared)
    with shown_progress(request.progress_bar) as on_progress:
        outcome, counted = asyncio.run(
            counted_run(
                counting_of(trial.prepared.rig) if trial.directory is not None else None,
                lambda: run(settings, plan.assignments, plan.tables, on_progress, demo.print_status),
                demo.print_status,
            )
        )
    measurement = measure(outcome, plan.tables, plan.connection_rows)
    if trial.directory is not None:
        write_run(
            trial.directory,
            outcome,
            plan.tables,
            trial.prepared.scenario_text,
            trial.prepared.rig_text,
            plan.connection_rows,
            plan.port_names,
        )
        if counted is not None:
            basis = device_basis(trial.prepared.scenario, trial.prepared.rig, outcome)
            add_device(trial.directory, counted, basis)
    tests = _tests(request, spec, trial, outcome, measurement, started_at)
    if request.json_file != "-":
        sys.stdout.write("".join(_text(request, spec, test) + "\n" for test in tests))
        sys.stdout.flush()
    return tests


def _tests(
    request: Request,
    spec: BenchSpec,
    trial: _Trial,
    outcome: RunOutcome,
    measured: Measurement,
    started_at: str,
) -> list[TestResult]:
    tables = trial.prepared.plan.tables
    rows = row_figures(measured.ops, tables.ops, trial.bench.spans, spec.ranks, spec.average)
    summary = measured.summary
    failed = [
        f"{check.name}: {'; '.join(check.examples)}" for check in summary.checks if check.result == "fail"
    ]
    errors = tuple(filter(None, (outcome.reason, *failed)))
    found = interference(measured.ops, trial.bench.spans, spec.ranks, spec.average) if spec.concurrent else ()
    tests = []
    for kind in trial.kinds:
        own = tuple(row for row in rows if row.kind == kind and not row.together)
        tests.append(
            TestResult(
                kind=kind,
                variant=trial.variant,
                places=_places(trial),
                rows=own,
                verdict=verdict_of(own, request.least_busbw),
                interference=tuple(one for one in found if one.kind == kind),
                choices=_choices(trial, kind),
                shaping=tables.shaping,
                notes=(*trial.left_out, *tables.notes, *summary.degraded),
                errors=errors,
                started_at=started_at,
                ended_at=wall_time_text(),
                retransmitted_packets=summary.transport["retransmitted_packets"],
                sent_packets=summary.transport["tx_packets"],
            )
        )
    return tests


def _places(trial: _Trial) -> tuple[RankLine, ...]:
    placement = trial.prepared.plan.placement
    return tuple(
        RankLine(
            rank,
            placement.host[rank],
            placement.ports[port].agent,
            placement.ports[port].port.name,
            placement.address_of(rank),
        )
        for rank, port in enumerate(placement.port)
    )


def _choices(trial: _Trial, kind: int) -> tuple[PlannedChoice, ...]:
    return tuple(one for one in trial.prepared.plan.tables.choices if one.collective == choice_key(kind))


def _text(request: Request, spec: BenchSpec, test: TestResult) -> str:
    version = _version()
    notes = (f"shaping: {test.shaping}", *map(choice_words, test.choices), *test.notes)
    text = render_start(version, spec, test.kind, test.variant, test.places, notes)
    text += render_heading(per_iteration=request.per_iteration)
    text += render_rows(spec, test.rows, per_iteration=request.per_iteration)
    if test.interference:
        text += render_interference(test.interference)
    text += "".join(f"# ERROR: {line}\n" for error in test.errors for line in error.splitlines())
    text += (
        f"# retransmitted {test.retransmitted_packets} of {test.sent_packets} packets of the whole session\n"
    )
    return text + render_end(test.kind, test.rows, test.verdict)


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
    demo.print_status(f"results are also in {path}")


def _free_names(wanted: Path) -> Iterator[Path]:
    """The file wanted, or with .0, .1 ... behind it if it is there: nothing is overwritten, as in nccl-tests."""
    if not wanted.exists():
        yield wanted
    for number in range(_MOST_JSON_FILES):
        path = wanted.with_name(f"{wanted.name}.{number}")
        if not path.exists():
            yield path
    raise ConfigError(Problem(str(wanted), f"{_MOST_JSON_FILES} results lie beside it", "remove some"))
