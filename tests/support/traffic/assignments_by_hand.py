"""Small assignments written out by hand, for tests of the engine that should not depend on the planner."""

from __future__ import annotations

from dataclasses import dataclass, replace

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
)
from etloop.contract.model.transport import TransportSettings
from etloop.traffic.collectives.core.columns import to_columns
from etloop.traffic.collectives.core.table import Schedule
from etloop.traffic.collectives.selection import CollectiveName
from tests.support.traffic.one_channel_schedules import SEND_RECV, schedule_for, schedule_for_splits

Splits = tuple[tuple[int, ...], ...]

TRANSPORT = TransportSettings(
    path_mtu_bytes=4096,
    dscp=26,
    ecn=2,
    window_packets=64,
    ack_every_packets=32,
    timeout_ns=2_000_000,
    retry_limit=7,
    split_data_on_qps=False,
    segmentation_offload=True,
    drop_per_million=0,
    drop_seed=1,
)


@dataclass(frozen=True, slots=True)
class HandOp:
    """One op of every rank's program: "delay", "send" and "recv" by name, else a collective over all ranks."""

    what: CollectiveName | str
    amount: int
    """Payload bytes, or nanoseconds of a delay."""
    deps: tuple[int, ...] = ()
    peer: int = -1
    sequence: int = 0
    splits: Splits = ()
    """Of an uneven all-to-all, whose `amount` then means nothing."""

    @property
    def key(self) -> ScheduleKey:
        assert isinstance(self.what, CollectiveName)
        return (self.what, self.splits)


ScheduleKey = tuple[CollectiveName, Splits]


def _schedule(key: ScheduleKey, size: int, instead: Schedule | None) -> Schedule:
    name, splits = key
    if instead is not None:
        return instead
    return schedule_for_splits(splits) if splits else schedule_for(name, size)


def ip_of(rank: int) -> str:
    return f"127.77.{rank // 200}.{rank % 200 + 1}"


def _columns(ops: tuple[HandOp, ...], schedules: list[ScheduleKey], peers: tuple[int, ...]) -> ProgramColumns:
    kinds = {"delay": 0, "send": 2, "recv": 3}
    offsets = [0]
    for op in ops:
        offsets.append(offsets[-1] + len(op.deps))
    p2p = len(schedules)

    def schedule(op: HandOp) -> int:
        if isinstance(op.what, CollectiveName):
            return schedules.index(op.key)
        return -1 if op.what == "delay" else p2p

    sequence, used = [], 0
    for op in ops:
        sequence.append(used if isinstance(op.what, CollectiveName) else op.sequence)
        used += isinstance(op.what, CollectiveName)
    return ProgramColumns(
        kind=np.array([1 if isinstance(op.what, CollectiveName) else kinds[op.what] for op in ops], np.uint8),
        schedule=np.array([schedule(op) for op in ops], np.int32),
        slot=np.array(
            [
                0 if isinstance(op.what, CollectiveName) else peers.index(op.peer) if op.peer >= 0 else -1
                for op in ops
            ],
            np.int32,
        ),
        sequence=np.array(sequence, np.int32),
        message_bytes=np.array([0 if op.what == "delay" else op.amount for op in ops], np.int64),
        delay_ns=np.array([op.amount if op.what == "delay" else 0 for op in ops], np.int64),
        dep_offsets=np.array(offsets, np.int64),
        deps=np.array([dep for op in ops for dep in op.deps], np.int32),
    )


