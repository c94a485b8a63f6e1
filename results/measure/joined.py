"""Joins measurements with the plan: the planned op of every record, the planned queue pair of every counter.

Decides which records count. A record is refused and counted if the plan does not have it, if it comes from an agent that
does not run the rank, or if its times are impossible; of repeated records the first one counts. Ops without a record get
none. Times in the result are on the run's clock (ns since its planned start).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.records import FLOW_RECORD, OP_RECORD

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.contract.model.run import AgentRecords, PlannedConnections, PlanTables, RunOutcome

TIME_LIMIT_NS: Final = 1 << 62
"""Upper bound of a plausible clock value (146 years); larger values could overflow differences."""

TIME_COLUMNS: Final = ("intended_ns", "issued_ns", "first_tx_ns", "completed_ns", "acknowledged_ns")


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredOps:
    """One row per completed op of one iteration, sorted by (iteration, rank, op)."""

    records: NDArray[np.void]
    """OP_RECORD rows, times on the run's clock; `first_tx_ns` and `acknowledged_ns` are valid only where `has_first_tx`."""
    has_first_tx: NDArray[np.bool_]
    plan_row: NDArray[np.int64]
    """Row of `PlanTables.ops`."""
    agent: NDArray[np.int64]
    """Index into `RunOutcome.agents`."""
    unknown: int
    """Refused records: not in the plan, not this agent's, or with impossible times."""
    repeated: int
    """Refused records: the op was already recorded for that iteration."""

    def __len__(self) -> int:
        return len(self.records)

    def only(self, rows: NDArray[np.bool_]) -> MeasuredOps:
        """Return the ops selected by `rows` (bool), in their order, with 0 refused records."""
        if rows.all():
            return self
        return MeasuredOps(
            self.records[rows], self.has_first_tx[rows], self.plan_row[rows], self.agent[rows], 0, 0
        )


NO_OPS: Final = MeasuredOps(
    np.empty(0, OP_RECORD), np.empty(0, np.bool_), np.empty(0, np.int64), np.empty(0, np.int64), 0, 0
)


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredFlows:
    """One row per queue pair end, sorted by (connection, queue pair, sender before receiver)."""

    records: NDArray[np.void]
    connection: NDArray[np.int64]
    """Row of `PlanTables.connections`."""
    queue_pair: NDArray[np.int64]
    """Row of the queue pair columns of `PlanTables.connections`."""
    agent: NDArray[np.int64]
    unknown: int
    """Refused counters: the connection or queue pair is not in the plan, or not this end's."""
    repeated: int


@dataclass(frozen=True, slots=True, eq=False)
class OpBlock:
    """All recorded ops of some iterations."""

    ops: MeasuredOps
    iterations: range


def op_blocks(outcome: RunOutcome, tables: PlanTables) -> Iterator[OpBlock]:
    """Yield the recorded ops of `outcome` with their planned ops, a block of iterations at a time, in their order.

    Only one block is in memory at a time. Raises `OSError` if records that are spooled to disk cannot be read.
    """
    spooled = outcome.kept_ops
    if spooled is None:
        yield OpBlock(match_ops(outcome, tables), range(tables.iterations))
        return
    iterations_per_part = spooled.iterations_each
    for number in range(spooled.parts):
        iterations = range(
            number * iterations_per_part, min((number + 1) * iterations_per_part, tables.iterations)
        )
        yield OpBlock(_match_part(outcome, tables, spooled.part(number)), iterations)


def _match_part(outcome: RunOutcome, tables: PlanTables, part: Sequence[NDArray[np.void]]) -> MeasuredOps:
    """Return the ops of one spooled part, one array of OP_RECORD per agent."""
    agents = tuple(replace(agent, ops=ops) for agent, ops in zip(outcome.agents, part, strict=True))
    return match_ops(replace(outcome, agents=agents, kept_ops=None), tables, own=True)


def join_ops(parts: Sequence[MeasuredOps]) -> MeasuredOps:
    """Return the ops of several blocks as one, in their order."""
    if len(parts) == 1:
        return parts[0]
    return MeasuredOps(
        records=np.concatenate([np.empty(0, OP_RECORD), *(part.records for part in parts)]),
        has_first_tx=np.concatenate([np.empty(0, np.bool_), *(part.has_first_tx for part in parts)]),
        plan_row=np.concatenate([np.empty(0, np.int64), *(part.plan_row for part in parts)]),
        agent=np.concatenate([np.empty(0, np.int64), *(part.agent for part in parts)]),
        unknown=sum(part.unknown for part in parts),
        repeated=sum(part.repeated for part in parts),
    )


