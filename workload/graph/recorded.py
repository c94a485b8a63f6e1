"""What the recording of a rank says about time, and how a replay keeps it (dependency policy `recorded`).

Decides which columns hold times and what is believable, and turns the time between what a node waited for and its begin
into a delay. Recorded durations of network operations only tell where the gap behind them began; how long they take is
up to the network. Times of different ranks are never compared here: their clocks need not agree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.trace.contraction import Dag
from etloop.workload.trace.findings import Check, FindingLog, RankFindings, node_example
from etloop.workload.trace.shared_columns import offsets_of
from etloop.workload.trace.trace import ABSENT, RankTrace

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_RECORDING_NS: Final = 7 * 24 * 3600 * 10**9
"""A week; recordings are of a few steps, and times beyond it would leave the range of an int64 in sums."""

ROUNDING_NS: Final = 2000
"""Profilers write begin and duration in whole microseconds, each rounded for itself."""

MAX_STREAMS: Final = 64
"""Streams of one rank between which waits are looked for, the lowest numbers; GPUs run a few dozen."""

_NS_PER_US: Final = 1000
_MOST_NS: Final = 1 << 62
_MOST_US: Final = _MOST_NS // _NS_PER_US


def recorded_start_ns(rank: RankTrace) -> NDArray[np.int64] | None:
    """Recorded begin of each node, `ABSENT` where unknown; None if the rank has none.

    A `.et` file has microseconds, 0 standing for unknown; what is told in ns goes first.
    """
    known = rank.start_us > 0
    whole_us = np.where(known, np.minimum(rank.start_us, _MOST_US).astype(np.int64) * _NS_PER_US, ABSENT)
    start_ns = whole_us
    if rank.start_ns is not None:
        start_ns = np.where(rank.start_ns == ABSENT, whole_us, np.clip(rank.start_ns, -_MOST_NS, _MOST_NS))
    return start_ns if (start_ns != ABSENT).any() else None


def recorded_duration_ns(rank: RankTrace) -> NDArray[np.int64]:
    """Recorded duration of each node, 0 where unknown."""
    whole_us = np.minimum(rank.duration_us, _MOST_US).astype(np.int64) * _NS_PER_US
    if rank.duration_ns is None:
        return whole_us
    return np.where(rank.duration_ns == ABSENT, whole_us, np.clip(rank.duration_ns, -_MOST_NS, _MOST_NS))


@dataclass(frozen=True, slots=True, eq=False)
class RecordedTimes:
    """A rank's recording, begun at its own first node: columns over its nodes."""

    start_ns: NDArray[np.int64]
    """-1 where unknown."""
    end_ns: NDArray[np.int64]
    """Recorded end; -1 where the begin is unknown."""

    @property
    def known(self) -> NDArray[np.bool_]:
        return self.start_ns >= 0


def recorded_times(rank: RankTrace) -> RecordedTimes | None:
    """The recording of a rank, None if it has none or one that cannot be true (`report_times` tells which)."""
    start_ns = recorded_start_ns(rank)
    if start_ns is None or _unbelievable(rank, start_ns).any():
        return None
    known = start_ns != ABSENT
    since_first = np.where(known, start_ns - start_ns[known].min(), -1)
    return RecordedTimes(since_first, np.where(known, since_first + recorded_duration_ns(rank), -1))


