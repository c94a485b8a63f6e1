"""Scenario -> the jobs of its plan: reads traces, generates loads, and merges jobs and background into one set.

Decides the names and settings of the parts of a set.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from etloop.contract.base.errors import InputError, PlanError, Problem
from etloop.contract.base.units import approximate_duration
from etloop.controller.inputs.scenario.collectives import Collectives
from etloop.controller.inputs.scenario.jobs import BackgroundEntry
from etloop.controller.inputs.scenario.loads import duration_ns
from etloop.controller.inputs.scenario.scenario import Scenario
from etloop.controller.inputs.scenario.workload import Source
from etloop.controller.inputs.schedule_files import with_schedule_files
from etloop.controller.plan.job_set import ANY_CLASS, JobPart, JobSet, only
from etloop.controller.plan.load_jobs import job_of
from etloop.controller.plan.places.rank_order import with_hosts
from etloop.workload.job import build_job
from etloop.workload.program.excerpts import excerpt_of
from etloop.workload.program.merge import Part, side_by_side
from etloop.workload.readers.files import Progress, read_trace
from etloop.workload.trace.program import Job
from etloop.workload.trace.rank_aliases import recorded_ranks


def with_all_schedule_files(scenario: Scenario) -> Scenario:
    """Return the scenario with the schedule files of all its jobs read.

    Raises an `InputError` with the mistakes of all of them.
    """
    section_pairs: list[tuple[Collectives, Collectives]] = []
    problems: dict[Problem, None] = {}
    error_type: type[InputError] = PlanError
    for section in (scenario.collectives, *(job.collectives for job in scenario.jobs)):
        if any(section is section_before for section_before, _ in section_pairs):
            continue
        try:
            section_pairs.append((section, with_schedule_files(section)))
        except InputError as error:
            problems |= dict.fromkeys(error.problems)
            error_type = type(error)
    if problems:
        raise error_type(*problems)

    def loaded_section(section: Collectives) -> Collectives:
        return next(
            section_after for section_before, section_after in section_pairs if section_before is section
        )

    jobs = tuple(replace(job, collectives=loaded_section(job.collectives)) for job in scenario.jobs)
    return replace(scenario, collectives=loaded_section(scenario.collectives), jobs=jobs)


def strict_about_traces(scenario: Scenario) -> Scenario:
    """Return the scenario with an error for communication of its traces that cannot be replayed."""
    jobs = (
        replace(job, source=replace(job.source, settings=replace(job.source.settings, strict=True)))
        for job in scenario.jobs
    )
    return replace(scenario, jobs=tuple(jobs))


def build_jobs(
    scenario: Scenario, progress: Progress | None = None, build: Callable[[Source], Job] | None = None
) -> JobSet:
    """Return the jobs of a scenario whose schedule files have been read.

    `build`: used instead of `build_job_of`, by callers that keep jobs.
    Raises an `InputError` for every trace or load that cannot be used.
    """
    jobs: list[Job] = []
    problems: list[Problem] = []
    for entry in scenario.jobs:
        try:
            jobs.append(build_job_of(entry.source, progress) if build is None else build(entry.source))
        except InputError as error:
            if len(scenario.jobs) == 1:
                raise
            problems += [
                replace(problem, where=f"job {entry.name}: {problem.where}") for problem in error.problems
            ]
    for load in scenario.background:
        try:
            jobs.append(job_of(load.load, load.where))
        except InputError as error:
            problems += error.problems
    if problems:
        raise PlanError(*problems)
    if len(jobs) == 1:
        (entry,) = scenario.jobs
        return only(jobs[0], entry.mapping, entry.collectives.settings, entry.transport)
    return _merge(scenario, jobs)


def build_job_of(source: Source, progress: Progress | None = None) -> Job:
    """Return the job of a trace or a generated load. Raises an `InputError` if it cannot be used."""
    if source.load is not None:
        return job_of(source.load, source.where)
    assert source.trace is not None
    world = len(recorded_ranks(source.settings.stand_ins)) or None
    trace = read_trace(source.trace, source.groups, progress, source.kernels, world, source.facts)
    job = build_job(trace, source.settings)
    return excerpt_of(job, source.excerpt) if source.excerpt is not None else job


def _merge(scenario: Scenario, built: list[Job]) -> JobSet:
    entries = scenario.jobs
    # A single job is repeated by the iterations of the plan; of several jobs each repeats by its own number of passes.
    parts = [
        Part(entry.name, job, entry.passes if len(entries) > 1 else 1, entry.start_ns)
        for entry, job in zip(entries, built, strict=False)
    ]
    parts += [
        Part(load.name, job, 1, load.start_ns, background=True)
        for load, job in zip(scenario.background, built[len(entries) :], strict=True)
    ]
    together = side_by_side(parts, alone_too=scenario.rounds > 0)
    job_parts = [
        JobPart(
            job.name,
            job.first_rank,
            job.ranks,
            with_hosts(entry.mapping, own_job),
            entry.collectives.settings,
            transport=entry.transport,
        )
        for entry, job, own_job in zip(entries, together.jobs, built, strict=False)
    ]
    for load, job, own_job in zip(
        scenario.background, together.jobs[len(entries) :], built[len(entries) :], strict=True
    ):
        settings = scenario.collectives.settings
        traffic_class = _traffic_class(load, scenario)
        job_parts.append(
            JobPart(
                job.name,
                job.first_rank,
                job.ranks,
                with_hosts(load.mapping, own_job),
                settings,
                True,
                traffic_class,
                load.transport,
            )
        )
    return JobSet(
        together.job,
        tuple(job_parts),
        together.jobs,
        together.phases,
        together.turns,
        together.communicator_job,
    )


def background_notes(scenario: Scenario) -> tuple[str, ...]:
    """Return a note for each background load without a stop time: the longest time it may go on."""
    return tuple(
        f"background {load.name} runs as long as the jobs, for at most {approximate_duration(duration_ns(load.load))}"
        for load in scenario.background
        if not load.stop_ns
    )


def _traffic_class(load: BackgroundEntry, scenario: Scenario) -> int:
    return ANY_CLASS if load.dscp < 0 else load.dscp << 2 | scenario.transport.traffic_class & 3
