"""How long each collective took in the recording once its last rank had come: what a replay is compared with.

A recorded kernel mostly waits for other ranks, so the longest durations say nothing about the network. Only the rank
that came last waited for nobody: the time from its begin to the last end is the collective's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from etloop.contract.model.run import RecordedBaselines
from etloop.workload.graph.recorded import MAX_RECORDING_NS, recorded_duration_ns, recorded_start_ns
from etloop.workload.trace.program import OpKind
from etloop.workload.trace.stand_ins import recorded_ranks as stood_for_by
from etloop.workload.trace.trace import ABSENT, RankTrace
from numpy.typing import NDArray

if TYPE_CHECKING:
    from etloop.workload.graph.analysis import Analysis

CLOCK_AGREEMENT_NS: Final = 10_000
"""A collective ends on all ranks within a few microseconds. If all recorded ends do, the ranks had one clock."""

UNKNOWN: Final = -1


def recorded_baselines(analysis: Analysis, sequence: NDArray[np.int32]) -> RecordedBaselines | None:
    """Baseline of every collective and pair that any of its ranks recorded, None if there is none.

    `sequence`: number of each item. Last end minus last begin where all ranks recorded and their clocks agree;
    otherwise the least duration, which is the same but for the spread of the ends. Where some of the ranks recorded
    nothing the last to come may be among them, so the least duration is an upper bound.
    """
    matching = analysis.matching
    item, duration_ns, start_ns = _rows(analysis)
    # A receive goes with its send.
    joined = np.arange(matching.item_count, dtype=np.int64)
    joined[matching.recvs] = matching.sends
    item = joined[item]
    timed = np.flatnonzero(duration_ns > 0)
    item, duration_ns, start_ns = item[timed], duration_ns[timed], start_ns[timed]
    recorded_ranks = np.bincount(item, minlength=matching.item_count).astype(np.int64)
    participants = _participants(analysis)
    known = np.flatnonzero((recorded_ranks > 0) & (participants > 1))
    if not len(known):
        return None
    count = matching.item_count
    baseline_ns = _extreme(np.minimum, item, duration_ns, count)
    if (start_ns != ABSENT).all():
        end_ns = start_ns + duration_ns
        last_end = _extreme(np.maximum, item, end_ns, count)
        spread_ns = (last_end - _extreme(np.minimum, item, end_ns, count))[known]
        if (spread_ns <= CLOCK_AGREEMENT_NS).all():
            by_clock = last_end - _extreme(np.maximum, item, start_ns, count)
            baseline_ns = np.where(recorded_ranks == participants, by_clock, baseline_ns)
    return _columns(analysis, known, sequence, baseline_ns, recorded_ranks)


def _rows(analysis: Analysis) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Item, recorded duration (0: unknown) and begin of every operation of every rank. A replica recorded nothing."""
    durations, starts = [], []
    recorded = _recorded(analysis)
    for number in recorded:
        rank, ops = analysis.trace.ranks[number], analysis.ops[number]
        duration_ns = recorded_duration_ns(rank)[ops.node]
        believable = (duration_ns >= 0) & (duration_ns <= MAX_RECORDING_NS)
        durations.append(np.where(believable, duration_ns, 0))
        starts.append(_starts_ns(rank)[ops.node])
    return (
        _joined([analysis.matching.item[number] for number in recorded]),
        _joined(durations),
        _joined(starts),
    )


def _recorded(analysis: Analysis) -> list[int]:
    """The ranks that were recorded themselves."""
    settings = analysis.settings
    if settings.stand_ins:
        return sorted(set(stood_for_by(settings.stand_ins)))
    return [0] if settings.replicate_ranks is not None else list(range(len(analysis.ops)))


def _starts_ns(rank: RankTrace) -> NDArray[np.int64]:
    start_ns = recorded_start_ns(rank)
    if start_ns is None:
        return np.full(len(rank), ABSENT, dtype=np.int64)
    return np.where((start_ns >= 0) & (start_ns <= 1 << 62), start_ns, ABSENT)


def _joined(columns: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    return np.concatenate([np.zeros(0, dtype=np.int64), *columns])


def _participants(analysis: Analysis) -> NDArray[np.int64]:
    """Per item, how many ranks take part: the members of a collective, both ends of a pair."""
    count = np.zeros(analysis.matching.item_count, dtype=np.int64)
    members = np.array([len(one.members) for one in analysis.communicators], dtype=np.int64)
    for ops, item, communicator in zip(
        analysis.ops, analysis.matching.item, analysis.communicator_of, strict=True
    ):
        is_collective = ops.kind == OpKind.COLLECTIVE
        count[item[is_collective]] = members[communicator[is_collective]]
        count[item[ops.kind == OpKind.SEND]] = 2
    return count


def _extreme(
    chosen: np.ufunc, item: NDArray[np.int64], values: NDArray[np.int64], count: int
) -> NDArray[np.int64]:
    limits = np.iinfo(np.int64)
    found = np.full(count, limits.max if chosen is np.minimum else limits.min, dtype=np.int64)
    chosen.at(found, item, values)
    return found


def _columns(
    analysis: Analysis,
    known: NDArray[np.int64],
    sequence: NDArray[np.int32],
    baseline_ns: NDArray[np.int64],
    recorded_ranks: NDArray[np.int64],
) -> RecordedBaselines:
    count = analysis.matching.item_count
    communicator, src, dst = (np.full(count, UNKNOWN, dtype=np.int32) for _ in range(3))
    for ops, item, own in zip(analysis.ops, analysis.matching.item, analysis.communicator_of, strict=True):
        communicator[item] = own
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
