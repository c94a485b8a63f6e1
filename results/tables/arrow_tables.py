"""Builds the tables of a run as Arrow tables with units in each field's metadata.

Decides how values are laid out (columns.py lists them); figures come from `measure/joined.py` and
`measure/collectives.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from etloop.contract.base.ip_address import ip_text
from etloop.results.measure.collectives import CollectiveRows, PlannedGroups
from etloop.results.measure.job_shares import (
    PassRows,
    background_ranks,
    job_of_rank,
    phase_and_pass_of_op,
    sort_of_phase,
)
from etloop.results.measure.joined import MeasuredFlows, MeasuredOps
from etloop.results.schema.columns import (
    COLLECTIVES,
    COMPARISON,
    FLOW_COUNTERS,
    FLOWS,
    JOBS,
    OPS,
    PORT_COUNTERS,
    PORTS,
    RATES,
    Column,
    ColumnType,
)
from etloop.results.schema.jobs import BARRIER_GROUP
from etloop.results.schema.kinds import CONVENTIONS, OP_NAMES, OpCode

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.contract.model.run import AgentRecords, PlanTables, RunOutcome
    from etloop.results.expected.expected_vs_measured import ComparedRows


_OF_PLAN: Final = ("rank", "op", "node_id", "sequence", "message_bytes", "trace_bytes")
"""Columns of ops.parquet from the plan."""
_OF_RECORDS: Final = (
    *("iteration", "intended_ns", "issued_ns", "completed_ns", "wire_tx_bytes", "wire_rx_bytes"),
    *("local_tx_bytes", "local_rx_bytes", "tx_messages", "rx_messages"),
)
"""Columns of ops.parquet from the records."""
_OF_ROWS: Final = (
    *("members_recorded", "complete", "sent_bytes", "fabric_bytes", "messages"),
    *("start_ns", "end_ns", "time_ns", "skew_ns"),
)
"""Columns of collectives.parquet from `CollectiveRows`."""
_OF_RATES: Final = "local_qpn time_ns rate_bps window_bytes in_flight_bytes acked_bytes tx_packets".split()
"""Columns of cc.parquet from the records."""


def arrow_schema(columns: tuple[Column, ...]) -> pa.Schema:
    """Return the Arrow schema of a table; each field's metadata has its unit."""
    return pa.schema(
        [
            pa.field(column.name, _arrow_type(column.type), column.nullable, {"unit": column.unit})
            for column in columns
        ]
    )


def _arrow_type(type_: ColumnType) -> pa.DataType:
    if type_ is ColumnType.TEXT:
        return pa.dictionary(pa.int32(), pa.string())
    return pa.type_for_alias(type_.value)


def text_column(codes: NDArray[np.integer], names: Sequence[object]) -> pa.Array:
    """Return strings by index into `names`, dictionary-encoded; null for a negative index or a name that is None.

    Equal names share one entry: Arrow writes a dictionary with equal entries in full, and not always with the same bytes.
    """
    unique: dict[object, int] = {}
    entries = [-1 if name is None else unique.setdefault(name, len(unique)) for name in names]
    entry = np.array([*entries, -1], np.int32)[np.maximum(codes, -1).astype(np.int64)]
    indices = pa.array(np.maximum(entry, 0), mask=entry < 0)
    return pa.DictionaryArray.from_arrays(indices, pa.array([str(name) for name in unique], pa.string()))


def column_table(columns: tuple[Column, ...], values: Mapping[str, object]) -> pa.Table:
    """Return a table of these columns; `values` may have any order."""
    schema = arrow_schema(columns)
    assert values.keys() == set(schema.names), set(values) ^ set(schema.names)
    arrays = []
    for field in schema:
        value = values[field.name]
        if isinstance(value, np.ndarray):
            value = pa.array(np.ascontiguousarray(value)).cast(field.type)
        elif isinstance(value, pa.Array) and value.type != field.type:
            value = value.cast(field.type)
        arrays.append(value)
    return pa.Table.from_arrays(arrays, schema=schema)


