"""The traffic that a job requests, before its ranks are placed: schedules, ops in columns, bytes per pair of ranks.

Decides which schedule every collective uses and adds up, with the engine's own cutting, the payload that each rank sends to
each other rank. Which of these bytes cross the device under test depends on the placement and is decided by `partition` and
`connections`.

Ops with the same schedule, communicator and byte count are one *shape*: a job of a hundred thousand ops has a few hundred
shapes, and only shapes are cut lane by lane. The members of an uneven all-to-all contribute different sizes, which its
schedule, made for its matrix, contains; its shape has byte count 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from etloop.contract.base.errors import PlanError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import approximate_bytes
from etloop.contract.model.assignment import ScheduleTables
from etloop.controller.plan.communicator_pins import settings_by_communicator
from etloop.controller.plan.schedule_set import ChosenOp, ScheduleSet
from etloop.traffic._native import StepTables
from etloop.traffic.collectives.core.columns import to_columns
from etloop.traffic.collectives.core.table import Schedule
from etloop.workload.trace.program import Communicator, Job, OpKind, Program, RankProgram

if TYPE_CHECKING:
    from etloop.controller.plan.job_set import JobSet

POINT_TO_POINT: Final = -1
"""Communicator of connections that carry sends and receives."""
MOST_OP_BYTES: Final = 1 << 46
"""Limit of one op, 64 TiB: the engine counts the messages of an op in 32 bits, and more is a wrong unit in the trace."""
MOST_SCHEDULE_STEPS: Final = 1 << 28
"""Limit of the steps of all positions of all schedules together: that of the native tables (kMaxLaneEntries)."""
_MOST_CHANNELS: Final = 1024
"""The same limit as in traffic/native/bind/schedule.cpp."""


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """A collective over one communicator with one byte count: the bytes of every sending lane, and the number of such ops."""

    communicator: int
    schedule: int
    ops: int
    """Number of collective operations, each counted once for all members."""
    src_position: NDArray[np.int32]
    dst_position: NDArray[np.int32]
    channel: NDArray[np.int32]
    payload_bytes: NDArray[np.int64]
    """Per sending lane, for one op: bytes on the wire, including the flags that LL and LL128 add to the data."""


@dataclass(frozen=True, slots=True, eq=False)
class OpColumns:
    """All network ops of all ranks, sorted by (rank, op)."""

    rank: NDArray[np.int32]
    op: NDArray[np.int32]
    node_id: NDArray[np.uint64]
    name: NDArray[np.int32]
    """Index into `Job.op_names`; -1 for ops without a name."""
    kind: NDArray[np.uint8]
    collective: NDArray[np.int8]
    communicator: NDArray[np.int32]
    position: NDArray[np.int32]
    """Position of the rank in the communicator; -1 for send and receive."""
    peer: NDArray[np.int32]
    sequence: NDArray[np.int32]
    message_bytes: NDArray[np.int64]
    trace_bytes: NDArray[np.int64]
    schedule: NDArray[np.int32]
    shape: NDArray[np.int32]
    """Index into `Demand.shapes`; -1 for send and receive."""


@dataclass(frozen=True, slots=True, eq=False)
class PairColumns:
    """Ordered pairs of ranks connected by some schedule, one row per pair, communicator and channel, with the bytes of one
    iteration. Sorted by communicator, source rank, destination rank and channel."""

    communicator: NDArray[np.int32]
    channel: NDArray[np.int32]
    src_rank: NDArray[np.int32]
    dst_rank: NDArray[np.int32]
    payload_bytes: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.communicator)


@dataclass(frozen=True, slots=True, eq=False)
class ProgramVariant:
    """A program with the schedules it runs: ranks that share a program may be in communicators of different sizes."""

    program: Program
    schedule: NDArray[np.int32]
    """Index into `Demand.schedules` of each op; -1 for DELAY."""


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """The traffic that a job requests, without the list of the pairs of ranks that it connects."""

    schedules: tuple[Schedule, ...]
    tables: ScheduleTables
    variants: tuple[ProgramVariant, ...]
    variant_of_rank: tuple[int, ...]
    ops: OpColumns
    shapes: tuple[Shape, ...]
    chosen: tuple[ChosenOp, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Demand(Asked):
    """The traffic of a job with all that the later steps of a plan need."""

    pairs: PairColumns


_Slot = tuple[int, int, int]
"""A communicator's size, its consecutive members per host, and the index of its settings."""
_PairPart = tuple[int, NDArray[np.int32], NDArray[np.int32], NDArray[np.int32], NDArray[np.int64]]
"""Communicator, source, destination, channel and bytes of the pairs of one shape, or of sends of one schedule and size."""
_Sends = tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32], NDArray[np.int64]]


