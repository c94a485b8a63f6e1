"""Reads the times in a rank's recording and keeps its gaps in a replay (dependency policy `recorded`).

Decides which columns hold times and which values are plausible, and turns the time between the end of a node's
dependencies and its start into a delay. Recorded durations of network operations only locate the start of the gap
after them; in a replay the network decides how long they take. Times of different ranks are never compared here,
because their clocks may differ.
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
"""One week. Recordings cover a few steps, and later times would exceed the int64 range in sums."""

ROUNDING_NS: Final = 2000
"""Tolerance for profilers that round start and duration to whole microseconds independently."""

MAX_STREAMS: Final = 64
"""Number of streams of a rank between which waits are searched, lowest stream numbers first; GPUs run a few dozen."""

_NS_PER_US: Final = 1000
_MOST_NS: Final = 1 << 62
_MOST_US: Final = _MOST_NS // _NS_PER_US


def recorded_start_ns(rank: RankTrace) -> NDArray[np.int64] | None:
    """Return the recorded start of each node in ns, int64 [nodes], `ABSENT` where unknown; None if the rank has none.

    A `.et` file has microseconds, with 0 for unknown; a start given in ns takes precedence.
    """
    has_start = rank.start_us > 0
    whole_us = np.where(has_start, np.minimum(rank.start_us, _MOST_US).astype(np.int64) * _NS_PER_US, ABSENT)
    start_ns = whole_us
    if rank.start_ns is not None:
        start_ns = np.where(rank.start_ns == ABSENT, whole_us, np.clip(rank.start_ns, -_MOST_NS, _MOST_NS))
    return start_ns if (start_ns != ABSENT).any() else None


def recorded_duration_ns(rank: RankTrace) -> NDArray[np.int64]:
    """Return the recorded duration of each node in ns, int64 [nodes]; 0 where unknown."""
    whole_us = np.minimum(rank.duration_us, _MOST_US).astype(np.int64) * _NS_PER_US
    if rank.duration_ns is None:
        return whole_us
    return np.where(rank.duration_ns == ABSENT, whole_us, np.clip(rank.duration_ns, -_MOST_NS, _MOST_NS))


@dataclass(frozen=True, slots=True, eq=False)
class RecordedTimes:
    """A rank's recording, relative to the start of its first node: columns over its nodes."""

    start_ns: NDArray[np.int64]
    """-1 where unknown."""
    end_ns: NDArray[np.int64]
    """Recorded end; -1 where the start is unknown."""

    @property
    def known(self) -> NDArray[np.bool_]:
        """Return a mask of the nodes that have a recorded start."""
        return self.start_ns >= 0


def recorded_times(rank: RankTrace) -> RecordedTimes | None:
    """Return the recording of a rank, or None if it has none or has implausible times (which `report_times` reports)."""
    start_ns = recorded_start_ns(rank)
    if start_ns is None or _implausible(rank, start_ns).any():
        return None
    has_start = start_ns != ABSENT
    since_first = np.where(has_start, start_ns - start_ns[has_start].min(), -1)
    return RecordedTimes(since_first, np.where(has_start, since_first + recorded_duration_ns(rank), -1))