def _absent(values: NDArray[np.integer], absent: NDArray[np.bool_]) -> pa.Array:
    """Return the values as an Arrow array, null where `absent`."""
    return pa.array(np.ascontiguousarray(values), mask=absent)


def _communicators(tables: PlanTables, codes: NDArray[np.integer]) -> pa.Array:
    return text_column(codes, [name for name, _ in tables.communicators])


def _agents(outcome: RunOutcome, codes: NDArray[np.integer]) -> pa.Array:
    return text_column(codes, [agent.agent for agent in outcome.agents])


def ops_table(outcome: RunOutcome, tables: PlanTables, measured: MeasuredOps) -> pa.Table:
    """Return ops.parquet: one row per completed op, sorted by (iteration, rank, op)."""
    plan, row, records = tables.ops, measured.plan_row, measured.records
    communicator = plan.communicator[row]
    sizes = np.array([len(members) for _, members in tables.communicators] or [0], np.int32)
    op_names = [OP_NAMES.get(OpCode(code), "") if code else "" for code in range(len(OpCode) + 1)]
    return column_table(
        OPS,
        {
            **{name: getattr(plan, name)[row] for name in _OF_PLAN},
            **{f"planned_{name}": getattr(plan, name)[row] for name in ("wire_tx_bytes", "wire_rx_bytes")},
            **{name: records[name] for name in _OF_RECORDS},
            "name": text_column(plan.name[row], tables.op_names),
            "kind": text_column(plan.kind[row].astype(np.int32), op_names),
            "collective": text_column(plan.collective[row].astype(np.int32), _kind_names()),
            "communicator": _communicators(tables, communicator),
            "communicator_size": _absent(sizes[communicator], communicator < 0),
            "peer": _absent(plan.peer[row], plan.peer[row] < 0),
            "algorithm": text_column(plan.algorithm[row].astype(np.int32), tables.algorithms),
            "first_tx_ns": _absent(records["first_tx_ns"], ~measured.has_first_tx),
            "acknowledged_ns": _absent(records["acknowledged_ns"], ~measured.has_first_tx),
            "slip_ns": records["issued_ns"] - records["intended_ns"],
            "agent": _agents(outcome, measured.agent),
            **_job_columns(tables, row),
        },
    )


def _job_columns(tables: PlanTables, row: NDArray[np.int64]) -> dict[str, pa.Array]:
    """Return job, phase and pass of planned ops; null for barriers between phases."""
    job = job_of_rank(tables)[tables.ops.rank[row]].astype(np.int64)
    phase, number = (column[row] for column in phase_and_pass_of_op(tables))
    phase_names: list[str] = []
    if tables.several is not None:
        job[tables.several.turn[row] < 0] = -1
        phase_names = [
            sort_of_phase(tables.several, phase_number).value
            for phase_number in range(len(tables.several.phases))
        ]
    return {
        "job": text_column(job, _job_names(tables)),
        "phase": text_column(phase, phase_names),
        "pass": _absent(number, number < 0),
    }


def _job_names(tables: PlanTables) -> list[str]:
    return [] if tables.several is None else [job.name for job in tables.several.jobs]


def jobs_table(rows: PassRows | None, tables: PlanTables) -> pa.Table | None:
    """Return jobs.parquet: one row per round, job and pass; None for a run of one job without background."""
    several = tables.several
    if several is None or rows is None:
        return None
    phase_names = [sort_of_phase(several, phase_number).value for phase_number in range(len(several.phases))]
    return column_table(
        JOBS,
        {
            "round": rows.round,
            "job": text_column(rows.job, _job_names(tables)),
            "phase": text_column(rows.phase, phase_names),
            "pass": rows.number,
            "jct_ns": rows.end_ns - rows.start_ns,
            **{name: getattr(rows, name) for name in ("start_ns", "end_ns", "ops_recorded", "complete")},
        },
    )


def _kind_names() -> list[str]:
    return [convention.name for convention in CONVENTIONS]