def demand_of(jobs: JobSet) -> Demand:
    """Return the demand of a set of jobs, with all its pairs. Raises as `asked_of`."""
    traffic = asked_of(jobs)
    return Demand(
        schedules=traffic.schedules,
        tables=traffic.tables,
        variants=traffic.variants,
        variant_of_rank=traffic.variant_of_rank,
        ops=traffic.ops,
        shapes=traffic.shapes,
        chosen=traffic.chosen,
        pairs=_concatenate(list(pair_chunks(jobs.job, traffic))),
    )


def asked_of(jobs: JobSet) -> Asked:
    """Return the traffic of a set of jobs, with ranks on hosts by each job's mapping and schedules by its settings.

    Raises `PlanError` for a collective that has no schedule, or none that matches its pins, and for immense ops or schedules.
    """
    job, host_of_rank, part_of_rank = jobs.job, jobs.hosts(), jobs.part_of_rank().tolist()
    settings = [part.settings for part in jobs.parts]
    settings_of_communicator = settings_by_communicator(jobs, settings)
    schedule_set = ScheduleSet(settings, job.source, job.splits, job.busiest_split_bytes())
    slot_of_communicator = [
        (len(group.members), _ranks_per_host(group, host_of_rank), settings_index)
        for group, settings_index in zip(job.communicators, settings_of_communicator, strict=True)
    ]
    variant_index: dict[tuple[int, int, tuple[_Slot, ...], bytes, bytes], int] = {}
    variants: list[ProgramVariant] = []
    variant_of_rank: list[int] = []
    for rank in job.ranks:
        slots = tuple(slot_of_communicator[communicator] for communicator in rank.communicators)
        part = part_of_rank[rank.rank]
        key = (rank.program, part, slots, _column_bytes(rank.splits), _column_bytes(rank.trace_bytes))
        if key not in variant_index:
            variant_index[key] = len(variants)
            program = job.programs[rank.program]
            column = _schedule_column(program, slots, part, rank, schedule_set)
            variants.append(ProgramVariant(program, column))
        variant_of_rank.append(variant_index[key])
    if not schedule_set.schedules:
        # A job without communication: the columns need at least one row.
        schedule_set.index_of_send(0, 0)
    schedules = tuple(schedule_set.schedules)
    tables = to_columns(schedules)
    _refuse_immense_schedules(schedules, tables)
    is_uneven = np.array([bool(schedule.splits) for schedule in schedules])
    ops, shape_keys, shape_ops = _op_columns(job, variants, variant_of_rank, is_uneven)
    _refuse_immense(ops)
    sizes = np.array([schedule.size for schedule in schedules])
    shapes = _shapes(shape_keys, shape_ops, tables, sizes)
    return Asked(
        schedules=schedules,
        tables=tables,
        variants=tuple(variants),
        variant_of_rank=tuple(variant_of_rank),
        ops=ops,
        shapes=shapes,
        chosen=schedule_set.chosen,
    )


def _refuse_immense_schedules(schedules: Sequence[Schedule], tables: ScheduleTables) -> None:
    steps_of_lane = np.broadcast_to(tables.lane_entry_count, len(tables.lane_send_to))
    up_to_lane = np.concatenate(([0], np.cumsum(steps_of_lane, dtype=np.int64)))
    steps = np.diff(up_to_lane[tables.lane_offsets[tables.table_offsets]])
    if steps.sum() <= MOST_SCHEDULE_STEPS:
        return
    largest = int(np.argmax(steps))
    name = f"{schedules[largest].collective} by {schedules[largest].algorithm} over {schedules[largest].size} ranks"
    problem = (
        f"the job's schedules have {steps.sum()} steps in all, {steps[largest]} of them the {name}; "
        f"at most {MOST_SCHEDULE_STEPS} are planned"
    )
    remedy = "pin another algorithm or fewer channels for it, take fewer ranks, or see etloop plan --summary"
    raise PlanError(Problem("collectives", problem, remedy))