def _implausible(rank: RankTrace, start_ns: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return a mask of the nodes whose times cannot belong to the recording of a training step."""
    has_start = start_ns != ABSENT
    first = int(start_ns[has_start].min())
    late = has_start & (start_ns > min(first + MAX_RECORDING_NS, 1 << 62))
    duration_ns = recorded_duration_ns(rank)
    early = has_start & (start_ns < 0)
    implausible: NDArray[np.bool_] = (
        early | late | (has_start & ((duration_ns < 0) | (duration_ns > MAX_RECORDING_NS)))
    )
    return implausible


def report_times(rank: RankTrace, log: FindingLog) -> None:
    """Report why a rank cannot be replayed with its recorded gaps: no times, or implausible ones."""
    start_ns = recorded_start_ns(rank)
    if start_ns is None:
        if len(rank):
            remedy = 'remove "recorded" from the dependencies, or give the Kineto trace of the same run'
            log.add(
                Check.NO_TIMES, remedy, node_example(rank, 0, "recorded start times", "none on this rank")
            )
        return
    first_ns, duration_ns = int(start_ns[start_ns != ABSENT].min()), recorded_duration_ns(rank)
    RankFindings(rank, log).add(
        Check.RECORDED_RANGE,
        "correct the times, or remove recorded from the dependencies",
        np.flatnonzero(_implausible(rank, start_ns)),
        "start times and durations within one week",
        lambda node: (
            f"start {int(start_ns[node])} ns, duration {int(duration_ns[node])} ns, first of the rank {first_ns} ns"
        ),
    )


def overlapped_edges(
    rank: RankTrace, times: RecordedTimes, waiting: NDArray[np.int64], awaited: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return a mask of edges that the recording contradicts: the waiting node started while the awaited one was still
    running.

    The edge from a caller to its callee is an example; it can only mean that one starts after the other started.
    Nodes of one stream overlap at most by the rounding of their times.
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
    """Return (earlier, later) nodes where a stream idled until another stream finished a node, each int64 [waits].

    Traces do not contain the waits of a stream for events of another. Their effect is visible: a stream idles, a
    node of another stream ends, and the first stream continues. For each idle period and other stream, the last such
    end counts as awaited; earlier ends precede it on their own stream. A wait that delayed no node in the recording
    is not detected.
    """
    no_nodes = np.zeros(0, dtype=np.int64)
    if rank.stream is None:
        return no_nodes, no_nodes
    order_index = np.empty(len(order), dtype=np.int64)
    order_index[order] = np.arange(len(order))
    on_stream = order[(rank.stream[order] != ABSENT) & times.known[order]]
    streams = np.unique(rank.stream[on_stream]).tolist()[:MAX_STREAMS]
    by_stream = {stream: on_stream[rank.stream[on_stream] == stream] for stream in streams}
    earlier, later = [no_nodes], [no_nodes]
    for stream, nodes in by_stream.items():
        idle_from = np.concatenate([[-1], np.maximum.accumulate(times.end_ns[nodes])[:-1]])
        for other_stream, other_nodes in by_stream.items():
            if other_stream == stream:
                continue
            by_end = np.argsort(times.end_ns[other_nodes], kind="stable")
            index = (
                np.searchsorted(times.end_ns[other_nodes[by_end]], times.start_ns[nodes], side="right") - 1
            )
            last_ended = other_nodes[by_end[np.maximum(index, 0)]]
            is_wait = (
                (index >= 0)
                & (times.end_ns[last_ended] > idle_from)
                & (order_index[last_ended] < order_index[nodes])
            )
            earlier.append(last_ended[is_wait])
            later.append(nodes[is_wait])
    return np.concatenate(earlier), np.concatenate(later)


@dataclass(frozen=True, slots=True, eq=False)
class Paced:
    """A graph with its recorded gaps as delays."""

    dag: Dag
    source: NDArray[np.int64]
    """For each node, the node of the graph without gaps that it is, or that it precedes as a gap."""
    is_gap: NDArray[np.bool_]


def insert_gaps(
    dag: Dag, begin_only: NDArray[np.bool_], start_ns: NDArray[np.int64], op_ns: NDArray[np.int64]
) -> Paced:
    """Insert the recorded gap between the end of a node's dependencies and its start in front of the node, as a delay.

    `begin_only` (bool [edges]): whether the edge waits for the start of the awaited node instead of its end.
    `start_ns`: recorded starts, -1 where unknown. `op_ns`: recorded durations of the operations, used only to
    compute the gap after them. If every operation takes its recorded time again, every node starts when it was
    recorded, or later if its dependencies ended later.
    """
    gap_ns, begin_awaited = _gaps(dag, begin_only, start_ns, op_ns)
    deps, waits_for_begin, offsets = dag.deps.tolist(), begin_only.tolist(), dag.dep_offsets.tolist()
    begin_of, end_of = [0] * len(dag), [0] * len(dag)
    source: list[int] = []
    rows: list[list[int]] = []
    for node in range(len(dag)):
        awaited = sorted(
            {
                begin_of[deps[edge]] if waits_for_begin[edge] else end_of[deps[edge]]
                for edge in range(offsets[node], offsets[node + 1])
            }
        )
        if gap_ns[node] or begin_awaited[node]:
            begin_of[node] = len(source)
            source.append(node)
            rows.append(awaited)
            awaited = [begin_of[node]]
        end_of[node] = len(source)
        source.append(node)
        rows.append(awaited)
    source_nodes = np.array(source, dtype=np.int64)
    is_gap = np.ones(len(source), dtype=np.bool_)
    is_gap[end_of] = False
    return Paced(
        Dag(
            dag.is_op[source_nodes] & ~is_gap,
            np.where(is_gap, np.array(gap_ns, dtype=np.int64)[source_nodes], dag.delay_ns[source_nodes]),
            offsets_of([len(row) for row in rows]),
            np.array([dep for row in rows for dep in row], dtype=np.int64),
        ),
        source_nodes,
        is_gap,
    )


def _gaps(
    dag: Dag, begin_only: NDArray[np.bool_], start_ns: NDArray[np.int64], op_ns: NDArray[np.int64]
) -> tuple[list[int], list[bool]]:
    """Return, per node, its gap in ns and whether another node waits for its start."""
    deps, waits_for_begin, offsets = dag.deps.tolist(), begin_only.tolist(), dag.dep_offsets.tolist()
    starts, takes_ns = start_ns.tolist(), np.where(dag.is_op, op_ns, dag.delay_ns).tolist()
    begin, end = [0] * len(dag), [0] * len(dag)
    gap_ns, begin_awaited = [0] * len(dag), [False] * len(dag)
    for node, start in enumerate(starts):
        ready = 0
        for edge in range(offsets[node], offsets[node + 1]):
            awaited = deps[edge]
            begin_awaited[awaited] = begin_awaited[awaited] or waits_for_begin[edge]
            ready = max(ready, begin[awaited] if waits_for_begin[edge] else end[awaited])
        # A start before the end of a dependency is rounding. The next gap is measured from the corrected start.
        gap_ns[node] = max(start - ready, 0)
        begin[node] = ready + gap_ns[node]
        end[node] = begin[node] + takes_ns[node]
    return gap_ns, begin_awaited