def match_ops(outcome: RunOutcome, tables: PlanTables, *, own: bool = False) -> MeasuredOps:
    """Find the planned op of every record in memory and convert all times to the run's clock.

    `own`: the caller owns the records, so that their times may be changed in place.
    """
    parts = [_agent_ops(records, outcome.start_ns, tables, own=own) for records in outcome.agents]
    # Avoid a copy for a single agent: a block of ops takes most of the memory here.
    record_parts = [part[0] for part in parts if len(part[0])] or [np.empty(0, OP_RECORD)]
    records = record_parts[0] if len(record_parts) == 1 else np.concatenate(record_parts)
    has_first_tx = np.concatenate([part[1] for part in parts] or [np.empty(0, np.bool_)])
    plan_row = np.concatenate([part[2] for part in parts] or [np.empty(0, np.int64)])
    agent = np.repeat(np.arange(len(parts)), [len(part[0]) for part in parts])
    key = records["iteration"].astype(np.int64) * len(tables.ops.rank) + plan_row
    order = np.argsort(key, kind="stable")
    first = _first_of_each(key[order])
    first_rows = order[first]
    return MeasuredOps(
        records=records[first_rows],
        has_first_tx=has_first_tx[first_rows],
        plan_row=plan_row[first_rows],
        agent=agent[first_rows],
        unknown=sum(len(source.ops) for source in outcome.agents) - len(records),
        repeated=len(records) - len(first_rows),
    )


def _agent_ops(
    source: AgentRecords, start_ns: int, tables: PlanTables, *, own: bool
) -> tuple[NDArray[np.void], NDArray[np.bool_], NDArray[np.int64]]:
    """Return the credible records of one agent, whether each has a first transmission, and its row in the plan."""
    plan = tables.ops
    records = source.ops
    if not len(records) or not len(plan.rank):
        return np.empty(0, OP_RECORD), np.empty(0, np.bool_), np.empty(0, np.int64)
    credible = (records["op"] >= 0) & (records["iteration"] >= 0) & (records["iteration"] < tables.iterations)
    for name in TIME_COLUMNS:
        credible &= (records[name] >= 0) & (records[name] < TIME_LIMIT_NS)
    is_own_rank = np.array([name == source.agent for name in tables.rank_agent] or [False])
    rank_known = (records["rank"] >= 0) & (records["rank"] < len(is_own_rank))
    credible &= rank_known & is_own_rank[np.where(rank_known, records["rank"], 0)]
    plan_key = _op_key(plan.rank, plan.op)
    key = _op_key(records["rank"], records["op"])
    row = np.minimum(np.searchsorted(plan_key, key), len(plan_key) - 1)
    credible &= plan_key[row] == key
    credible_records = records if own and credible.all() else records[credible]
    has_first_tx = credible_records["first_tx_ns"] > 0
    for name in TIME_COLUMNS:
        credible_records[name] -= source.clock_offset_ns + start_ns
    return credible_records, has_first_tx, row[credible].astype(np.int64)


def _op_key(rank: NDArray[np.int32], op: NDArray[np.int32]) -> NDArray[np.int64]:
    return (rank.astype(np.int64) << 32) + op


