"""Runs a benchmark of collectives: a session for every variant, each through the pipeline of every run.

One session measures all sizes and collectives of one variant, in the job that `job` builds; every variant is planned
before the first session begins. Decides no figure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

from etloop.contract.base.errors import ConfigError, Mistakes
from etloop.contract.base.late_dataclass import dataclass
from etloop.controller.inputs.collective_spec import MOST_RANKS, BenchSpec, Variant, check_spec
from etloop.controller.inputs.scenario.scenario import Scenario
from etloop.controller.plan.job_set import JobSet, only
from etloop.controller.run.execute import SessionExecution
from etloop.controller.run.out_directory import refuse_used_directory
from etloop.controller.run.pipeline import (
    FinishedRun,
    InputFile,
    PrepareOptions,
    RunInputs,
    RunOptions,
    RunWatcher,
    new_run_id,
    prepare,
    run_plan,
)
from etloop.controller.run.prepare import Prepared, read_rig
from etloop.experiments.collective.bare_model import crossing_ns
from etloop.experiments.collective.figures import interference, row_figures
from etloop.experiments.collective.job import BenchJob, bench_job
from etloop.experiments.collective.live_rows import LiveRows
from etloop.experiments.collective.result import RankLine, TestOpening, TestResult, verdict_of
from etloop.experiments.collective.scenario import Layout, bench_scenario, choice_key, followers_of
from etloop.results.schema.verdict import RunResult, worst_result
from etloop.runtime.clock import wall_time_text


@dataclass(frozen=True, slots=True)
class BenchRequest:
    """The benchmark to run, its rig and its output."""

    spec: BenchSpec
    rig: InputFile
    scenario: InputFile | None
    """Settings of the benchmark: a scenario, whose job is ignored."""
    layout: Layout
    out_dir: Path | None
    least_busbw: float | None
    """Bytes per second."""
    strict: bool = False
    """True if settings that contradict the device's profile are errors."""


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """One planned session."""

    variant: Variant
    kinds: tuple[int, ...]
    left_out: tuple[str, ...]
    """Kinds that cannot be measured in this variant, with the reason."""
    prepared: Prepared
    bench: BenchJob
    directory: Path | None


def spec_on(spec: BenchSpec, rig: InputFile) -> BenchSpec:
    """Return a checked spec; without a number of ranks it gets one for every address of the rig.

    Raises `ConfigError` if it cannot be measured.
    """
    if not spec.ranks:
        addresses = sum(len(port.addresses) for port in read_rig(rig).ports.values())
        spec = replace(spec, ranks=min(addresses, MOST_RANKS))
    check_spec(spec)
    return spec


def plan_trials(request: BenchRequest) -> tuple[Trial, ...]:
    """Return a plan for every variant. Raises an `InputError` with the problems of all variants together."""
    if request.out_dir is not None:
        refuse_used_directory(request.out_dir)
    mistakes = Mistakes()
    trials = [
        mistakes.of(partial(_trial, request, number, variant))
        for number, variant in enumerate(request.spec.variants)
    ]
    mistakes.refuse(ConfigError)
    return tuple(trial for trial in trials if trial is not None)


def _trial(request: BenchRequest, number: int, variant: Variant) -> Trial:
    spec, out = request.spec, request.out_dir
    followers = followers_of(spec.kinds, variant)
    # In a concurrent benchmark all of them run; those that cannot follow a pin ignore it.
    kinds = spec.kinds if spec.concurrent else followers.kinds
    consequence = "keeps its own choice" if spec.concurrent else "is left out"
    bench = bench_job(replace(spec, kinds=kinds))
    scenario = bench_scenario(request.scenario, request.layout, followers.kinds, variant)

    def jobs(made: Scenario) -> JobSet:
        return only(bench.job, made.mapping, made.collectives.settings)

    inputs = RunInputs(scenario, request.rig, run_id=f"{new_run_id()}-{number}")
    prepared = prepare(inputs, PrepareOptions(strict=request.strict, jobs=jobs, keeps_case=False))
    if out is not None and len(spec.variants) > 1:
        out = out / str(number + 1)
    notes = tuple(f"{name} {consequence}: {why}" for name, why in followers.others)
    return Trial(variant, kinds, notes, prepared, bench, out)


def measure_trial(request: BenchRequest, trial: Trial, watcher: RunWatcher) -> tuple[TestResult, ...]:
    """Run a session and return its results, one per collective. Raises as `run_plan`."""
    started_at = wall_time_text()
    options = RunOptions(trial.directory, expects=False)
    return _tests(request, trial, run_plan(trial.prepared, SessionExecution(), options, watcher), started_at)


def opening_of(trial: Trial, kind: int) -> TestOpening:
    """Return the opening of a test, known before its session."""
    tables = trial.prepared.plan.tables
    return TestOpening(
        kind=kind,
        variant=trial.variant,
        places=_places(trial),
        choices=tuple(choice for choice in tables.choices if choice.collective == choice_key(kind)),
        shaping=tables.shaping,
        notes=(*trial.left_out, *tables.notes),
    )


def live_rows_of(request: BenchRequest, trial: Trial) -> LiveRows | None:
    """Return the maker of live rows; None for concurrent collectives, whose rows need the whole session."""
    if request.spec.concurrent:
        return None
    spec, spans = request.spec, trial.bench.spans
    return LiveRows(trial.prepared.plan.tables.ops, spans, spec.ranks, spec.average)


def _tests(
    request: BenchRequest, trial: Trial, finished: FinishedRun, started_at: str
) -> tuple[TestResult, ...]:
    spec, tables, summary = request.spec, trial.prepared.plan.tables, finished.summary
    ops, spans = finished.measurement.ops, trial.bench.spans
    rows = row_figures(ops, tables.ops, spans, spec.ranks, spec.average)
    failed = [f"{check.name}: {'; '.join(check.examples)}" for check in summary.failed_checks]
    results = interference(ops, spans, spec.ranks, spec.average) if spec.concurrent else ()
    tests = []
    for kind in trial.kinds:
        rows_of_kind = tuple(row for row in rows if row.kind == kind and not row.together)
        tests.append(
            TestResult(
                opening=opening_of(trial, kind),
                rows=rows_of_kind,
                verdict=verdict_of(rows_of_kind, request.least_busbw),
                interference=tuple(result for result in results if result.kind == kind),
                degraded=tuple(summary.degraded),
                errors=tuple(filter(None, (summary.reason, *failed))),
                started_at=started_at,
                ended_at=wall_time_text(),
                summary=summary,
                crossing_ns=crossing_ns(finished.executed.outcome.agents),
            )
        )
    return tuple(tests)


def _places(trial: Trial) -> tuple[RankLine, ...]:
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


def result_of(tests: Iterable[TestResult]) -> RunResult:
    """Return the worst result of all tests: the verdicts of their runs and of the tests themselves."""
    return worst_result(result for test in tests for result in (test.summary.result, test.verdict.result))