def _refuse_immense(ops: OpColumns) -> None:
    immense_rows = np.flatnonzero(ops.message_bytes > MOST_OP_BYTES)
    if len(immense_rows):
        rank, node = int(ops.rank[immense_rows[0]]), int(ops.node_id[immense_rows[0]])
        problem = f"{approximate_bytes(int(ops.message_bytes[immense_rows[0]]))} in one operation"
        more = f" (and {len(immense_rows) - 1} more operations)" if len(immense_rows) > 1 else ""
        remedy = "check the trace's sizes and their unit, or scale the job down with scale.bytes"
        raise PlanError(Problem(f"rank {rank} node {node}", problem + more, remedy))


def _ranks_per_host(group: Communicator, host: Sequence[int]) -> int:
    """Return the number of consecutive members on each host, where the last host may have fewer.

    1 if the members are spread in any other way.
    """
    hosts = [host[rank] for rank in group.members]
    runs = [len(list(run)) for _, run in groupby(hosts)]
    regular = len(set(runs[:-1])) <= 1 and runs[-1] <= runs[0] and len(runs) == len(set(hosts))
    return runs[0] if regular else 1


def _schedule_column(
    program: Program,
    slots: tuple[_Slot, ...],
    part: int,
    rank: RankProgram,
    schedule_set: ScheduleSet,
) -> NDArray[np.int32]:
    column = np.full(len(program), -1, np.int32)
    trace_bytes = _unscaled_bytes(program, rank)
    is_transfer = (program.kind == OpKind.SEND) | (program.kind == OpKind.RECV)
    sizes_of_ops = np.stack([program.message_bytes, trace_bytes], axis=1)
    sizes, inverse = np.unique(sizes_of_ops[is_transfer], axis=0, return_inverse=True)
    sends = [
        schedule_set.index_of_send(op_bytes, unscaled_bytes, part)
        for op_bytes, unscaled_bytes in sizes.tolist()
    ]
    column[is_transfer] = np.array(sends, np.int32)[inverse.reshape(-1)]
    is_collective = program.kind == OpKind.COLLECTIVE
    split = np.full(len(program), -1, np.int32) if rank.splits is None else rank.splits
    requests = np.stack([program.slot, program.collective, split, program.message_bytes, trace_bytes], axis=1)
    distinct, inverse = np.unique(requests.astype(np.int64)[is_collective], axis=0, return_inverse=True)
    index = np.empty(len(distinct), np.int32)
    for row, (slot, kind, matrix, op_bytes, stated_bytes) in enumerate(distinct.tolist()):
        size, ranks_per_host, shaped_as = slots[slot]
        if matrix >= 0:
            index[row] = schedule_set.index_of_splits(matrix, ranks_per_host, shaped_as)
        else:
            group = (size, ranks_per_host)
            index[row] = schedule_set.index_of(kind, group, op_bytes, stated_bytes, shaped_as)
    column[is_collective] = index[inverse.reshape(-1)]
    return column


def _unscaled_bytes(program: Program, rank: RankProgram) -> NDArray[np.int64]:
    """Return the bytes of each op as stated in the trace, or as planned for ops not from a trace, such as barriers between
    jobs."""
    if rank.trace_bytes is None:
        return program.message_bytes
    return np.where(rank.trace_bytes > 0, rank.trace_bytes, program.message_bytes)


def _column_bytes(column: NDArray[np.generic] | None) -> bytes:
    return b"" if column is None else column.tobytes()


