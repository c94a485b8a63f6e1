"""Computes how long each collective took in the recording once its last rank had joined: the reference for a replay.

Most of a recorded kernel's duration is waiting for other ranks, so the longest durations do not describe the
network. Only the rank that joined last did not wait: the time from its start to the last end is the duration of the
collective.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from etloop.contract.model.run import RecordedBaselines
from etloop.workload.graph.recorded import MAX_RECORDING_NS, recorded_duration_ns, recorded_start_ns
from etloop.workload.trace.program import OpKind
from etloop.workload.trace.rank_aliases import recorded_ranks as stood_for_by
from etloop.workload.trace.trace import ABSENT, RankTrace

if TYPE_CHECKING:
    from etloop.workload.graph.analysis import Analysis

CLOCK_AGREEMENT_NS: Final = 10_000
"""Largest spread of recorded ends at which the ranks' clocks count as one. A collective ends on all ranks within a few
microseconds."""

UNKNOWN: Final = -1


def recorded_baselines(analysis: Analysis, sequence: NDArray[np.int32]) -> RecordedBaselines | None:
    """Return the baseline of every collective and send-receive pair that some rank recorded, or None if there is none.

    `sequence` holds the number of each item. The baseline is the last end minus the last start if all ranks were
    recorded and their clocks agree; otherwise it is the least duration, which differs only by the spread of the
    ends. If some ranks were not recorded, the last to join may be among them, so the least duration is an upper
    bound.
    """
    matching = analysis.matching
    item, duration_ns, start_ns = _rows(analysis)
    # A receive shares the item of its send.
    item_of = np.arange(matching.item_count, dtype=np.int64)
    item_of[matching.recvs] = matching.sends
    item = item_of[item]
    timed = np.flatnonzero(duration_ns > 0)
    item, duration_ns, start_ns = item[timed], duration_ns[timed], start_ns[timed]
    recorded_ranks = np.bincount(item, minlength=matching.item_count).astype(np.int64)
    participants = _participants(analysis)
    recorded_items = np.flatnonzero((recorded_ranks > 0) & (participants > 1))
    if not len(recorded_items):
        return None
    count = matching.item_count
    baseline_ns = _reduce_by_item(np.minimum, item, duration_ns, count)
    if (start_ns != ABSENT).all():
        end_ns = start_ns + duration_ns
        last_end = _reduce_by_item(np.maximum, item, end_ns, count)
        spread_ns = (last_end - _reduce_by_item(np.minimum, item, end_ns, count))[recorded_items]
        if (spread_ns <= CLOCK_AGREEMENT_NS).all():
            by_clock = last_end - _reduce_by_item(np.maximum, item, start_ns, count)
            baseline_ns = np.where(recorded_ranks == participants, by_clock, baseline_ns)
    return _columns(analysis, recorded_items, sequence, baseline_ns, recorded_ranks)


def _rows(analysis: Analysis) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return item, recorded duration in ns (0: unknown) and start in ns of every operation of the recorded ranks, each
    int64 [operations]. Replicas are left out, because they were not recorded."""
    durations, starts = [], []
    rank_numbers = _recorded_ranks(analysis)
    for number in rank_numbers:
        rank, ops = analysis.trace.ranks[number], analysis.ops[number]
        duration_ns = recorded_duration_ns(rank)[ops.node]
        plausible = (duration_ns >= 0) & (duration_ns <= MAX_RECORDING_NS)
        durations.append(np.where(plausible, duration_ns, 0))
        starts.append(_starts_ns(rank)[ops.node])
    return (
        _concatenate([analysis.matching.item[number] for number in rank_numbers]),
        _concatenate(durations),
        _concatenate(starts),
    )


def _recorded_ranks(analysis: Analysis) -> list[int]:
    """Return the ranks that were recorded themselves, ascending."""
    settings = analysis.settings
    if settings.stand_ins:
        return sorted(set(stood_for_by(settings.stand_ins)))
    return [0] if settings.replicate_ranks is not None else list(range(len(analysis.ops)))


def _starts_ns(rank: RankTrace) -> NDArray[np.int64]:
    start_ns = recorded_start_ns(rank)
    if start_ns is None:
        return np.full(len(rank), ABSENT, dtype=np.int64)
    return np.where((start_ns >= 0) & (start_ns <= 1 << 62), start_ns, ABSENT)


def _concatenate(columns: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    return np.concatenate([np.zeros(0, dtype=np.int64), *columns])


def _participants(analysis: Analysis) -> NDArray[np.int64]:
    """Return the number of ranks per item: the members of a collective, 2 for a send, int64 [items]."""
    count = np.zeros(analysis.matching.item_count, dtype=np.int64)
    members = np.array([len(group.members) for group in analysis.communicators], dtype=np.int64)
    for ops, item, communicator in zip(
        analysis.ops, analysis.matching.item, analysis.communicator_of, strict=True
    ):
        is_collective = ops.kind == OpKind.COLLECTIVE
        count[item[is_collective]] = members[communicator[is_collective]]
        count[item[ops.kind == OpKind.SEND]] = 2
    return count


def _reduce_by_item(
    chosen: np.ufunc, item: NDArray[np.int64], values: NDArray[np.int64], count: int
) -> NDArray[np.int64]:
    limits = np.iinfo(np.int64)
    extremes = np.full(count, limits.max if chosen is np.minimum else limits.min, dtype=np.int64)
    chosen.at(extremes, item, values)
    return extremes


def _columns(
    analysis: Analysis,
    known: NDArray[np.int64],
    sequence: NDArray[np.int32],
    baseline_ns: NDArray[np.int64],
    recorded_ranks: NDArray[np.int64],
) -> RecordedBaselines:
    count = analysis.matching.item_count
    communicator, src, dst = (np.full(count, UNKNOWN, dtype=np.int32) for _ in range(3))
    for ops, item, op_communicator in zip(
        analysis.ops, analysis.matching.item, analysis.communicator_of, strict=True
    ):
        communicator[item] = op_communicator
        src[item] = ops.src
        dst[item] = ops.dst
    return RecordedBaselines(
        communicator=communicator[known],
        src_rank=src[known],
        dst_rank=dst[known],
        sequence=sequence[known],
        recorded_ns=baseline_ns[known],
        recorded_ranks=recorded_ranks[known].astype(np.int32),
    )
