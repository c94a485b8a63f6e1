"""Key figures of a run: job completion time, time and bandwidth per kind of collective, slip, transport counters.

Decides every formula of summary.json (docs/metrics.md derives them). Conservation is judged in `checks.py`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from etloop.contract.model.counters import AgentObject
from etloop.contract.model.run import PlanTables, RunOutcome
from etloop.results.measure.checks import check_run
from etloop.results.measure.collectives import CollectiveRows, PlannedGroups, group_ops, measure_groups
from etloop.results.measure.iterations import counted_iterations, measure_iterations
from etloop.results.measure.job_shares import background_ranks, counted_ops, job_shares
from etloop.results.measure.joined import MeasuredFlows, MeasuredOps, match_flows, match_ops
from etloop.results.measure.timeline import missed_events
from etloop.results.schema.kinds import CONVENTIONS, bus_factor
from etloop.results.schema.summary import (
    MOST_BASELINES,
    SUMMARY_SCHEMA,
    TRANSPORT_COUNTERS,
    AgentSummary,
    Baselines,
    BaselineSummary,
    ByteCounts,
    ClockSummary,
    IterationSummary,
    JobSummary,
    KindSummary,
    OpCounts,
    SlipSummary,
    StreamSummary,
    Summary,
    WorkloadSummary,
)
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Measurement:
    """A run's records joined with its plan, and the figures that follow."""

    ops: MeasuredOps
    """All that was recorded."""
    flows: MeasuredFlows
    groups: PlannedGroups
    collectives: CollectiveRows
    """Likewise."""
    job_ops: MeasuredOps
    """Of the jobs: without background and what stands between jobs (`job_shares`)."""
    job_collectives: CollectiveRows
    summary: Summary


def measure(
    outcome: RunOutcome, tables: PlanTables, connection_rows: Mapping[str, NDArray[np.int32]]
) -> Measurement:
    """Everything that follows from the records of a run, whether it finished or not."""
    ops = match_ops(outcome, tables)
    flows = match_flows(outcome, tables, connection_rows)
    groups = group_ops(tables)
    everything = measure_groups(ops, groups)
    counted = counted_ops(tables)
    all_ops, ops = ops, ops.only(counted[ops.plan_row])
    collectives = measure_groups(ops, groups) if len(ops) < len(all_ops) else everything
    ops_per_iteration = int(counted.sum())
    planned = ops_per_iteration * tables.iterations
    per_iteration = measure_iterations(ops, ops_per_iteration)
    summary = Summary(
        schema=SUMMARY_SCHEMA,
        run_id=outcome.run_id,
        state=outcome.state,
        reason=outcome.reason,
        started_at=outcome.started_at,
        workload=_workload(tables),
        ops=OpCounts(planned=planned, recorded=len(ops), missing=planned - len(ops)),
        job=_job(per_iteration, complete=len(ops) == planned),
        kinds=_kinds(tables, groups, collectives),
        baselines=_baselines(tables, groups, collectives),
        slip=_slip(ops),
        bytes=_bytes(tables, ops, counted),
        transport=_transport(
            outcome, flows.records[~background_ranks(tables)[tables.connections.src_rank[flows.connection]]]
        ),
        clock=_clock(outcome),
        checks=check_run(outcome, tables, all_ops, flows),
        agents=_agents(outcome, tables, ops),
        degraded=(
            *(f"{agent.agent}: {text}" for agent in outcome.agents for text in agent.degraded),
            *missed_events(outcome.events),
        ),
        notes=tables.notes,
        jobs=job_shares(all_ops, tables),
        streams=_streams(outcome),
        timeline=outcome.events,
        overload_frames=outcome.overload_frames,
        run_nonce=tables.run_nonce,
    )
    return Measurement(all_ops, flows, groups, everything, ops, collectives, summary)


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


def workload_digest(tables: PlanTables) -> str:
    """Return what tells jobs apart by what they communicate, before scaling: 16 hexadecimal digits."""
    ops = tables.ops
    hashed = hashlib.sha256(repr(tables.communicators).encode())
    for column in (
        ops.rank,
        ops.node_id,
        ops.kind,
        ops.collective,
        ops.communicator,
        ops.peer,
        ops.trace_bytes,
    ):
        hashed.update(np.ascontiguousarray(column).tobytes())
    return hashed.hexdigest()[:16]


