"""A serving workload as a job: its ranks, and the pairs of ranks that exchange messages; and its requests.

The ops of its programs describe messages and do not take place by themselves: while the run lasts, `workload.serving.cluster`
decides which messages begin, each as one more use of the SEND and the RECV of its pair.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Final

import numpy as np

from etloop.contract.base.errors import ConfigError, PlanError, Problem
from etloop.controller.inputs.scenario.scenario import Scenario
from etloop.workload.program.writer import ProgramWriter
from etloop.workload.serving.arrivals import DrawnRequests, drawn_requests
from etloop.workload.serving.cluster import Cluster
from etloop.workload.serving.requests import RequestSet, scale, spread
from etloop.workload.serving.spec import MOST_RANK_PAIRS, ServingLoad
from etloop.workload.serving.trace_formats import read_requests
from etloop.workload.trace.program import Job, OpKind, RankProgram

TEMPLATE_BYTES: Final = 1 << 20
"""Size of the planned ops, by which the channels of a pair's messages are chosen."""


@lru_cache(maxsize=1)
def requests_of(load: ServingLoad) -> RequestSet:
    """Return the requests of a workload. Raises `ConfigError` for a trace that cannot be used, with its line."""
    requests = load.requests
    if isinstance(requests, DrawnRequests):
        return drawn_requests(requests)
    request_set = read_requests(load.directory / requests.trace, load.where)
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
    writers = [ProgramWriter() for _ in range(load.ranks)]
    slots: list[dict[int, int]] = [{} for _ in range(load.ranks)]
    for src, dst in cluster.pairs:
        send_slot = slots[src].setdefault(dst, len(slots[src]))
        recv_slot = slots[dst].setdefault(src, len(slots[dst]))
        writers[src].add(OpKind.SEND, -1, send_slot, TEMPLATE_BYTES)
        writers[dst].add(OpKind.RECV, -1, recv_slot, TEMPLATE_BYTES)
    programs = tuple(writer.program() for writer in writers)
    ranks = tuple(
        RankProgram(rank, rank, (), tuple(slots[rank]), np.arange(len(program), dtype=np.uint64))
        for rank, program in enumerate(programs)
    )
    source = f"serving {load.model.name}, {request_set.source}"
    return Job(source, (), programs, ranks, "data", {"data": 0}, ())


def serving_load(scenario: Scenario) -> ServingLoad | None:
    """Return the serving workload of a scenario; None if it has none. Raises `PlanError` next to other jobs."""
    loads = [job.source.load for job in scenario.jobs]
    serving = [load for load in loads if isinstance(load, ServingLoad)]
    if not serving:
        return None
    if len(loads) > 1:
        problem = "a serving workload cannot run with other jobs"
        raise PlanError(Problem("jobs", problem, "write it as workload, and other traffic as background"))
    if scenario.plan_iterations > 1:
        problem = f"{scenario.plan_iterations} iterations of a serving workload"
        raise PlanError(
            Problem("iterations", problem, "leave it out; requests.count sets the length of the run")
        )
    return serving[0]


def redrawn(load: ServingLoad, seed_offset: int) -> ServingLoad:
    """Return a workload with other drawn requests; the same for a trace."""
    requests = load.requests
    if not isinstance(requests, DrawnRequests):
        return load
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
            Problem("workload.serving", problem, "use etloop twin, run or sweep, or etloop.serve")
        )
