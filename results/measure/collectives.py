"""Combines the ops of all members of one collective (or a send and its receive): time, skew, bandwidth.

Decides which ops form one collective and when it counts as complete. Statistics over many of them are in `kind_tally.py`.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

import numpy as np

from etloop.contract.base.late_dataclass import dataclass
from etloop.results.measure.joined import MeasuredOps
from etloop.results.schema.kinds import SEND_RECV, OpCode, SizeRule, bus_factor, kinds_where

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from etloop.contract.model.run import PlannedOps, PlanTables, RecordedBaselines


@dataclass(frozen=True, slots=True, eq=False)
class PlannedGroups:
    """Planned ops that form one group in every iteration: first the collectives by (communicator, sequence), then the
    pairs by (source, destination, sequence)."""

    group_of_op: NDArray[np.int64]
    """Group of each row of `PlanTables.ops`."""
    kind_of_op: NDArray[np.uint8]
    """`OpCode` of each row of `PlanTables.ops`."""
    first_op: NDArray[np.int64]
    """First row of each group in `PlanTables.ops`."""
    kind: NDArray[np.int64]
    """Index into `kinds.CONVENTIONS`."""
    communicator: NDArray[np.int64]
    """-1 for a pair."""
    src_rank: NDArray[np.int64]
    """-1 for a collective."""
    dst_rank: NDArray[np.int64]
    sequence: NDArray[np.int64]
    name: NDArray[np.int32]
    """Index into `PlanTables.op_names` of the name in the first member's trace; -1 if it has none."""
    algorithm: NDArray[np.int64]
    ranks: NDArray[np.int64]
    """n: members of the communicator, 2 for a pair."""
    size_bytes: NDArray[np.int64]
    """S, by the convention of the kind."""
    recorded_ns: NDArray[np.int64]
    """Baseline of the trace; -1 if it has none."""
    recorded_ranks: NDArray[np.int64]
    """Ranks with a recorded time; if fewer than all, the baseline is an upper bound. 0 without baseline."""


@dataclass(frozen=True, slots=True, eq=False)
class CollectiveRows:
    """One row per iteration and group with at least one recorded member, sorted by (iteration, group)."""

    iteration: NDArray[np.int64]
    group: NDArray[np.int64]
    """Index into `PlannedGroups`."""
    members_recorded: NDArray[np.int64]
    complete: NDArray[np.bool_]
    """Whether all n members left a record."""
    start_ns: NDArray[np.int64]
    last_issued_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    sent_bytes: NDArray[np.int64]
    """Payload that members sent, on any path."""
    fabric_bytes: NDArray[np.int64]
    """S_fabric: the part of it that crossed the device under test."""
    messages: NDArray[np.int64]
    algbw: NDArray[np.float64]
    """Bytes per second; NaN if the row is incomplete, or has no bytes or no time."""
    busbw: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.iteration)

    @property
    def time_ns(self) -> NDArray[np.int64]:
        """Return the time from the first member's issue (for a pair from that of the send) to the last member's completion."""
        return self.end_ns - self.start_ns

    @property
    def joined_ns(self) -> NDArray[np.int64]:
        """Return the time from the last member's issue to the last member's completion, which a baseline is compared with."""
        return self.end_ns - self.last_issued_ns

    @property
    def skew_ns(self) -> NDArray[np.int64]:
        """Return the time from the first member's issue to the last member's issue."""
        return self.last_issued_ns - self.start_ns


def joined_rows(parts: Sequence[CollectiveRows]) -> CollectiveRows:
    """Return the rows of several blocks of iterations as one, in their order; there must be at least one block."""
    if len(parts) == 1:
        return parts[0]
    names = (field.name for field in fields(CollectiveRows))
    return CollectiveRows(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})


def group_ops(tables: PlanTables) -> PlannedGroups:
    """Return the groups that planned ops form, with the properties of each group."""
    ops = tables.ops
    is_collective = ops.kind == OpCode.COLLECTIVE
    receives = ops.kind == OpCode.RECEIVE
    pair_source = np.where(receives, ops.peer, ops.rank)
    pair_destination = np.where(receives, ops.rank, ops.peer)
    identity = np.stack(
        [
            np.where(is_collective, 0, 1),
            np.where(is_collective, ops.communicator, pair_source),
            np.where(is_collective, -1, pair_destination),
            ops.sequence,
        ],
        axis=1,
    ).astype(np.int64)
    unique, first_op, group_of_op = np.unique(identity, axis=0, return_index=True, return_inverse=True)
    group_of_op = group_of_op.reshape(-1).astype(np.int64)
    pair = unique[:, 0] == 1
    member_counts = np.array([len(members) for _, members in tables.communicators] or [0], np.int64)
    kind = np.where(pair, SEND_RECV, ops.collective[first_op]).astype(np.int64)
    communicator = np.where(pair, -1, unique[:, 1])
    recorded_ns, recorded_ranks = _recorded_baselines(tables.baselines, unique)
    return PlannedGroups(
        group_of_op=group_of_op,
        kind_of_op=ops.kind,
        first_op=first_op.astype(np.int64),
        kind=kind,
        communicator=communicator,
        src_rank=np.where(pair, unique[:, 1], -1),
        dst_rank=np.where(pair, unique[:, 2], -1),
        sequence=unique[:, 3],
        name=ops.name[first_op],
        algorithm=ops.algorithm[first_op].astype(np.int64),
        ranks=np.where(pair, 2, member_counts[communicator]),
        size_bytes=_group_sizes(ops, group_of_op, kind),
        recorded_ns=recorded_ns,
        recorded_ranks=recorded_ranks,
    )


