"""The columns of the Parquet files of a run: name, type, unit, and whether a value may be absent.

This is the only list of them: tables are built from it, a run directory that deviates from it is refused, and a test
compares docs/metrics.md with it. Columns of counters follow from the table of counters (contract/model/counters.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.counters import AgentObject, Counter, counters_of


class ColumnType(Enum):
    """Storage type of a column."""

    INT32 = "int32"
    INT64 = "int64"
    UINT32 = "uint32"
    UINT64 = "uint64"
    FLOAT64 = "double"
    BOOL = "bool"
    TEXT = "dictionary"
    """Dictionary-encoded strings."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column. `unit` is written into the metadata of the field."""

    name: str
    type: ColumnType
    unit: str
    nullable: bool = False


def columns_of(type_: ColumnType, unit: str, *names: str, nullable: bool = False) -> tuple[Column, ...]:
    """Return columns that differ only in their names."""
    return tuple(Column(name, type_, unit, nullable) for name in names)


def counter_columns(counters: Iterable[Counter]) -> tuple[Column, ...]:
    """Return a non-nullable int64 column for each counter."""
    return tuple(Column(counter.name, ColumnType.INT64, counter.unit) for counter in counters)


_OF_JOBS: Final = (
    *columns_of(ColumnType.TEXT, "name", "job", "phase", nullable=True),
    Column("pass", ColumnType.INT32, "id", nullable=True),
)
"""Columns of runs of several jobs; null in other runs."""

OPS: Final = (
    *columns_of(ColumnType.INT32, "id", "rank", "iteration", "op"),
    Column("node_id", ColumnType.UINT64, "id"),
    Column("name", ColumnType.TEXT, "name", nullable=True),
    Column("kind", ColumnType.TEXT, "name"),
    *columns_of(ColumnType.TEXT, "name", "collective", "communicator", nullable=True),
    Column("communicator_size", ColumnType.INT32, "ranks", nullable=True),
    Column("peer", ColumnType.INT32, "id", nullable=True),
    Column("sequence", ColumnType.INT32, "count"),
    Column("algorithm", ColumnType.TEXT, "name", nullable=True),
    *columns_of(ColumnType.INT64, "bytes", "message_bytes", "trace_bytes"),
    *columns_of(ColumnType.INT64, "ns", "intended_ns", "issued_ns"),
    Column("first_tx_ns", ColumnType.INT64, "ns", nullable=True),
    Column("completed_ns", ColumnType.INT64, "ns"),
    Column("acknowledged_ns", ColumnType.INT64, "ns", nullable=True),
    Column("slip_ns", ColumnType.INT64, "ns"),
    *columns_of(ColumnType.INT64, "bytes", "wire_tx_bytes", "wire_rx_bytes"),
    *columns_of(ColumnType.INT64, "bytes", "planned_wire_tx_bytes", "planned_wire_rx_bytes"),
    *columns_of(ColumnType.INT64, "bytes", "local_tx_bytes", "local_rx_bytes"),
    *columns_of(ColumnType.INT32, "messages", "tx_messages", "rx_messages"),
    Column("agent", ColumnType.TEXT, "name"),
    *_OF_JOBS,
)

_COLLECTIVE: Final = (
    Column("iteration", ColumnType.INT32, "id"),
    Column("kind", ColumnType.TEXT, "name"),
    *columns_of(ColumnType.TEXT, "name", "algorithm", "communicator", nullable=True),
    *columns_of(ColumnType.INT32, "id", "src_rank", "dst_rank", nullable=True),
    Column("sequence", ColumnType.INT32, "count"),
    Column("name", ColumnType.TEXT, "name", nullable=True),
)
"""Identify a collective, or a send with its receive, and its iteration."""

COLLECTIVES: Final = (
    *_COLLECTIVE,
    *columns_of(ColumnType.INT32, "ranks", "ranks", "members_recorded"),
    Column("complete", ColumnType.BOOL, "flag"),
    *columns_of(ColumnType.INT64, "bytes", "size_bytes", "sent_bytes", "fabric_bytes"),
    *columns_of(ColumnType.INT64, "messages", "messages"),
    *columns_of(ColumnType.INT64, "ns", "start_ns", "end_ns", "time_ns", "skew_ns"),
    Column("recorded_ns", ColumnType.INT64, "ns", nullable=True),
    Column("recorded_ranks", ColumnType.INT32, "ranks"),
    *columns_of(ColumnType.FLOAT64, "bytes/s", "algbw_bytes_per_s", "busbw_bytes_per_s", nullable=True),
    *_OF_JOBS,
)

FLOW_COUNTERS: Final = counter_columns(counters_of(AgentObject.QUEUE_PAIR))

FLOWS: Final = (
    Column("agent", ColumnType.TEXT, "name"),
    Column("connection", ColumnType.INT32, "id"),
    Column("communicator", ColumnType.TEXT, "name", nullable=True),
    *columns_of(ColumnType.INT32, "id", "channel", "src_rank", "dst_rank"),
    *columns_of(ColumnType.TEXT, "name", "role", "src_ip", "dst_ip"),
    *columns_of(ColumnType.UINT32, "id", "local_qpn", "remote_qpn"),
    Column("udp_source_port", ColumnType.INT32, "id"),
    Column("planned_connection_bytes", ColumnType.INT64, "bytes"),
    *FLOW_COUNTERS,
    *columns_of(ColumnType.TEXT, "name", "job", "transport", nullable=True),
)

PORT_COUNTERS: Final = counter_columns(counters_of(AgentObject.PORT))

PORTS: Final = (
    *columns_of(ColumnType.TEXT, "name", "agent", "host"),
    Column("port_index", ColumnType.INT32, "id"),
    Column("port", ColumnType.TEXT, "name", nullable=True),
    *PORT_COUNTERS,
)

RATES: Final = (
    Column("agent", ColumnType.TEXT, "name"),
    *columns_of(ColumnType.INT32, "id", "connection", "src_rank", "dst_rank"),
    Column("local_qpn", ColumnType.UINT32, "id"),
    Column("time_ns", ColumnType.INT64, "ns"),
    Column("rate_bps", ColumnType.INT64, "bit/s"),
    *columns_of(ColumnType.INT64, "bytes", "window_bytes", "in_flight_bytes", "acked_bytes"),
    Column("tx_packets", ColumnType.INT64, "packets"),
    Column("rtt_ns", ColumnType.INT64, "ns", nullable=True),
)
"""Columns of cc.parquet, which a run has only if its scenario asks for it."""

COMPARISON: Final = (
    *_COLLECTIVE,
    Column("ranks", ColumnType.INT32, "ranks"),
    Column("size_bytes", ColumnType.INT64, "bytes"),
    *columns_of(ColumnType.INT64, "ns", "ideal_ns", "twin_ns", "measured_ns", nullable=True),
)
"""Columns of comparison.parquet, which a run has if it was compared with expected runs."""

JOBS: Final = (
    Column("round", ColumnType.INT32, "id"),
    *columns_of(ColumnType.TEXT, "name", "job", "phase"),
    Column("pass", ColumnType.INT32, "id"),
    *columns_of(ColumnType.INT64, "ns", "start_ns", "end_ns", "jct_ns"),
    Column("ops_recorded", ColumnType.INT64, "ops"),
    Column("complete", ColumnType.BOOL, "flag"),
)
"""Columns of jobs.parquet, of a run of several jobs or with background."""

TABLES: Final = {
    "ops.parquet": OPS,
    "collectives.parquet": COLLECTIVES,
    "flows.parquet": FLOWS,
    "ports.parquet": PORTS,
}
"""Columns by file, of the Parquet files that every run has."""