def collectives_table(tables: PlanTables, groups: PlannedGroups, rows: CollectiveRows) -> pa.Table:
    """Return collectives.parquet: one row per collective, or pair of send and receive, and iteration."""
    group = rows.group
    return column_table(
        COLLECTIVES,
        {
            "iteration": rows.iteration,
            **_group_columns(tables, groups, group),
            **{name: getattr(rows, name) for name in _OF_ROWS},
            "recorded_ns": _absent(groups.recorded_ns[group], groups.recorded_ns[group] < 0),
            "recorded_ranks": groups.recorded_ranks[group],
            "algbw_bytes_per_s": pa.array(rows.algbw, mask=np.isnan(rows.algbw)),
            "busbw_bytes_per_s": pa.array(rows.busbw, mask=np.isnan(rows.busbw)),
            **_job_columns(tables, groups.first_op[group]),
        },
    )


def _group_columns(tables: PlanTables, groups: PlannedGroups, group: NDArray[np.int64]) -> dict[str, object]:
    """Return the columns that identify the collective, or pair of ranks, of each row."""
    is_pair = groups.communicator[group] < 0
    return {
        "kind": text_column(groups.kind[group], _kind_names()),
        "algorithm": text_column(groups.algorithm[group], tables.algorithms),
        "communicator": _communicators(tables, groups.communicator[group]),
        "src_rank": _absent(groups.src_rank[group], ~is_pair),
        "dst_rank": _absent(groups.dst_rank[group], ~is_pair),
        **{name: getattr(groups, name)[group] for name in ("sequence", "ranks", "size_bytes")},
        "name": text_column(groups.name[group], tables.op_names),
    }


def flows_table(outcome: RunOutcome, tables: PlanTables, flows: MeasuredFlows) -> pa.Table:
    """Return flows.parquet: one row per queue pair end that was counted."""
    plan, connection, queue_pair = tables.connections, flows.connection, flows.queue_pair
    sends = flows.records["sends_data"] == 1
    return column_table(
        FLOWS,
        {
            "agent": _agents(outcome, flows.agent),
            "connection": connection,
            "communicator": _communicators(tables, plan.communicator[connection]),
            **{name: getattr(plan, name)[connection] for name in ("channel", "src_rank", "dst_rank")},
            "role": text_column(np.where(sends, 0, 1), ("sender", "receiver")),
            "src_ip": _addresses(plan.src_ip[connection]),
            "dst_ip": _addresses(plan.dst_ip[connection]),
            **{name: flows.records[name] for name in ("local_qpn", "remote_qpn")},
            "udp_source_port": np.where(sends, plan.src_udp_port[queue_pair], plan.dst_udp_port[queue_pair]),
            "planned_connection_bytes": plan.payload_bytes[connection]
            * np.where(background_ranks(tables)[plan.src_rank[connection]], 1, tables.iterations),
            **{column.name: flows.records[column.name] for column in FLOW_COUNTERS},
            "job": text_column(_job_of_connection(tables)[connection], _job_names(tables)),
            "transport": _transports(tables, plan.src_rank[connection]),
        },
    )


def _transports(tables: PlanTables, rank: NDArray[np.int32]) -> pa.Array:
    """Return the transport of ranks; null if the stored plan does not have it."""
    names = tuple(dict.fromkeys(tables.rank_transport))
    numbers = np.array([names.index(name) for name in tables.rank_transport], np.int64)
    return text_column(numbers[rank] if names else np.full(len(rank), -1), names)


def _job_of_connection(tables: PlanTables) -> NDArray[np.int64]:
    """Return the job of each connection (int64); -1 for those that only carry barriers between jobs, whose ends are in
    two jobs."""
    job = job_of_rank(tables).astype(np.int64)
    src, dst = job[tables.connections.src_rank], job[tables.connections.dst_rank]
    between = np.array([name == BARRIER_GROUP for name, _ in tables.communicators], np.bool_)
    communicator = tables.connections.communicator
    carries = (communicator >= 0) & between[communicator] if len(between) else np.zeros(len(src), np.bool_)
    return np.where((src == dst) & ~carries, src, -1)


