"""Summary figures of a run: job completion time, time and bandwidth per kind of collective, slip, transport counters.

Decides every formula of summary.json (docs/metrics.md derives them). `checks.py` decides whether bytes and records add
up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.counters import AgentObject
from etloop.contract.model.run import PlanTables, RunOutcome
from etloop.results.measure.collectives import (
    CollectiveRows,
    PlannedGroups,
    group_ops,
    joined_rows,
    measure_groups,
)
from etloop.results.measure.consistency import BYTE_COLUMNS, ConsistencyTally
from etloop.results.measure.distribution import Distribution
from etloop.results.measure.iterations import list_counted_iterations, measure_iterations
from etloop.results.measure.job_shares import JobTally, PassRows, background_ranks, mark_counted_ops
from etloop.results.measure.joined import (
    NO_OPS,
    MeasuredFlows,
    MeasuredOps,
    OpBlock,
    join_ops,
    match_flows,
    op_blocks,
)
from etloop.results.measure.kind_tally import KindTally
from etloop.results.measure.timeline import missed_events
from etloop.results.measure.workload_digest import workload_digest
from etloop.results.schema.summary import (
    SUMMARY_SCHEMA,
    TRANSPORT_COUNTERS,
    AgentSummary,
    ByteCounts,
    ClockSummary,
    IterationSummary,
    JobSummary,
    OpCounts,
    SlipSummary,
    StreamSummary,
    StreamWord,
    Summary,
    WorkloadSummary,
)


@dataclass(frozen=True, slots=True, eq=False)
class Measurement:
    """A run's records joined with its plan, and the figures that follow. The summary covers all records."""

    ops: MeasuredOps
    """All recorded ops, or those of the first complete blocks of iterations (see `left_out`)."""
    flows: MeasuredFlows
    groups: PlannedGroups
    collectives: CollectiveRows
    """Collectives of `ops`."""
    job_ops: MeasuredOps
    """Ops of the jobs, without background and without barriers between phases (`job_shares`)."""
    job_collectives: CollectiveRows
    passes: PassRows | None
    """Passes of all jobs in a run of several jobs; else None."""
    summary: Summary
    left_out: int = 0
    """Number of recorded ops that are not in `ops`."""
    iterations: int = 0
    """Number of iterations that `ops` covers, from the first one on."""


class BlockTaker(Protocol):
    """Receives the ops of a run block by block, in the order of their iterations."""

    def take(self, ops: MeasuredOps, groups: PlannedGroups, collectives: CollectiveRows) -> None:
        """Take the ops of some iterations and their collectives."""


def measure(
    outcome: RunOutcome,
    tables: PlanTables,
    connection_rows: Mapping[str, NDArray[np.int32]],
    most_ops: int | None = None,
    taker: BlockTaker | None = None,
) -> Measurement:
    """Return the measurement of a run, whether it finished or not.

    `most_ops`: limit of ops kept in memory (None: no limit); whole blocks of iterations are kept, at least one. `taker`
    receives all ops. Raises `OSError` if records that are spooled to disk cannot be read, or if `taker` fails.
    """
    flows = match_flows(outcome, tables, connection_rows)
    groups = group_ops(tables)
    tally = _Tally(outcome, tables, groups)
    kept_blocks: list[tuple[MeasuredOps, CollectiveRows, MeasuredOps, CollectiveRows]] = []
    kept_ops = iterations = 0
    is_room = True
    for block in op_blocks(outcome, tables):
        all_collectives = measure_groups(block.ops, groups)
        job_ops = block.ops.only(tally.counted[block.ops.plan_row])
        collectives = measure_groups(job_ops, groups) if len(job_ops) < len(block.ops) else all_collectives
        tally.take(block, job_ops, collectives)
        if taker is not None:
            taker.take(block.ops, groups, all_collectives)
        is_room = is_room and (most_ops is None or not kept_blocks or kept_ops + len(block.ops) <= most_ops)
        if is_room:
            kept_blocks.append((block.ops, all_collectives, job_ops, collectives))
            kept_ops += len(block.ops)
            iterations = block.iterations.stop
        del block, all_collectives, job_ops, collectives  # Free the block before the next one is loaded.
    if not kept_blocks:
        no_collectives = measure_groups(NO_OPS, groups)
        kept_blocks.append((NO_OPS, no_collectives, NO_OPS, no_collectives))
    all_ops, all_rows, ops, rows = zip(*kept_blocks, strict=True)
    return Measurement(
        join_ops(all_ops),
        flows,
        groups,
        joined_rows(all_rows),
        join_ops(ops),
        joined_rows(rows),
        tally.jobs.passes(),
        tally.summary(flows),
        left_out=tally.recorded - kept_ops,
        iterations=iterations,
    )