def nearest_rank(ordered: NDArray[np.int64], percent: int) -> int:
    """The smallest value that at least `percent` % of the values do not exceed; `ordered` ascending, not empty."""
    assert 0 < percent <= 100
    return int(ordered[-(-len(ordered) * percent // 100) - 1])


def _job(per_iteration: tuple[IterationSummary, ...], complete: bool) -> JobSummary:
    start_ns = min((iteration.start_ns for iteration in per_iteration), default=None)
    end_ns = max((iteration.end_ns for iteration in per_iteration), default=None)
    whole = [one.jct_ns for one in counted_iterations(per_iteration, 0)]
    return JobSummary(
        start_ns=start_ns,
        end_ns=end_ns,
        jct_ns=None if end_ns is None else max(end_ns, 0),
        complete=complete,
        iteration_jct_min_ns=min(whole, default=None),
        iteration_jct_avg_ns=sum(whole) // len(whole) if whole else None,
        iteration_jct_max_ns=max(whole, default=None),
        per_iteration=per_iteration,
    )


def _kinds(tables: PlanTables, groups: PlannedGroups, rows: CollectiveRows) -> tuple[KindSummary, ...]:
    identity = np.stack([groups.kind, groups.algorithm, groups.ranks], axis=1)[rows.group]
    unique, member = np.unique(identity, axis=0, return_inverse=True)
    member = member.reshape(-1)
    return tuple(
        _kind(tables, groups, rows, np.flatnonzero(member == index), *map(int, unique[index]))
        for index in range(len(unique))
    )


def _kind(
    tables: PlanTables,
    groups: PlannedGroups,
    rows: CollectiveRows,
    selected: NDArray[np.int64],
    kind: int,
    algorithm: int,
    ranks: int,
) -> KindSummary:
    whole = selected[rows.complete[selected]]
    time_ns = np.sort(rows.time_ns[whole])
    skew_ns = np.sort(rows.skew_ns[whole])
    size_bytes, total_ns = int(groups.size_bytes[rows.group[whole]].sum()), int(time_ns.sum())
    joined_ns = total_ns - int(skew_ns.sum())
    factor = float(bus_factor(np.array([kind]), np.array([ranks]))[0])
    sent_bytes, fabric_bytes = int(rows.sent_bytes[whole].sum()), int(rows.fabric_bytes[whole].sum())
    algbw = _rate(size_bytes, total_ns)
    joined_algbw = _rate(size_bytes, joined_ns)
    measured = len(whole) > 0
    return KindSummary(
        kind=CONVENTIONS[kind].name,
        algorithm=tables.algorithms[algorithm] if algorithm >= 0 else "",
        ranks=ranks,
        count=len(whole),
        incomplete=len(selected) - len(whole),
        size_bytes=size_bytes,
        sent_bytes=sent_bytes,
        fabric_bytes=fabric_bytes,
        fabric_share=_share(fabric_bytes, sent_bytes),
        messages=int(rows.messages[whole].sum()),
        time_min_ns=int(time_ns[0]) if measured else None,
        time_avg_ns=total_ns // len(whole) if measured else None,
        time_p50_ns=nearest_rank(time_ns, 50) if measured else None,
        time_p99_ns=nearest_rank(time_ns, 99) if measured else None,
        time_max_ns=int(time_ns[-1]) if measured else None,
        skew_p50_ns=nearest_rank(skew_ns, 50) if measured else None,
        skew_max_ns=int(skew_ns[-1]) if measured else None,
        algbw_bytes_per_s=algbw,
        busbw_bytes_per_s=None if algbw is None else algbw * factor,
        joined_busbw_bytes_per_s=None if joined_algbw is None else joined_algbw * factor,
    )


def _compared(groups: PlannedGroups, rows: CollectiveRows) -> NDArray[np.int64]:
    """Groups that have a baseline and completed at least once."""
    return np.unique(rows.group[rows.complete & (groups.recorded_ns[rows.group] >= 0)])


def _baselines(tables: PlanTables, groups: PlannedGroups, rows: CollectiveRows) -> Baselines:
    found = []
    compared = _compared(groups, rows)
    for group in compared[:MOST_BASELINES].tolist():
        joined_ns = np.sort(rows.joined_ns[rows.complete & (rows.group == group)])
        communicator = int(groups.communicator[group])
        found.append(
            BaselineSummary(
                kind=CONVENTIONS[int(groups.kind[group])].name,
                communicator=tables.communicators[communicator][0]
                if communicator >= 0
                else f"{groups.src_rank[group]} -> {groups.dst_rank[group]}",
                sequence=int(groups.sequence[group]),
                size_bytes=int(groups.size_bytes[group]),
                count=len(joined_ns),
                joined_min_ns=int(joined_ns[0]),
                joined_p50_ns=nearest_rank(joined_ns, 50),
                recorded_ns=int(groups.recorded_ns[group]),
                ranks=int(groups.ranks[group]),
                recorded_ranks=int(groups.recorded_ranks[group]),
            )
        )
    return Baselines(len(compared), tuple(found))


def _rate(size_bytes: int, time_ns: int) -> float | None:
    """Bytes per second, or None where there were no bytes or no time."""
    return size_bytes * 1e9 / time_ns if size_bytes > 0 and time_ns > 0 else None


def _slip(ops: MeasuredOps) -> SlipSummary | None:
    if not len(ops):
        return None
    slip_ns = np.sort(ops.records["issued_ns"] - ops.records["intended_ns"])
    return SlipSummary(
        ops=len(slip_ns),
        p50_ns=nearest_rank(slip_ns, 50),
        p99_ns=nearest_rank(slip_ns, 99),
        max_ns=int(slip_ns[-1]),
    )


def _share(part_bytes: int, whole_bytes: int) -> float | None:
    return part_bytes / whole_bytes if whole_bytes else None


def _bytes(tables: PlanTables, ops: MeasuredOps, counted: NDArray[np.bool_]) -> ByteCounts:
    plan, records = tables.ops, ops.records
    wire_tx_bytes, local_tx_bytes = int(records["wire_tx_bytes"].sum()), int(records["local_tx_bytes"].sum())
    return ByteCounts(
        wire_tx_bytes=wire_tx_bytes,
        wire_rx_bytes=int(records["wire_rx_bytes"].sum()),
        local_tx_bytes=local_tx_bytes,
        local_rx_bytes=int(records["local_rx_bytes"].sum()),
        planned_wire_tx_bytes=int(plan.wire_tx_bytes[counted].sum()) * tables.iterations,
        planned_local_tx_bytes=int(plan.local_tx_bytes[counted].sum()) * tables.iterations,
        fabric_share=_share(wire_tx_bytes, wire_tx_bytes + local_tx_bytes),
        messages=int(records["tx_messages"].sum()),
        message_bytes=int(plan.message_bytes[ops.plan_row].sum()),
        trace_bytes=int(plan.trace_bytes[ops.plan_row].sum()),
    )


def _transport(outcome: RunOutcome, flows: NDArray[np.void]) -> dict[str, int]:
    ports = [agent.ports for agent in outcome.agents]
    return {
        name: sum(int(rows[name].sum()) for rows in records)
        for owner, records in ((AgentObject.QUEUE_PAIR, [flows]), (AgentObject.PORT, ports))
        for name in TRANSPORT_COUNTERS[owner]
    }


def _streams(outcome: RunOutcome) -> tuple[StreamSummary, ...]:
    ends = [count for agent in outcome.agents for count in agent.streams]
    found = []
    for name in dict.fromkeys(count.name for count in ends):
        sent = next((count for count in ends if count.name == name and count.sends), None)
        came = next((count for count in ends if count.name == name and not count.sends), None)
        found.append(
            StreamSummary(
                name=name,
                sent_datagrams=sent.datagrams if sent else None,
                sent_bytes=sent.payload_bytes if sent else None,
                left_out=sent.left_out if sent else None,
                received_datagrams=came.datagrams if came else None,
                received_bytes=came.payload_bytes if came else None,
            )
        )
    return tuple(found)


def _clock(outcome: RunOutcome) -> ClockSummary:
    """A time difference between two agents is wrong by at most the sum of their bounds; on one agent it is exact."""
    errors = sorted((agent.clock_error_ns for agent in outcome.agents), reverse=True)
    return ClockSummary(
        error_max_ns=errors[0] if errors else 0,
        between_agents_error_ns=sum(errors[:2]) if len(errors) > 1 else 0,
    )


def _agents(outcome: RunOutcome, tables: PlanTables, ops: MeasuredOps) -> tuple[AgentSummary, ...]:
    recorded = np.bincount(ops.agent, minlength=len(outcome.agents)).tolist()
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