def comparison_table(tables: PlanTables, groups: PlannedGroups, rows: ComparedRows) -> pa.Table:
    """Return comparison.parquet: one row per iteration and collective that completed in ideal, twin or run."""
    times = {"ideal_ns": rows.ideal_ns, "twin_ns": rows.twin_ns, "measured_ns": rows.measured_ns}
    return column_table(
        COMPARISON,
        {
            "iteration": rows.iteration,
            **_group_columns(tables, groups, rows.group),
            **{name: _absent(values, values < 0) for name, values in times.items()},
        },
    )


def rates_table(
    outcome: RunOutcome, tables: PlanTables, connection_rows: Mapping[str, NDArray[np.int32]]
) -> pa.Table | None:
    """Return cc.parquet: one row per queue pair and sampling time; None if no agent sampled rates.

    Rows of connections that are not in the plan are left out.
    """
    parts, agents, connections = [], [], []
    for index, agent in enumerate(outcome.agents):
        rows = connection_rows.get(agent.agent, np.empty(0, np.int32))
        connection_index = agent.rates["connection"]
        is_planned = (connection_index >= 0) & (connection_index < len(rows))
        part = agent.rates[is_planned].copy()
        part["time_ns"] -= agent.clock_offset_ns + outcome.start_ns
        parts.append(part)
        agents.append(np.full(len(part), index, np.int64))
        connections.append(rows[part["connection"]].astype(np.int64))
    if not any(len(part) for part in parts):
        return None
    records, connection = np.concatenate(parts), np.concatenate(connections)
    return column_table(
        RATES,
        {
            "agent": _agents(outcome, np.concatenate(agents)),
            "connection": connection,
            "src_rank": tables.connections.src_rank[connection],
            "dst_rank": tables.connections.dst_rank[connection],
            **{name: records[name] for name in _OF_RATES},
            "rtt_ns": pa.array(records["rtt_ns"], mask=records["rtt_ns"] < 0),
        },
    )


def _addresses(values: NDArray[np.void]) -> pa.Array:
    code_of: dict[bytes, int] = {}
    codes = np.array([code_of.setdefault(value.tobytes(), len(code_of)) for value in values], np.int64)
    return text_column(codes, [ip_text(value) for value in code_of])


def ports_table(
    outcome: RunOutcome, tables: PlanTables, port_names: Mapping[str, tuple[str, ...]]
) -> pa.Table:
    """Return ports.parquet: one row per port of every agent that sent its counters.

    `port_names[agent]` names the agent's ports in the order of its assignment; without it a port is named only if the
    agent has a single port and the plan names it.
    """
    records = np.concatenate([agent.ports for agent in outcome.agents]) if outcome.agents else None
    rows = [
        (agent, index, name)
        for agent in outcome.agents
        for index, name in enumerate(_port_names(agent, tables, port_names.get(agent.agent)))
    ]
    return column_table(
        PORTS,
        {
            "agent": text_column(np.arange(len(rows)), [agent.agent for agent, _, _ in rows]),
            "host": text_column(np.arange(len(rows)), [agent.host for agent, _, _ in rows]),
            "port_index": np.array([index for _, index, _ in rows], np.int32),
            "port": text_column(np.arange(len(rows)), [name for _, _, name in rows]),
            **{
                column.name: np.empty(0, np.int64) if records is None else records[column.name]
                for column in PORT_COUNTERS
            },
        },
    )


def _port_names(
    agent: AgentRecords, tables: PlanTables, named: tuple[str, ...] | None
) -> tuple[str | None, ...]:
    """Return a name for each port of `agent`, or None if it is not certain."""
    if named is None:
        named = tuple(
            {
                port
                for owner, port in zip(tables.rank_agent, tables.rank_port, strict=True)
                if owner == agent.agent
            }
        )
        # With several ports the plan's ranks do not determine which row is which port.
        if len(named) != 1:
            return (None,) * len(agent.ports)
    if len(named) != len(agent.ports):
        return (None,) * len(agent.ports)
    return named