def _first_of_each(sorted_key: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return where a key differs from the one before it (bool)."""
    first = np.ones(len(sorted_key), np.bool_)
    first[1:] = sorted_key[1:] != sorted_key[:-1]
    return first


def match_flows(
    outcome: RunOutcome, tables: PlanTables, connection_rows: Mapping[str, NDArray[np.int32]]
) -> MeasuredFlows:
    """Find the planned queue pair of every flow counter.

    `connection_rows[agent][i]` is the row in `tables.connections` of row i of that agent's `Assignment.connections`.
    """
    ends = _QueuePairEnds.of(tables.connections)
    parts = [
        _agent_flows(source, tables, connection_rows.get(source.agent), ends) for source in outcome.agents
    ]
    queue_pair = np.concatenate([part[1] for part in parts] or [np.empty(0, np.int64)])
    sends_data = np.concatenate([part[0]["sends_data"] for part in parts] or [np.empty(0, np.int32)])
    agent = np.repeat(np.arange(len(parts)), [len(part[0]) for part in parts])
    key = queue_pair * 2 + (sends_data == 0)
    order = np.argsort(key, kind="stable")
    first_rows = order[_first_of_each(key[order])]
    return MeasuredFlows(
        records=_pick_rows([part[0] for part in parts], agent[first_rows], first_rows),
        connection=ends.connection[queue_pair[first_rows]],
        queue_pair=queue_pair[first_rows],
        agent=agent[first_rows],
        unknown=sum(len(source.flows) for source in outcome.agents) - len(key),
        repeated=len(key) - len(first_rows),
    )


def _pick_rows(
    parts: Sequence[NDArray[np.void]], part_of: NDArray[np.int64], chosen: NDArray[np.int64]
) -> NDArray[np.void]:
    """Return the rows with numbers `chosen` of the concatenated parts, in this order. Copies each row once, because there
    may be a million."""
    picked = np.empty(len(chosen), FLOW_RECORD)
    by_part = np.argsort(part_of, kind="stable")
    ends = np.searchsorted(part_of[by_part], np.arange(len(parts)), side="right")
    first_row = first = 0
    for part, end in zip(parts, ends.tolist(), strict=True):
        rows = by_part[first:end]
        picked[rows] = part[chosen[rows] - first_row]
        first_row, first = first_row + len(part), end
    return picked


@dataclass(frozen=True, slots=True, eq=False)
class _QueuePairEnds:
    """Both ends of every queue pair, looked up by (connection, end, queue pair number)."""

    connection: NDArray[np.int64]
    """Connection of each queue pair."""
    sorted_key: NDArray[np.int64]
    order: NDArray[np.int64]

    @staticmethod
    def of(plan: PlannedConnections) -> _QueuePairEnds:
        """Build the index from the plan."""
        connection = np.repeat(np.arange(len(plan.src_rank)), np.diff(plan.qp_offsets))
        sender = _end_key(connection, np.ones(len(connection), np.int64), plan.src_qpn)
        receiver = _end_key(connection, np.zeros(len(connection), np.int64), plan.dst_qpn)
        key = np.concatenate([sender, receiver])
        order = np.argsort(key, kind="stable")
        return _QueuePairEnds(connection=connection, sorted_key=key[order], order=order)

    def find(self, key: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the queue pair of each key (int64); -1 if the plan has none."""
        if not len(self.sorted_key):
            return np.full(len(key), -1, np.int64)
        position = np.minimum(np.searchsorted(self.sorted_key, key), len(self.sorted_key) - 1)
        is_known = self.sorted_key[position] == key
        return np.where(is_known, self.order[position] % len(self.connection), -1)


def _end_key(
    connection: NDArray[np.int64], sends_data: NDArray[np.int64], qpn: NDArray[np.uint32]
) -> NDArray[np.int64]:
    return (connection * 2 + sends_data << 32) + qpn.astype(np.int64)


def _agent_flows(
    source: AgentRecords,
    tables: PlanTables,
    rows: NDArray[np.int32] | None,
    ends: _QueuePairEnds,
) -> tuple[NDArray[np.void], NDArray[np.int64]]:
    """Return the flow counters of one agent that the plan knows, and the queue pair of each."""
    flows = source.flows
    if rows is None or not len(rows) or not len(flows):
        return np.empty(0, FLOW_RECORD), np.empty(0, np.int64)
    plan = tables.connections
    is_known = (flows["connection"] >= 0) & (flows["connection"] < len(rows))
    is_known &= (flows["sends_data"] == 0) | (flows["sends_data"] == 1)
    connection = rows[np.where(is_known, flows["connection"], 0)].astype(np.int64)
    is_own_rank = np.array([name == source.agent for name in tables.rank_agent] or [False])
    local_rank = np.where(flows["sends_data"] == 1, plan.src_rank[connection], plan.dst_rank[connection])
    is_known &= is_own_rank[local_rank]
    queue_pair = ends.find(_end_key(connection, flows["sends_data"].astype(np.int64), flows["local_qpn"]))
    is_known &= queue_pair >= 0
    if is_known.all():
        return flows, queue_pair
    return flows[is_known], queue_pair[is_known]