def _connections(
    size: int,
    schedules: list[ScheduleKey],
    programs: tuple[tuple[HandOp, ...], ...],
    qps_each: int,
    hosts: tuple[int, ...],
    addresses: tuple[str, ...],
    instead: Schedule | None,
) -> ConnectionColumns:
    pairs: set[tuple[int, int, int, int]] = set()
    for key in schedules:
        for position, lanes in enumerate(_schedule(key, size, instead).tables):
            pairs |= {(0, lane.channel, position, lane.send_to) for lane in lanes if lane.send_to >= 0}
    for rank, ops in enumerate(programs):
        pairs |= {(-1, 0, rank, op.peer) for op in ops if op.what == "send"}
    ordered = sorted(pairs)
    wire = [hosts[src] != hosts[dst] for _, _, src, dst in ordered]
    qps = [row for row, crosses in enumerate(wire) if crosses for _ in range(qps_each)]
    offsets = np.cumsum([0] + [qps_each if crosses else 0 for crosses in wire])
    numbers = np.arange(len(qps))
    return ConnectionColumns(
        communicator=np.array([c for c, _, _, _ in ordered], np.int32),
        channel=np.array([channel for _, channel, _, _ in ordered], np.int32),
        src_rank=np.array([s for _, _, s, _ in ordered], np.int32),
        dst_rank=np.array([d for _, _, _, d in ordered], np.int32),
        path=np.array([Path.WIRE if crosses else Path.SCALE_UP for crosses in wire], np.uint8),
        src_ip=ip_column(ip_bytes(addresses[s]) for _, _, s, _ in ordered),
        dst_ip=ip_column(ip_bytes(addresses[d]) for _, _, _, d in ordered),
        qp_offsets=offsets.astype(np.int32),
        # Queue pair numbers are dealt out below, per port.
        src_qpn=numbers.astype(np.uint32),
        dst_qpn=numbers.astype(np.uint32),
        src_udp_port=(0xC000 + numbers * 2 % 0x3FFF).astype(np.uint16),
        dst_udp_port=(0xC001 + numbers * 2 % 0x3FFF).astype(np.uint16),
    )


def _number_queue_pairs(connections: ConnectionColumns, block: int) -> ConnectionColumns:
    """Gives every rank (its own port here) the block [0x100 + rank * block, ...) of queue pair numbers."""
    used: dict[int, int] = {}

    def number(rank: int) -> int:
        used[rank] = used.get(rank, -1) + 1
        assert used[rank] < block
        return 0x100 + rank * block + used[rank]

    src, dst = [], []
    for row in range(len(connections.src_rank)):
        for _ in range(connections.qp_offsets[row], connections.qp_offsets[row + 1]):
            src.append(number(int(connections.src_rank[row])))
            dst.append(number(int(connections.dst_rank[row])))
    return replace(connections, src_qpn=np.array(src, np.uint32), dst_qpn=np.array(dst, np.uint32))


def assignment(
    programs: tuple[tuple[HandOp, ...], ...],
    *,
    iterations: int = 1,
    qps_each: int = 1,
    hosts: tuple[int, ...] | None = None,
    transport: TransportSettings = TRANSPORT,
    link_bps: int = 100_000_000_000,
    addresses: tuple[str, ...] | None = None,
    only_ranks: tuple[int, ...] | None = None,
    instead: Schedule | None = None,
) -> Assignment:
    """One assignment with a port per rank, or with those of `only_ranks`; rank r runs `programs[r]`.

    `instead` is the schedule of all collectives, whatever they are called.
    Ranks of one host must share a port in a real plan; here `hosts` is only used with all ranks on one port.
    """
    size = len(programs)
    one_port = hosts is not None
    hosts = hosts or tuple(range(size))
    addresses = addresses or tuple(ip_of(rank) for rank in range(size))
    schedules = sorted({op.key for ops in programs for op in ops if isinstance(op.what, CollectiveName)})
    peers = tuple(tuple(sorted({op.peer for op in ops if op.peer >= 0})) for ops in programs)
    block = max(4096, 2 * qps_each * size)
    connections = _number_queue_pairs(
        _connections(size, schedules, programs, qps_each, hosts, addresses, instead), block
    )
    here = tuple(range(size)) if only_ranks is None else only_ranks
    if one_port:
        ports: tuple[PortSettings, ...] = (
            PortSettings("p0", addresses, 4791, link_bps, 0x100, block * size),
        )
    else:
        ports = tuple(
            PortSettings(f"p{rank}", (addresses[rank],), 4791, link_bps, 0x100 + rank * block, block)
            for rank in here
        )
    return Assignment(
        run_id="by-hand",
        agent="a",
        iterations=iterations,
        ports=ports,
        transport=transport,
        scale_up_bps=400_000_000_000,
        scale_up_latency_ns=1_000,
        threads=HostThreads(0, len(ports)),
        schedules=to_columns([_schedule(key, size, instead) for key in schedules] + [SEND_RECV]),
        programs=tuple(_columns(ops, schedules, peers[rank]) for rank, ops in enumerate(programs)),
        ranks=tuple(
            RankAssignment(
                rank=rank,
                program=rank,
                port=0 if one_port else index,
                address=rank if one_port else 0,
                communicators=(0,),
                peers=peers[rank],
            )
            for index, rank in enumerate(here)
        ),
        communicator_offsets=np.array([0, size], np.int32),
        communicator_members=np.arange(size, dtype=np.int32),
        connections=connections,
    )