def _recorded_baselines(
    baselines: RecordedBaselines | None, identity: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the baseline of each group (-1 if none) and the number of ranks with a recorded time; rows of `identity` are
    ascending and distinct."""
    recorded_ns, recorded_ranks = np.full(len(identity), -1, np.int64), np.zeros(len(identity), np.int64)
    if baselines is None:
        return recorded_ns, recorded_ranks
    pair = baselines.communicator < 0
    baseline_identity = np.stack(
        [
            pair,
            np.where(pair, baselines.src_rank, baselines.communicator),
            np.where(pair, baselines.dst_rank, -1),
            baselines.sequence,
        ],
        axis=1,
    ).astype(np.int64)
    _, number = np.unique(np.concatenate([identity, baseline_identity]), axis=0, return_inverse=True)
    number = number.reshape(-1)
    row = np.full(int(number.max(initial=-1)) + 1, -1)
    row[number[: len(identity)]] = np.arange(len(identity))
    group_row = row[number[len(identity) :]]
    recorded_ns[group_row[group_row >= 0]] = baselines.recorded_ns[group_row >= 0]
    recorded_ranks[group_row[group_row >= 0]] = baselines.recorded_ranks[group_row >= 0]
    return recorded_ns, recorded_ranks


def _group_sizes(
    ops: PlannedOps, group_of_op: NDArray[np.int64], kind: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return S of each group by the convention of its kind (int64)."""
    total = np.zeros(len(kind), np.int64)
    largest = np.zeros(len(kind), np.int64)
    np.add.at(total, group_of_op, ops.message_bytes)
    np.maximum.at(largest, group_of_op, ops.message_bytes)
    size_bytes = np.where(kinds_where(SizeRule.TOTAL)[kind], total, largest)
    return np.where(kinds_where(SizeRule.NOTHING)[kind], 0, size_bytes)


def measure_groups(measured: MeasuredOps, groups: PlannedGroups) -> CollectiveRows:
    """Return one row per iteration and group from the records of the members."""
    group_count = len(groups.kind)
    records = measured.records
    key = records["iteration"].astype(np.int64) * group_count + groups.group_of_op[measured.plan_row]
    cells, cell_of_record, recorded = np.unique(key, return_inverse=True, return_counts=True)
    start_ns = np.full(len(cells), np.iinfo(np.int64).max)
    last_issued_ns = np.full(len(cells), np.iinfo(np.int64).min)
    end_ns = last_issued_ns.copy()
    fabric_bytes, local_bytes, messages = (np.zeros(len(cells), np.int64) for _ in range(3))
    # A receive is posted before its data is sent: a transfer begins with its send, or with the receive if the send has no
    # record.
    begins = groups.kind_of_op[measured.plan_row] != OpCode.RECEIVE
    np.minimum.at(start_ns, cell_of_record[begins], records["issued_ns"][begins])
    np.maximum.at(last_issued_ns, cell_of_record, records["issued_ns"])
    has_no_send = start_ns == np.iinfo(np.int64).max
    start_ns[has_no_send] = last_issued_ns[has_no_send]
    np.maximum.at(end_ns, cell_of_record, records["completed_ns"])
    np.add.at(fabric_bytes, cell_of_record, records["wire_tx_bytes"])
    np.add.at(local_bytes, cell_of_record, records["local_tx_bytes"])
    np.add.at(messages, cell_of_record, records["tx_messages"])
    iteration, group = np.divmod(cells, max(group_count, 1))
    complete = recorded == groups.ranks[group]
    time_ns = end_ns - start_ns
    size_bytes = groups.size_bytes[group]
    usable = complete & (time_ns > 0) & (size_bytes > 0)
    algbw = np.full(len(cells), np.nan)
    algbw[usable] = size_bytes[usable] * 1e9 / time_ns[usable]
    return CollectiveRows(
        iteration=iteration,
        group=group,
        members_recorded=recorded.astype(np.int64),
        complete=complete,
        start_ns=start_ns,
        last_issued_ns=last_issued_ns,
        end_ns=end_ns,
        sent_bytes=fabric_bytes + local_bytes,
        fabric_bytes=fabric_bytes,
        messages=messages,
        algbw=algbw,
        busbw=algbw * bus_factor(groups.kind[group], groups.ranks[group]),
    )