def _op_columns(
    job: Job, variants: list[ProgramVariant], variant_of_rank: list[int], uneven: NDArray[np.bool_]
) -> tuple[OpColumns, NDArray[np.int64], NDArray[np.int64]]:
    positions = [{rank: at for at, rank in enumerate(group.members)} for group in job.communicators]
    network = [np.flatnonzero(variant.program.kind != OpKind.DELAY) for variant in variants]
    columns: list[list[NDArray[np.generic]]] = []
    for rank, index in zip(job.ranks, variant_of_rank, strict=True):
        columns.append(_rank_columns(rank, variants[index], network[index], positions))
    (
        ranks,
        op,
        node_id,
        name,
        kind,
        collective,
        communicator,
        position,
        peer,
        sequence,
        size,
        unscaled,
        schedule,
    ) = (np.concatenate([column[at] for column in columns]) for at in range(13))
    is_collective = kind == OpKind.COLLECTIVE
    op_bytes = np.where(uneven[schedule], 0, size)
    keys = np.stack(
        [communicator[is_collective], schedule[is_collective], op_bytes[is_collective]], axis=1
    ).astype(np.int64)
    shape_keys, inverse, members = np.unique(keys, axis=0, return_inverse=True, return_counts=True)
    shape = np.full(len(kind), -1, np.int32)
    shape[is_collective] = inverse.reshape(-1)
    ops = OpColumns(
        rank=ranks.astype(np.int32),
        op=op.astype(np.int32),
        node_id=node_id.astype(np.uint64),
        name=name.astype(np.int32),
        kind=kind.astype(np.uint8),
        collective=collective.astype(np.int8),
        communicator=communicator.astype(np.int32),
        position=position.astype(np.int32),
        peer=peer.astype(np.int32),
        sequence=sequence.astype(np.int32),
        message_bytes=size.astype(np.int64),
        trace_bytes=unscaled.astype(np.int64),
        schedule=schedule.astype(np.int32),
        shape=shape,
    )
    return ops, shape_keys, members.astype(np.int64)


def _rank_columns(
    rank: RankProgram, variant: ProgramVariant, network: NDArray[np.intp], positions: list[dict[int, int]]
) -> list[NDArray[np.generic]]:
    program = variant.program
    kind, slot = program.kind[network], program.slot[network]
    # The last element (-1) is selected for ops of the other kind, whose slot is set to -1 below.
    groups = np.array([*rank.communicators, -1], np.int32)
    places = np.array([*(positions[group][rank.rank] for group in rank.communicators), -1], np.int32)
    peers = np.array([*rank.peers, -1], np.int32)
    group_slot = np.where(kind == OpKind.COLLECTIVE, slot, -1)
    peer_slot = np.where(kind == OpKind.COLLECTIVE, -1, slot)
    return [
        np.full(len(network), rank.rank, np.int32),
        network,
        rank.node_id[network],
        np.full(len(network), -1, np.int32) if rank.name is None else rank.name[network],
        kind,
        program.collective[network],
        groups[group_slot],
        places[group_slot],
        peers[peer_slot],
        program.sequence[network],
        program.message_bytes[network],
        (program.message_bytes if rank.trace_bytes is None else rank.trace_bytes)[network],
        variant.schedule[network],
    ]


