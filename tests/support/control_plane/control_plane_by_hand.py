"""A small job for tests of the control plane: one rank per agent, all-reduces over all of them, a ring of connections.

The engine never sees it, so its step tables say nothing; everything else fits together.
"""

from __future__ import annotations

import numpy as np

from etloop.contract.base.ip_address import ip_bytes, ip_column
from etloop.contract.model.assignment import (
    Assignment,
    ConnectionColumns,
    HostThreads,
    Path,
    PortSettings,
    ProgramColumns,
    RankAssignment,
    ScheduleTables,
)
from etloop.contract.model.run import PlannedConnections, PlannedOps, PlanTables
from etloop.contract.model.transport import TransportSettings
from etloop.traffic.collectives.core.columns import to_columns
from etloop.workload.trace.program import OpKind
from etloop.workload.trace.trace import CollectiveKind

TRANSPORT = TransportSettings(
    path_mtu_bytes=4096,
    dscp=26,
    ecn=2,
    window_packets=0,
    ack_every_packets=16,
    timeout_ns=10_000_000,
    retry_limit=7,
    split_data_on_qps=False,
    segmentation_offload=True,
    drop_per_million=0,
    drop_seed=1,
)


def no_schedules() -> ScheduleTables:
    return to_columns([])


def chain_program(ops: int) -> ProgramColumns:
    """All-reduces, each after the one before."""
    return ProgramColumns(
        kind=np.full(ops, OpKind.COLLECTIVE, np.uint8),
        schedule=np.zeros(ops, np.int32),
        slot=np.zeros(ops, np.int32),
        sequence=np.arange(ops, dtype=np.int32),
        message_bytes=np.full(ops, 4096, np.int64),
        delay_ns=np.zeros(ops, np.int64),
        dep_offsets=np.maximum(np.arange(-1, ops), 0).astype(np.int64),
        deps=np.arange(max(0, ops - 1), dtype=np.int32),
    )


def ring_connections(ranks: int, own: int | None = None) -> ConnectionColumns:
    """Connection i leads from rank i to the next one; with `own`, only those that have an end on that rank."""
    rows = [i for i in range(ranks) if own is None or own in (i, (i + 1) % ranks)]
    src = np.array(rows, np.int32)
    dst = (src + 1) % np.int32(ranks)
    return ConnectionColumns(
        communicator=np.zeros(len(rows), np.int32),
        channel=np.zeros(len(rows), np.int32),
        src_rank=src,
        dst_rank=dst,
        path=np.full(len(rows), Path.WIRE, np.uint8),
        src_ip=ip_column(ip_bytes(f"127.0.0.{rank + 1}") for rank in src),
        dst_ip=ip_column(ip_bytes(f"127.0.0.{rank + 1}") for rank in dst),
        qp_offsets=np.arange(len(rows) + 1, dtype=np.int32),
        src_qpn=(0x100 + src).astype(np.uint32),
        dst_qpn=(0x200 + src).astype(np.uint32),
        src_udp_port=np.full(len(rows), 0xC123, np.uint16),
        dst_udp_port=np.full(len(rows), 0xC456, np.uint16),
    )


def ring_assignments(
    *names: str, ops: int = 20, iterations: int = 1, run_id: str = "r1"
) -> dict[str, Assignment]:
    """One rank on each of the named agents."""
    return {
        name: Assignment(
            run_id=run_id,
            agent=name,
            iterations=iterations,
            ports=(PortSettings("p0", (f"127.0.0.{rank + 1}",), 4791, 100_000_000_000, 0x100, 512),),
            transport=TRANSPORT,
            scale_up_bps=1_000_000_000_000,
            scale_up_latency_ns=1000,
            threads=HostThreads(0, 1),
            schedules=no_schedules(),
            programs=(chain_program(ops),),
            ranks=(RankAssignment(rank, 0, 0, 0, (0,), ()),),
            communicator_offsets=np.array([0, len(names)], np.int32),
            communicator_members=np.arange(len(names), dtype=np.int32),
            connections=ring_connections(len(names), rank),
        )
        for rank, name in enumerate(names)
    }


def ring_tables(*names: str, ops: int = 20, iterations: int = 1) -> PlanTables:
    """The plan behind `ring_assignments`."""
    ranks = len(names)
    total = ranks * ops
    index = np.tile(np.arange(ops), ranks)
    planned = PlannedOps(
        rank=np.repeat(np.arange(ranks, dtype=np.int32), ops),
        op=index.astype(np.int32),
        node_id=(100 + index).astype(np.uint64),
        name=np.full(total, -1, np.int32),
        kind=np.full(total, OpKind.COLLECTIVE, np.uint8),
        collective=np.full(total, CollectiveKind.ALL_REDUCE, np.int8),
        communicator=np.zeros(total, np.int32),
        peer=np.full(total, -1, np.int32),
        sequence=index.astype(np.int32),
        message_bytes=np.full(total, 4096, np.int64),
        trace_bytes=np.full(total, 4096, np.int64),
        wire_tx_bytes=np.full(total, 4096, np.int64),
        wire_rx_bytes=np.full(total, 4096, np.int64),
        local_tx_bytes=np.zeros(total, np.int64),
        local_rx_bytes=np.zeros(total, np.int64),
        algorithm=np.zeros(total, np.int16),
    )
    ring = ring_connections(ranks)
    columns = {name: getattr(ring, name) for name in ConnectionColumns.__slots__}
    return PlanTables(
        source="by hand",
        iterations=iterations,
        rank_agent=names,
        rank_host=tuple(range(ranks)),
        rank_port=("p0",) * ranks,
        communicators=(("world", tuple(range(ranks))),),
        algorithms=("ring",),
        op_names=(),
        ops=planned,
        connections=PlannedConnections(**columns, payload_bytes=np.zeros(ranks, np.int64)),
        bytes_scale="1",
        time_scale="1",
        policy="data",
        edges={},
        notes=(),
    )