class _Tally:
    """Inputs of the summary, accumulated block by block."""

    def __init__(self, outcome: RunOutcome, tables: PlanTables, groups: PlannedGroups) -> None:
        self.counted = mark_counted_ops(tables)
        """Whether each planned op belongs to a job (bool)."""
        self.jobs = JobTally(tables)
        self.recorded = 0
        self._outcome = outcome
        self._tables = tables
        self._kinds = KindTally(tables, groups)
        self._checks = ConsistencyTally(outcome, tables)
        self._slip = Distribution()
        self._iterations: list[IterationSummary] = []
        self._ops_per_iteration = int(self.counted.sum())
        self._ended_ns = 0
        self._job_ops = 0
        self._by_agent = np.zeros(len(outcome.agents), np.int64)
        self._sums: Counter[str] = Counter()

    def take(self, block: OpBlock, job_ops: MeasuredOps, collectives: CollectiveRows) -> None:
        """Add a block; `job_ops` and `collectives` are its part that belongs to jobs."""
        records, planned = job_ops.records, self._tables.ops
        self.recorded += len(block.ops)
        self._job_ops += len(job_ops)
        self.jobs.take(block.ops)
        self._checks.take(block)
        self._kinds.take(collectives)
        self._slip.add(records["issued_ns"] - records["intended_ns"])
        iterations = measure_iterations(job_ops, self._ops_per_iteration, self._ended_ns)
        self._iterations += iterations
        self._ended_ns = max((iteration.end_ns for iteration in iterations), default=self._ended_ns)
        self._ended_ns = max(self._ended_ns, 0)
        self._by_agent += np.bincount(job_ops.agent, minlength=len(self._by_agent))
        for name in (*BYTE_COLUMNS, "tx_messages"):
            self._sums[name] += int(records[name].sum(dtype=np.int64))
        for name in ("message_bytes", "trace_bytes"):
            self._sums[name] += int(getattr(planned, name)[job_ops.plan_row].sum())

    def summary(self, flows: MeasuredFlows) -> Summary:
        """Return the figures of all blocks."""
        outcome, tables = self._outcome, self._tables
        planned = self._ops_per_iteration * tables.iterations
        is_of_job = ~background_ranks(tables)[tables.connections.src_rank[flows.connection]]
        return Summary(
            schema=SUMMARY_SCHEMA,
            run_id=outcome.run_id,
            state=outcome.state,
            reason=outcome.reason,
            started_at=outcome.started_at,
            workload=_workload(tables),
            ops=OpCounts(planned=planned, recorded=self._job_ops, missing=planned - self._job_ops),
            job=_job(tuple(self._iterations), complete=self._job_ops == planned),
            kinds=self._kinds.kinds(),
            baselines=self._kinds.baselines(),
            slip=_slip(self._slip),
            bytes=self._bytes(),
            transport=_transport(outcome, flows.records[is_of_job]),
            clock=_clock(outcome),
            checks=self._checks.checks(flows),
            agents=_agents(outcome, tables, self._by_agent.tolist()),
            degraded=(
                *(f"{agent.agent}: {text}" for agent in outcome.agents for text in agent.degraded),
                *missed_events(outcome.events),
                *(
                    f"frames that the soft switch lost by itself are unknown: {why}"
                    for why in (outcome.overload_unread,)
                    if why
                ),
            ),
            notes=tables.notes,
            jobs=self.jobs.shares(),
            streams=_streams(outcome),
            timeline=outcome.events,
            overload_frames=outcome.overload_frames,
            run_nonce=tables.run_nonce,
        )

    def _bytes(self) -> ByteCounts:
        plan, sums, iterations = self._tables.ops, self._sums, self._tables.iterations
        wire_tx_bytes, local_tx_bytes = sums["wire_tx_bytes"], sums["local_tx_bytes"]
        return ByteCounts(
            wire_tx_bytes=wire_tx_bytes,
            wire_rx_bytes=sums["wire_rx_bytes"],
            local_tx_bytes=local_tx_bytes,
            local_rx_bytes=sums["local_rx_bytes"],
            planned_wire_tx_bytes=int(plan.wire_tx_bytes[self.counted].sum()) * iterations,
            planned_local_tx_bytes=int(plan.local_tx_bytes[self.counted].sum()) * iterations,
            fabric_share=_share(wire_tx_bytes, wire_tx_bytes + local_tx_bytes),
            messages=sums["tx_messages"],
            message_bytes=sums["message_bytes"],
            trace_bytes=sums["trace_bytes"],
        )


