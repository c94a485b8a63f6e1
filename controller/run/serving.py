"""Runs a serving workload in virtual time: the cluster decides, the engine moves its messages over the described device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from etloop.contract.model.assignment import Assignment
from etloop.contract.model.run import RunEnd
from etloop.controller.plan.serving_jobs import (
    refuse_other_jobs,
    requests_of,
    serving_hosts,
    serving_number,
    serving_part,
)
from etloop.controller.plan.transfer_jobs import planned_pairs
from etloop.controller.run.execute import Carrier, SessionExecution
from etloop.controller.run.execution import RunWatcher
from etloop.controller.run.expectation import flow_network
from etloop.controller.run.prepare import Prepared
from etloop.controller.run.twin import TwinExecution, TwinHosts, described_device
from etloop.controller.session.posts import Posts
from etloop.results.schema.serving import REQUEST_COLUMNS, TTFT_PARTS, Columns, OtherJob, QueueFigures
from etloop.results.serving.figures import ServingRecords
from etloop.results.serving.other_jobs import other_jobs
from etloop.results.serving.run import ServingRun, serving_run
from etloop.traffic.flow_level import FlowLevelSettings, flow_level
from etloop.traffic.twin import TwinSettings, with_seed
from etloop.workload.serving.cluster import Cluster
from etloop.workload.serving.instance import NOT_YET, Progress
from etloop.workload.serving.requests import RequestSet
from etloop.workload.serving.spec import FirstToken, ServingLoad

ORDERED: Final = "the controller orders each message when it begins; its start is later by the slip, which is part of the times"
MODELLED: Final = "compute times are modelled, not measured"


class _Source:
    """A cluster as the engine calls it; see `TransferSource`."""

    def __init__(self, cluster: Cluster, first_rank: int, assignments: Iterable[Assignment]) -> None:
        self._cluster = cluster
        self.last_ns = 0
        ranks = [(first_rank + src, first_rank + dst) for src, dst in cluster.pairs]
        self.pairs = planned_pairs(ranks, assignments)
        self.first_ns = cluster.next_ns or 0

    @property
    def over(self) -> bool:
        return self._cluster.over

    def act(
        self, now_ns: int, arrived: Sequence[tuple[int, int]]
    ) -> tuple[Sequence[tuple[int, int, int]], int | None]:
        started = self._cluster.act(now_ns, arrived)
        self.last_ns = now_ns
        return [(start.pair, start.message_bytes, start.number) for start in started], self._cluster.next_ns


def serve_in_twin(
    prepared: Prepared,
    load: ServingLoad,
    settings: TwinSettings,
    hosts: TwinHosts,
    level: str,
    watcher: RunWatcher,
) -> ServingRun:
    """Run in virtual time at the level "packet" or "flow".

    Raises `ConfigError` without a described device, and `PlanError` for one that the level does not model.
    """
    request_set, checks = requests_of(load), prepared.scenario.verdict.checks
    first_rank = serving_part(prepared.scenario, prepared.plan.parts.jobs).first_rank
    cluster = _cluster(prepared, load, request_set)
    if level == "flow":
        device = described_device(prepared)
        device = replace(device, topology=with_seed(device.topology, settings.seed))
        assignment, network, absent = flow_network(prepared.plan, device)
        source = _Source(cluster, first_rank, (assignment,))
        outcome = flow_level(assignment, network, FlowLevelSettings(limit_ns=settings.limit_ns), source)
        notes = (f"flow level: without {', '.join(absent)}",) if absent else ()
        records = _records(load, request_set, cluster, source.last_ns, notes)
        records = replace(records, jobs=_other_jobs(prepared, outcome.ops, 0))
        return serving_run(records, checks, outcome.failure, level)
    made: list[_Source] = []

    def source_of(assignment: Assignment) -> _Source:
        made.append(_Source(cluster, first_rank, (assignment,)))
        return made[0]

    executed = TwinExecution(settings, hosts, source_of).execute(prepared, "", watcher, None)
    assert executed.twin is not None
    records = _records(load, request_set, cluster, made[0].last_ns, executed.notes)
    records = replace(records, jobs=_other_jobs(prepared, executed.twin.ops, executed.twin.start_ns))
    return serving_run(records, checks, executed.twin.failure, level)


def serve_on_rig(
    prepared: Prepared, load: ServingLoad, lab: str, watcher: RunWatcher, carrier: Carrier | None = None
) -> ServingRun:
    """Run by agents, with real packets: the cluster decides here, and orders every message when it begins.

    Raises `InputError` if the rig, its device or the lab cannot be used, or for other jobs.
    """
    refuse_other_jobs(prepared.scenario)
    request_set, checks = requests_of(load), prepared.scenario.verdict.checks
    cluster = _cluster(prepared, load, request_set)
    made: list[tuple[_Source, Posts]] = []

    def posts_of(assignments: Mapping[str, Assignment]) -> Posts:
        source = _Source(cluster, 0, assignments.values())
        made.append((source, Posts(source, assignments)))
        return made[0][1]

    outcome = SessionExecution(carrier, posts_of).execute(prepared, lab, watcher, None).outcome
    source, posts = made[0]
    records = _records(load, request_set, cluster, source.last_ns, (ORDERED,))
    records = replace(records, late_ns=np.array(posts.late_ns, np.int64))
    failure = "" if outcome.state is RunEnd.DONE else outcome.reason
    return serving_run(records, checks, failure, "rig")


def _cluster(prepared: Prepared, load: ServingLoad, request_set: RequestSet) -> Cluster:
    hosts = serving_hosts(prepared.scenario, prepared.plan.parts.jobs)
    return Cluster(load.model, load.keys, request_set, hosts)


def _other_jobs(prepared: Prepared, ops: NDArray[np.void], start_ns: int) -> tuple[OtherJob, ...]:
    serving, jobs = serving_number(prepared.scenario), prepared.scenario.jobs
    begins_ns = {number: job.start_ns for number, job in enumerate(jobs) if number != serving}
    return other_jobs(prepared.plan.tables, ops, start_ns, begins_ns)


def _records(
    load: ServingLoad, request_set: RequestSet, cluster: Cluster, end_ns: int, notes: tuple[str, ...]
) -> ServingRecords:
    samples, keys = cluster.samples, load.keys
    steps: Columns = {
        "end_ns": np.array(samples.step_end_ns, np.int64),
        "sequences": np.array(samples.step_sequences, np.int64),
        "continuing": np.array(samples.step_continuing, np.int64),
        "gap_ns": np.array(samples.step_gap_ns, np.int64),
        "compute_ns": np.array(samples.step_compute_ns, np.int64),
        "fabric_ns": np.array(samples.step_fabric_ns, np.int64),
    }
    for tally in cluster.tallies:
        tally.settle(end_ns)
    queues = tuple(
        QueueFigures(
            tally.name,
            tally.entered,
            tally.area_ns / max(end_ns, 1),
            tally.most,
            tally.waited_ns / max(tally.left, 1),
        )
        for tally in cluster.tallies
    )
    return ServingRecords(
        requests=request_columns(cluster.progress, keys.first_token),
        steps=steps,
        exchange_ns=np.array(samples.exchange_ns, np.int64),
        exchange_bytes=np.array(samples.exchange_bytes, np.int64),
        queues=queues,
        source=request_set.source,
        model=load.model.name,
        left_out=request_set.failed,
        duration_ns=end_ns,
        ttft_limit_ns=keys.objective.ttft_ns,
        itl_limit_ns=keys.objective.itl_ns,
        prefill_instances=keys.prefill.instances,
        decode_instances=keys.decode.instances,
        notes=(MODELLED, *request_set.notes, *notes),
    )


def request_columns(progress: Sequence[Progress], first_token: FirstToken) -> Columns:
    """Return a row per request that has arrived."""
    rows = [_row(request, first_token) for request in progress]
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(REQUEST_COLUMNS)
    text = {"state", "reason"}
    return {
        name: np.array(column, object if name in text else np.int64)
        for name, column in zip(REQUEST_COLUMNS, columns, strict=True)
    }


def _row(progress: Progress, first_token: FirstToken) -> tuple[object, ...]:
    request = progress.request
    parts = dict.fromkeys(TTFT_PARTS, 0)
    ttft_ns = itl_ns = NOT_YET
    if progress.first_token_ns != NOT_YET:
        ttft_ns = progress.first_token_ns - request.arrival_ns
        parts["memory_wait_ns"] = progress.reserved_ns - request.arrival_ns
        parts["prefill_wait_ns"] = progress.prefill_start_ns - progress.reserved_ns
        parts["prefill_fabric_ns"] = progress.prefill_fabric_ns
        parts["prefill_ns"] = progress.prefill_end_ns - progress.prefill_start_ns - progress.prefill_fabric_ns
        if first_token is FirstToken.DECODE:
            parts["transfer_ns"] = progress.kv_end_ns - progress.prefill_end_ns
            parts["decode_wait_ns"] = progress.decode_start_ns - progress.kv_end_ns
            parts["decode_ns"], parts["decode_fabric_ns"] = progress.decode_ns, progress.decode_fabric_ns
    if progress.generated > 1:
        itl_ns = (progress.last_token_ns - progress.first_token_ns) // (progress.generated - 1)
    return (
        request.number,
        str(progress.state),
        progress.reason,
        progress.prefill,
        progress.decode,
        request.input_tokens,
        request.output_tokens,
        progress.generated,
        progress.cached_prefill_tokens,
        progress.cached_decode_tokens,
        progress.kv_bytes,
        request.arrival_ns,
        progress.reserved_ns,
        progress.prefill_start_ns,
        progress.prefill_end_ns,
        progress.kv_start_ns,
        progress.kv_end_ns,
        progress.decode_start_ns,
        progress.first_token_ns,
        progress.second_token_ns,
        progress.last_token_ns,
        progress.longest_gap_ns,
        *(parts[name] for name in TTFT_PARTS),
        ttft_ns,
        itl_ns,
    )