def _unbelievable(rank: RankTrace, start_ns: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Nodes whose times no recording of a training step can have."""
    known = start_ns != ABSENT
    first = int(start_ns[known].min())
    late = known & (start_ns > min(first + MAX_RECORDING_NS, 1 << 62))
    duration_ns = recorded_duration_ns(rank)
    early = known & (start_ns < 0)
    wrong: NDArray[np.bool_] = early | late | (known & ((duration_ns < 0) | (duration_ns > MAX_RECORDING_NS)))
    return wrong


def report_times(rank: RankTrace, log: FindingLog) -> None:
    """Notes what keeps a rank from being replayed with its recorded gaps."""
    start_ns = recorded_start_ns(rank)
    if start_ns is None:
        if len(rank):
            remedy = 'leave "recorded" out of the dependencies, or give the Kineto trace of the same run'
            log.add(
                Check.NO_TIMES, remedy, node_example(rank, 0, "recorded start times", "none on this rank")
            )
        return
    first_ns, duration_ns = int(start_ns[start_ns != ABSENT].min()), recorded_duration_ns(rank)
    RankFindings(rank, log).add(
        Check.RECORDED_RANGE,
        "correct the times, or leave recorded gaps out of the dependencies",
        np.flatnonzero(_unbelievable(rank, start_ns)),
        "start times and durations within one week",
        lambda node: (
            f"start {int(start_ns[node])} ns, duration {int(duration_ns[node])} ns, first of the rank {first_ns} ns"
        ),
    )


def overlapped_edges(
    rank: RankTrace, times: RecordedTimes, waiting: NDArray[np.int64], awaited: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Edges that the recording contradicts: the waiting node began while the awaited one still ran.

    A caller's edge to what it called is such a one. It can only mean that one begins after the other began. Nodes of
    one stream overlap by no more than the rounding of their times.
    """
    overlaps = times.known[waiting] & times.known[awaited]
    overlaps &= times.end_ns[awaited] > times.start_ns[waiting] + ROUNDING_NS
    if rank.stream is not None:
        on_stream = rank.stream[waiting] != ABSENT
        overlaps &= ~(on_stream & (rank.stream[waiting] == rank.stream[awaited]))
    return overlaps


def waits_between_streams(
    rank: RankTrace, times: RecordedTimes, order: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(earlier, later) nodes where a stream stood still until another one had finished something.

    The waits of a stream for events of another are in no trace. What they did is: a stream idles, a node of another
    stream ends, and then the first goes on. Per idle time and other stream the last such end is taken as awaited; what
    ended before is behind it on its own stream. A wait that held nothing up in the recording leaves no mark.
    """
    nothing = np.zeros(0, dtype=np.int64)
    if rank.stream is None:
        return nothing, nothing
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    on_stream = order[(rank.stream[order] != ABSENT) & times.known[order]]
    streams = np.unique(rank.stream[on_stream]).tolist()[:MAX_STREAMS]
    by_stream = {one: on_stream[rank.stream[on_stream] == one] for one in streams}
    earlier, later = [nothing], [nothing]
    for own, nodes in by_stream.items():
        idle_from = np.concatenate([[-1], np.maximum.accumulate(times.end_ns[nodes])[:-1]])
        for other, others in by_stream.items():
            if other == own:
                continue
            ends = np.argsort(times.end_ns[others], kind="stable")
            at = np.searchsorted(times.end_ns[others[ends]], times.start_ns[nodes], side="right") - 1
            last = others[ends[np.maximum(at, 0)]]
            held = (at >= 0) & (times.end_ns[last] > idle_from) & (place[last] < place[nodes])
            earlier.append(last[held])
            later.append(nodes[held])
    return np.concatenate(earlier), np.concatenate(later)


@dataclass(frozen=True, slots=True, eq=False)
class Paced:
    """A graph with its recorded gaps as delays."""

    dag: Dag
    source: NDArray[np.int64]
    """Node of the graph without gaps that each node is, or that it is the gap before."""
    is_gap: NDArray[np.bool_]


def paced(
    dag: Dag, begin_only: NDArray[np.bool_], start_ns: NDArray[np.int64], op_ns: NDArray[np.int64]
) -> Paced:
    """Puts the time that passed between what a node waited for and its begin before it, as a delay.

    `begin_only`: per edge, whether it waits for the begin of the other node instead of its end. `start_ns`: recorded
    begins, -1 where unknown. `op_ns`: how long the operations took in the recording; only to find the gap behind them.
    If every operation takes that long again, every node starts when it was recorded, or later where what it waits for
    ended later.
    """
    gap_ns, marked = _gaps(dag, begin_only, start_ns, op_ns)
    deps, soft, offsets = dag.deps.tolist(), begin_only.tolist(), dag.dep_offsets.tolist()
    begin_of, end_of = [0] * len(dag), [0] * len(dag)
    source: list[int] = []
    rows: list[list[int]] = []
    for node in range(len(dag)):
        awaited = sorted(
            {
                begin_of[deps[edge]] if soft[edge] else end_of[deps[edge]]
                for edge in range(offsets[node], offsets[node + 1])
            }
        )
        if gap_ns[node] or marked[node]:
            begin_of[node] = len(source)
            source.append(node)
            rows.append(awaited)
            awaited = [begin_of[node]]
        end_of[node] = len(source)
        source.append(node)
        rows.append(awaited)
    at = np.array(source, dtype=np.int64)
    is_gap = np.ones(len(source), dtype=np.bool_)
    is_gap[end_of] = False
    return Paced(
        Dag(
            dag.is_op[at] & ~is_gap,
            np.where(is_gap, np.array(gap_ns, dtype=np.int64)[at], dag.delay_ns[at]),
            offsets_of([len(row) for row in rows]),
            np.array([one for row in rows for one in row], dtype=np.int64),
        ),
        at,
        is_gap,
    )


def _gaps(
    dag: Dag, begin_only: NDArray[np.bool_], start_ns: NDArray[np.int64], op_ns: NDArray[np.int64]
) -> tuple[list[int], list[bool]]:
    """Per node its gap, and whether another waits for its begin."""
    deps, soft, offsets = dag.deps.tolist(), begin_only.tolist(), dag.dep_offsets.tolist()
    starts, takes_ns = start_ns.tolist(), np.where(dag.is_op, op_ns, dag.delay_ns).tolist()
    begin, end = [0] * len(dag), [0] * len(dag)
    gap_ns, marked = [0] * len(dag), [False] * len(dag)
    for node, start in enumerate(starts):
        ready = 0
        for edge in range(offsets[node], offsets[node + 1]):
            awaited = deps[edge]
            marked[awaited] = marked[awaited] or soft[edge]
            ready = max(ready, begin[awaited] if soft[edge] else end[awaited])
        # A begin before what it waits for ended is rounding; the next gap is measured from where that leaves it.
        gap_ns[node] = max(start - ready, 0)
        begin[node] = ready + gap_ns[node]
        end[node] = begin[node] + takes_ns[node]
    return gap_ns, marked