def _workload(tables: PlanTables) -> WorkloadSummary:
    return WorkloadSummary(
        source=tables.source,
        ranks=len(tables.rank_agent),
        iterations=tables.iterations,
        policy=tables.policy,
        edges=dict(tables.edges),
        bytes_scale=tables.bytes_scale,
        time_scale=tables.time_scale,
        shaping=tables.shaping,
        choices=tables.choices,
        digest=workload_digest(tables),
    )


def _job(per_iteration: tuple[IterationSummary, ...], complete: bool) -> JobSummary:
    """Return the figures of the job; minimum, average and maximum are over complete iterations."""
    start_ns = min((iteration.start_ns for iteration in per_iteration), default=None)
    end_ns = max((iteration.end_ns for iteration in per_iteration), default=None)
    complete_jct_ns = [iteration.jct_ns for iteration in list_counted_iterations(per_iteration, 0)]
    return JobSummary(
        start_ns=start_ns,
        end_ns=end_ns,
        jct_ns=None if end_ns is None else max(end_ns, 0),
        complete=complete,
        iteration_jct_min_ns=min(complete_jct_ns, default=None),
        iteration_jct_avg_ns=sum(complete_jct_ns) // len(complete_jct_ns) if complete_jct_ns else None,
        iteration_jct_max_ns=max(complete_jct_ns, default=None),
        per_iteration=per_iteration,
    )


def _slip(slip: Distribution) -> SlipSummary | None:
    if not slip.count:
        return None
    return SlipSummary(
        ops=slip.count, p50_ns=slip.percentile(50), p99_ns=slip.percentile(99), max_ns=slip.greatest
    )


def _share(part_bytes: int, whole_bytes: int) -> float | None:
    return part_bytes / whole_bytes if whole_bytes else None


def _transport(outcome: RunOutcome, flows: NDArray[np.void]) -> dict[str, int]:
    """Return the sums of the transport counters over `flows` and all ports, by name."""
    ports = [agent.ports for agent in outcome.agents]
    return {
        name: sum(int(rows[name].sum()) for rows in records)
        for owner, records in ((AgentObject.QUEUE_PAIR, [flows]), (AgentObject.PORT, ports))
        for name in TRANSPORT_COUNTERS[owner]
    }


def _streams(outcome: RunOutcome) -> tuple[StreamSummary, ...]:
    """Return the streams of datagrams, joining the counts of both ends by name."""
    ends = [count for agent in outcome.agents for count in agent.streams]
    streams = []
    for name in dict.fromkeys(count.name for count in ends):
        sent = next((count for count in ends if count.name == name and count.sends), None)
        received = next((count for count in ends if count.name == name and not count.sends), None)
        streams.append(
            StreamSummary(
                name=name,
                sent_datagrams=sent.datagrams if sent else None,
                sent_bytes=sent.payload_bytes if sent else None,
                left_out=sent.left_out if sent else None,
                received_datagrams=received.datagrams if received else None,
                received_bytes=received.payload_bytes if received else None,
                form=StreamWord((sent or received or ends[0]).form.name.lower()),
            )
        )
    return tuple(streams)


def _clock(outcome: RunOutcome) -> ClockSummary:
    """Return the accuracy of the agents' clocks.

    A time difference between two agents is wrong by at most the sum of their bounds; on one agent it is exact.
    """
    errors = sorted((agent.clock_error_ns for agent in outcome.agents), reverse=True)
    return ClockSummary(
        error_max_ns=errors[0] if errors else 0,
        between_agents_error_ns=sum(errors[:2]) if len(errors) > 1 else 0,
    )


def _agents(outcome: RunOutcome, tables: PlanTables, recorded: Sequence[int]) -> tuple[AgentSummary, ...]:
    """Return the agents' parts; `recorded` has the ops of the jobs by agent."""
    return tuple(
        AgentSummary(
            name=agent.agent,
            host=agent.host,
            complete=agent.complete,
            ranks=tables.rank_agent.count(agent.agent),
            ops_recorded=recorded[index],
            clock_offset_ns=agent.clock_offset_ns,
            clock_error_ns=agent.clock_error_ns,
            degraded=agent.degraded,
            versions=dict(agent.versions),
            capabilities=agent.capabilities,
        )
        for index, agent in enumerate(outcome.agents)
    )
