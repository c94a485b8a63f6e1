"""A serving workload as a job: its ranks, and the pairs of ranks that exchange messages; and its requests.

While the run lasts, `workload.serving.cluster` decides which messages begin (`transfer_jobs`).
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from etloop.contract.base.errors import ConfigError, PlanError, Problem
from etloop.contract.base.units import NS_PER_S
from etloop.controller.inputs.scenario.scenario import Scenario
from etloop.controller.plan.job_set import JobPart, JobSet
from etloop.controller.plan.transfer_jobs import transfer_job
from etloop.workload.serving.arrivals import DrawnRequests, drawn_requests
from etloop.workload.serving.client_profiles import draw_client_requests
from etloop.workload.serving.cluster import Cluster
from etloop.workload.serving.requests import LATEST_NS, RequestSet, scale, since, spread
from etloop.workload.serving.spec import MOST_RANK_PAIRS, ServingLoad
from etloop.workload.serving.trace_formats import read_requests
from etloop.workload.trace.program import Job


@lru_cache(maxsize=1)
def requests_of(load: ServingLoad) -> RequestSet:
    """Return the requests of a workload. Raises `ConfigError` for a trace that cannot be used, with its line."""
    request_set = _unchecked_requests(load)
    if (last_ns := request_set.requests[-1].arrival_ns) > LATEST_NS:
        problem = f"the last request arrives after {last_ns / 1e9:.3g} s"
        remedy = f"keep arrivals within {LATEST_NS // NS_PER_S} s: a higher rate, fewer requests, or a smaller time"
        raise ConfigError(Problem(load.where, problem, remedy))
    return request_set


def _unchecked_requests(load: ServingLoad) -> RequestSet:
    requests = load.requests
    if isinstance(requests, DrawnRequests):
        return drawn_requests(requests)
    path = load.directory / requests.trace
    if path.is_dir():
        request_set = draw_client_requests(path, requests.seed)
    else:
        request_set = read_requests(path, load.where)
    request_set = since(request_set, requests.start_ns, load.where)
    if requests.spread_ns:
        request_set = spread(request_set, requests.spread_ns)
    return scale(request_set, requests.time, requests.tokens_divisor, requests.limit)


def serving_job(load: ServingLoad) -> Job:
    """Return the job of a serving workload. Raises `ConfigError` as `requests_of`, or if it has too many pairs of ranks."""
    request_set = requests_of(load)
    cluster = Cluster(load.model, load.keys, RequestSet((), request_set.block_tokens, ""), range(load.ranks))
    if len(cluster.pairs) > MOST_RANK_PAIRS:
        problem = f"{len(cluster.pairs)} pairs of GPUs exchange messages"
        remedy = f"keep them within {MOST_RANK_PAIRS}: fewer instances, or a smaller ep"
        raise ConfigError(Problem(load.where, problem, remedy))
    return transfer_job(cluster.pairs, load.ranks, f"serving {load.model.name}, {request_set.source}")


def serving_number(scenario: Scenario) -> int | None:
    """Return the number of the job that is a serving workload; None without one. Raises `PlanError` for unsupported mixes."""
    numbers = [row for row, job in enumerate(scenario.jobs) if isinstance(job.source.load, ServingLoad)]
    if not numbers:
        return None
    entry, problem = scenario.jobs[numbers[0]], None
    if len(numbers) > 1:
        remedy = "keep one of them; instances of both pools share one workload"
        problem = Problem("jobs", f"{len(numbers)} serving workloads", remedy)
    elif scenario.rounds:
        remedy = "remove rounds, and compare with a run of the other jobs alone"
        problem = Problem("rounds", "a serving workload has no phases", remedy)
    elif entry.passes > 1:
        remedy = "leave it out; requests.count sets the length of the run"
        problem = Problem("iterations", f"{entry.passes} iterations of a serving workload", remedy)
    elif entry.start_ns:
        remedy = "remove it; arrivals begin with the run, and other jobs may start later"
        problem = Problem("start", "a serving workload cannot start later", remedy)
    if problem is not None:
        raise PlanError(problem)
    return numbers[0]


def serving_load(scenario: Scenario) -> ServingLoad | None:
    """Return the serving workload of a scenario; None if it has none. Raises as `serving_number`."""
    number = serving_number(scenario)
    load = None if number is None else scenario.jobs[number].source.load
    assert load is None or isinstance(load, ServingLoad)
    return load


def serving_part(scenario: Scenario, jobs: JobSet) -> JobPart:
    """Return the part of a plan's jobs that is the serving workload of its scenario."""
    number = serving_number(scenario)
    assert number is not None
    return jobs.parts[number]


def serving_hosts(scenario: Scenario, jobs: JobSet) -> tuple[int, ...]:
    """Return the host of every rank of the serving workload."""
    part = serving_part(scenario, jobs)
    return jobs.hosts()[part.first_rank : part.first_rank + part.ranks]


def refuse_other_jobs(scenario: Scenario) -> None:
    """Raise `PlanError` for jobs next to a serving workload on agents, which begin the messages of one workload alone."""
    if len(scenario.jobs) > 1:
        problem = "agents cannot run a serving workload with other jobs"
        raise PlanError(Problem("jobs", problem, "use etloop twin, or write other traffic as background"))


def redrawn(load: ServingLoad, seed_offset: int) -> ServingLoad:
    """Return a workload with other drawn requests; the same for a trace of recorded ones."""
    requests = load.requests
    return replace(load, requests=replace(requests, seed=requests.seed + seed_offset))


def required_load(scenario: Scenario) -> ServingLoad:
    """Return the serving workload of a scenario. Raises `ConfigError` if it has none, otherwise as `serving_load`."""
    load = serving_load(scenario)
    if load is None:
        raise ConfigError(
            Problem("workload", "is not one of serving", "write workload.serving (docs/serving.md)")
        )
    return load


def refuse_serving(scenario: Scenario) -> None:
    """Raise `PlanError` for a scenario with a serving workload, where only runs of programs known in advance are written."""
    if serving_load(scenario) is not None:
        problem = "a serving workload has results of its own, which are not written here"
        raise PlanError(
            Problem("workload.serving", problem, "use etloop twin, etloop run, etloop sweep, or etloop.serve")
        )
