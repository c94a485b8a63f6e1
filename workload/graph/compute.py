"""Computes how long the nodes of a rank other than network operations take, in nanoseconds.

Decides between recorded duration, roofline and zero. Recorded durations of communication nodes are never used,
because they are mostly time spent waiting for other ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.base.errors import Severity
from etloop.workload.trace.findings import Check, FindingLog, RankFindings, node_example
from etloop.workload.trace.settings import WorkloadSettings
from etloop.workload.trace.trace import ABSENT, NodeKind, RankTrace

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_DELAY_NS: Final = 24 * 3600 * 10**9
"""Longest plausible compute node (one day); the sum of 2**16 of them still fits an int64."""

MAX_RANK_DELAY_NS: Final = 1 << 62

_NS_PER_US: Final = 1000
_NS_PER_S: Final = 10**9

_MOVES: Final = {
    "storage": (NodeKind.STORAGE,),
    "memory": (NodeKind.MEM_LOAD, NodeKind.MEM_STORE),
    "data": (NodeKind.DATA_OP,),
}
"""Node kinds that move bytes without the network, by the word used in messages."""

COMPUTES: Final = (NodeKind.COMP, *(kind for kinds in _MOVES.values() for kind in kinds))
"""Node kinds that take time by themselves."""


def delays_ns(rank: RankTrace, settings: WorkloadSettings, tensor_unit_bytes: int) -> NDArray[np.int64]:
    """Return the scaled delay of each node in ns, int64 [nodes] in file order; -1 where it is out of range.

    Communication and metadata nodes have 0. Other nodes have their recorded duration if there is one; else the
    longest of num_ops at the configured FLOP/s, tensor_size at the configured memory bandwidth and the bytes of a
    storage node at the configured storage bandwidth; else 0. Delays are rounded to the nearest nanosecond, halves
    up, so that scaling does not bias sums.
    """
    columns = np.stack([_durations_ns(rank), rank.num_ops, rank.tensor_size, _moved_bytes(rank)], axis=1)
    columns[~np.isin(rank.kind, COMPUTES)] = 0
    distinct, inverse = np.unique(columns, axis=0, return_inverse=True)
    delays = [_delay_ns(row, settings, tensor_unit_bytes) for row in distinct.tolist()]
    return (
        np.array(delays, dtype=np.int64)[inverse.reshape(-1)] if len(columns) else np.zeros(0, dtype=np.int64)
    )


def _moved_bytes(rank: RankTrace) -> NDArray[np.int64]:
    """Return the bytes that storage nodes move, int64 [nodes]; 0 for all other nodes."""
    if rank.moved_bytes is None:
        return np.zeros(len(rank), np.int64)
    return np.where(rank.kind == NodeKind.STORAGE, np.maximum(rank.moved_bytes, 0), 0)


def _durations_ns(rank: RankTrace) -> NDArray[np.int64]:
    """Return recorded durations in ns, int64 [nodes]: 0 where absent, -1 where implausible. A duration given in ns
    takes precedence."""
    plausible = rank.duration_us <= MAX_RANK_DELAY_NS // _NS_PER_US
    whole_us = np.where(plausible, rank.duration_us * np.uint64(_NS_PER_US), 0).astype(np.int64) - ~plausible
    if rank.duration_ns is None:
        return whole_us
    return np.where(rank.duration_ns == ABSENT, whole_us, np.maximum(rank.duration_ns, -1))


def _delay_ns(row: list[int], settings: WorkloadSettings, tensor_unit_bytes: int) -> int:
    duration_ns, num_ops, tensor_size, stored_bytes = row
    if duration_ns < 0:
        return -1
    exact_ns = Fraction(duration_ns)
    if not duration_ns:
        if settings.flops is not None and num_ops > 0:
            exact_ns = Fraction(num_ops * _NS_PER_S, settings.flops)
        if settings.memory_bandwidth_bytes_per_s is not None and tensor_size > 0:
            moved_bytes = tensor_size * tensor_unit_bytes
            exact_ns = max(exact_ns, Fraction(moved_bytes * _NS_PER_S, settings.memory_bandwidth_bytes_per_s))
        if settings.storage_bandwidth_bytes_per_s is not None and stored_bytes > 0:
            exact_ns = max(
                exact_ns, Fraction(stored_bytes * _NS_PER_S, settings.storage_bandwidth_bytes_per_s)
            )
    delay_ns = int(exact_ns * settings.time_scale + Fraction(1, 2))
    return delay_ns if delay_ns <= MAX_DELAY_NS else -1


def report_delays(
    rank: RankTrace, delay_ns: NDArray[np.int64], settings: WorkloadSettings, log: FindingLog
) -> None:
    """Report durations out of range, and compute nodes that take no time because the trace gives neither duration nor
    work."""

    def node_work(node: int) -> str:
        return (
            f"duration_micros {int(rank.duration_us[node])}, num_ops {int(rank.num_ops[node])}, "
            f"tensor_size {int(rank.tensor_size[node])}"
        )

    wrong = np.flatnonzero(delay_ns < 0)
    remedy = "correct duration_micros, num_ops or tensor_size, or the compute speed and scale.time"
    RankFindings(rank, log).add(Check.COMPUTE_RANGE, remedy, wrong, "a delay of at most one day", node_work)
    if not len(wrong) and sum(delay_ns.tolist()) > MAX_RANK_DELAY_NS:
        remedy = "correct the durations, or make scale.time smaller"
        example = node_example(rank, 0, "delays that add up to less than 146 years", "more")
        log.add(Check.COMPUTE_RANGE, remedy, example)
    unknown = np.flatnonzero((rank.kind == NodeKind.COMP) & (_durations_ns(rank) == 0) & (delay_ns == 0))
    expected = "duration_micros, or a compute speed to derive it"
    remedy = (
        "replayed with zero duration; state workload.compute.flops, memory_bandwidth or both to derive one"
    )
    if settings.flops is not None or settings.memory_bandwidth_bytes_per_s is not None:
        expected = "duration_micros, or num_ops or tensor_size to derive it from the compute speed"
        remedy = "replayed with zero duration"
    RankFindings(rank, log).add(Check.COMPUTE_WITHOUT_DURATION, remedy, unknown, expected, "neither")


def report_moves(
    ranks: Sequence[RankTrace], delays: Sequence[NDArray[np.int64]], tensor_unit_bytes: int, log: FindingLog
) -> None:
    """Report storage, memory and data nodes that take no time: one finding per kind, with the total bytes they state."""
    for word, kinds in _MOVES.items():
        count = moved_bytes = 0
        first: tuple[RankTrace, int] | None = None
        for rank, delay_ns in zip(ranks, delays, strict=True):
            untimed = np.flatnonzero(np.isin(rank.kind, kinds) & (_durations_ns(rank) == 0) & (delay_ns == 0))
            if not len(untimed):
                continue
            count += len(untimed)
            tensor_sizes = rank.tensor_size[untimed]
            moved_bytes += sum(tensor_sizes[tensor_sizes > 0].tolist()) * tensor_unit_bytes
            moved_bytes += sum(_moved_bytes(rank)[untimed].tolist())
            first = first or (rank, int(untimed[0]))
        if first is not None:
            expected = "duration_micros, or a size and a rate to derive it"
            actual = f"neither; such {word} nodes state {moved_bytes} bytes in total"
            example = node_example(*first, expected, actual)
            remedy = f"replayed with zero duration and without traffic; {_MOVE_REMEDIES[word]}"
            severity = Severity.WARNING if moved_bytes or word == "data" else Severity.INFO
            log.add(Check.MOVES_WITHOUT_DURATION, remedy, example, count=count, severity=severity)


_MOVE_REMEDIES: Final = {
    "storage": "state workload.compute.storage_bandwidth (--storage-bandwidth) to derive one from their bytes",
    "memory": "state workload.compute.memory_bandwidth (--memory-bandwidth) to derive one from their bytes",
    "data": "nodes for loads, checkpoints and KV transfers state neither bytes nor peer: write sends and receives instead",
}