def _shapes(
    keys: NDArray[np.int64], members: NDArray[np.int64], tables: ScheduleTables, sizes: NDArray[np.int_]
) -> tuple[Shape, ...]:
    steps = StepTables(tables)
    sends_by_op: dict[tuple[int, int], _Sends] = {}
    shapes = []
    for (communicator, schedule, op_bytes), count in zip(keys.tolist(), members.tolist(), strict=True):
        size = int(sizes[schedule])
        if (schedule, op_bytes) not in sends_by_op:
            sends_by_op[schedule, op_bytes] = _sending_lanes(steps, schedule, op_bytes)
        shapes.append(Shape(communicator, schedule, count // size, *sends_by_op[schedule, op_bytes]))
    return tuple(shapes)


def _sending_lanes(steps: StepTables, schedule: int, op_bytes: int) -> _Sends:
    """Return the sending lanes of a schedule at one byte count, as arrays with one element per lane.

    They are sending position, receiving position, channel (int32) and payload bytes (int64).
    """
    position, send_to, channel, _, tx_bytes, _ = steps.schedule_sends(schedule, op_bytes)
    return position.astype(np.int32), send_to.astype(np.int32), channel.astype(np.int32), tx_bytes


def pair_chunks(job: Job, asked: Asked) -> Iterator[PairColumns]:
    """Yield the pairs of one communicator after another, sends and receives first; concatenated they are the pairs of the
    job."""
    ops, tables, ranks = asked.ops, asked.tables, len(job.ranks)
    # Receives contribute their pair with 0 bytes, so that it is listed even if its sender is not in the job.
    transfers = [
        *_pair_parts(ops, ops.kind == OpKind.SEND, tables, carries=True),
        *_pair_parts(ops, ops.kind == OpKind.RECV, tables, carries=False),
    ]
    if transfers:
        yield _merge(transfers, ranks)
    for communicator, shapes in groupby(asked.shapes, key=lambda shape: shape.communicator):
        group = np.array(job.communicators[communicator].members, np.int32)
        parts = [
            (
                communicator,
                group[shape.src_position],
                group[shape.dst_position],
                shape.channel,
                shape.payload_bytes * shape.ops,
            )
            for shape in shapes
        ]
        yield _merge(parts, ranks)


def _merge(parts: Sequence[_PairPart], ranks: int) -> PairColumns:
    """Merge parts of one communicator into its pairs, each once, with summed bytes."""
    key = np.concatenate(
        [(src.astype(np.int64) * ranks + dst) * _MOST_CHANNELS + channel for _, src, dst, channel, _ in parts]
    )
    unique, inverse = np.unique(key, return_inverse=True)
    payload = np.zeros(len(unique), np.int64)
    np.add.at(payload, inverse.reshape(-1), np.concatenate([part[4] for part in parts]))
    pair = unique // _MOST_CHANNELS
    return PairColumns(
        communicator=np.full(len(unique), parts[0][0], np.int32),
        channel=(unique % _MOST_CHANNELS).astype(np.int32),
        src_rank=(pair // ranks).astype(np.int32),
        dst_rank=(pair % ranks).astype(np.int32),
        payload_bytes=payload,
    )


def _concatenate(chunks: Sequence[PairColumns]) -> PairColumns:
    no_ranks = np.empty(0, np.int32)
    chunks = chunks or [PairColumns(no_ranks, no_ranks, no_ranks, no_ranks, np.empty(0, np.int64))]
    return PairColumns(
        communicator=np.concatenate([chunk.communicator for chunk in chunks]),
        channel=np.concatenate([chunk.channel for chunk in chunks]),
        src_rank=np.concatenate([chunk.src_rank for chunk in chunks]),
        dst_rank=np.concatenate([chunk.dst_rank for chunk in chunks]),
        payload_bytes=np.concatenate([chunk.payload_bytes for chunk in chunks]),
    )


def _pair_parts(
    ops: OpColumns, which: NDArray[np.bool_], tables: ScheduleTables, *, carries: bool
) -> Iterator[_PairPart]:
    """Yield the pairs of the sends or receives selected by `which`, once per schedule and byte count.

    `carries` is true for sends; pairs of receives are turned to the sender's direction and have 0 bytes.
    """
    if not which.any():
        return
    steps = StepTables(tables)
    requests = np.stack([ops.schedule, ops.message_bytes], axis=1).astype(np.int64)[which]
    distinct, inverse = np.unique(requests, axis=0, return_inverse=True)
    rank, peer, inverse = ops.rank[which], ops.peer[which], inverse.reshape(-1)
    for row, (schedule, op_bytes) in enumerate(distinct.tolist()):
        _, _, channel, payload = _sending_lanes(steps, schedule, op_bytes)
        src, dst = (rank, peer) if carries else (peer, rank)
        src, dst = src[inverse == row], dst[inverse == row]
        count, channels = len(src), len(channel)
        yield (
            POINT_TO_POINT,
            np.repeat(src, channels),
            np.repeat(dst, channels),
            np.tile(channel, count),
            np.tile(payload if carries else np.zeros_like(payload), count),
        )
