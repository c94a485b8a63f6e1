"""Recognises communication by behaviour: a kernel that ends together on all ranks, and lasts far longer on some, waits
for other ranks.

Names cannot be complete, and a wait that counts as compute distorts a replay by seconds. Recognised kernels are
counted and named, and keep the time that they take on the rank that arrives last. Other times of the rank move
accordingly. Kernels named by a table keep the meaning that it gives them. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.base.errors import Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.readers.pytorch.device_comms import STATE_THEM
from etloop.workload.readers.pytorch.kernel_table import KernelTable, function_name, looks_communicating
from etloop.workload.trace.trace import ABSENT, LeftOut, NodeKind, RankTrace
from etloop.workload.trace.trace_names import shown

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEAST_WAIT_NS: Final = 100_000
"""Least difference between the longest and the shortest run of a kernel that counts as a wait."""
RATIO: Final = 10
"""Least ratio of these two: one order of magnitude."""
TOGETHER: Final = 20
"""Ends are together if they differ by at most this part of the difference in duration."""
_SETTLED: Final = 4
"""Number of runs from which a constant difference of the ranks' clocks is removed."""


@dataclass(frozen=True, slots=True, eq=False)
class _Runs:
    """Runs of one kernel on several ranks: arrays [ranks, runs]."""

    ranks: tuple[int, ...]
    nodes: NDArray[np.int64]
    start_ns: NDArray[np.int64]
    duration_ns: NDArray[np.int64]

    def wait(self) -> bool:
        """Decide whether the kernel waits: most runs of very different duration end together."""
        longest, shortest = self.duration_ns.max(axis=0), self.duration_ns.min(axis=0)
        differs = (longest - shortest >= LEAST_WAIT_NS) & (longest >= RATIO * shortest)
        if not differs.any():
            return False
        end_ns = self.start_ns + self.duration_ns
        lag_ns = end_ns - end_ns[0]
        if lag_ns.shape[1] >= _SETTLED:
            lag_ns = lag_ns - np.median(lag_ns, axis=1, keepdims=True).astype(np.int64)
        spread = lag_ns.max(axis=0) - lag_ns.min(axis=0)
        together = spread * TOGETHER <= longest - shortest
        return bool(2 * (differs & together).sum() >= differs.sum())


def cut_waits(
    ranks: Sequence[RankTrace], table: KernelTable
) -> tuple[tuple[RankTrace, ...], tuple[LeftOut, ...]]:
    """Return the ranks without the time that unknown kernels wait for other ranks, and these kernels as left out."""
    suspects = _suspects(ranks, table)
    kept: dict[int, dict[int, int]] = {}
    left_out = []
    for name in sorted(suspects):
        for runs in _waiting_runs(ranks, [_nodes_of(rank, name) for rank in ranks]):
            shortest_ns = runs.duration_ns.min(axis=0)
            for row, rank in enumerate(runs.ranks):
                kept.setdefault(rank, {}).update(
                    zip(runs.nodes[row].tolist(), shortest_ns.tolist(), strict=True)
                )
            if not _is_reported(name.decode(errors="replace"), table):
                left_out.append(_report(ranks, name, runs))
    return (
        tuple(_without_waits(rank, kept.get(index, {})) for index, rank in enumerate(ranks)),
        tuple(left_out),
    )


def _suspects(ranks: Sequence[RankTrace], table: KernelTable) -> set[bytes]:
    """Return the names of kernels that run long enough to wait, without those that a table states to be no
    communication."""
    names: set[bytes] = set()
    for rank in ranks if len(ranks) > 1 else ():
        long = _is_kernel(rank) & (_durations_ns(rank) >= LEAST_WAIT_NS)
        names.update(_name(rank, node) for node in np.flatnonzero(long).tolist())
    return {name for name in names if not _is_no_communication(name.decode(errors="replace"), table)}


def _is_no_communication(name: str, table: KernelTable) -> bool:
    entry = table.kernel(name)
    return entry is not None and entry.collective is None


def _is_reported(name: str, table: KernelTable) -> bool:
    """Decide whether the reader reports the kernel already, because its name is one of communication."""
    return table.kernel(name) is not None or looks_communicating(name)


def _is_kernel(rank: RankTrace) -> NDArray[np.bool_]:
    """Return a mask of the GPU operations other than recognised communication with recorded times, bool [nodes]."""
    if rank.start_ns is None or rank.duration_ns is None:
        return np.zeros(len(rank), np.bool_)
    mask: NDArray[np.bool_] = (rank.kind == NodeKind.COMP) & (rank.is_cpu_op == 0)
    mask &= (rank.start_ns != ABSENT) & (rank.duration_ns != ABSENT)
    return mask


def _durations_ns(rank: RankTrace) -> NDArray[np.int64]:
    return np.zeros(len(rank), np.int64) if rank.duration_ns is None else rank.duration_ns


def _name(rank: RankTrace, node: int) -> bytes:
    return rank.name_bytes[int(rank.name_offsets[node]) : int(rank.name_offsets[node + 1])]


def _nodes_of(rank: RankTrace, name: bytes) -> NDArray[np.int64]:
    """Return the kernels of a name by start time, int64."""
    lengths = np.diff(rank.name_offsets.astype(np.int64))
    candidates = np.flatnonzero(_is_kernel(rank) & (lengths == len(name)))
    nodes = np.array([node for node in candidates.tolist() if _name(rank, node) == name], np.int64)
    assert rank.start_ns is not None or not len(nodes)
    return nodes if rank.start_ns is None else nodes[np.argsort(rank.start_ns[nodes], kind="stable")]


def _waiting_runs(ranks: Sequence[RankTrace], nodes: Sequence[NDArray[np.int64]]) -> Iterator[_Runs]:
    """Yield the runs of a kernel that waits: of all ranks that run it, else of each recorded group whose ranks do."""
    users = tuple(index for index, own_nodes in enumerate(nodes) if len(own_nodes))
    groups = [users, *dict.fromkeys(members for rank in ranks for members in (rank.groups or {}).values())]
    for members in groups:
        if len(members) < 2 or not set(members) <= set(users):
            continue
        for runs in _align(ranks, nodes, members):
            if runs.wait():
                yield runs
                break
        else:
            continue
        if members == users:
            return


def _align(
    ranks: Sequence[RankTrace], nodes: Sequence[NDArray[np.int64]], members: tuple[int, ...]
) -> Iterator[_Runs]:
    """Yield the runs of the members joined by number: from the first, and where recordings differ, from the last."""
    counts = {len(nodes[member]) for member in members}
    count = min(counts)
    for rows in (
        [nodes[member][:count] for member in members],
        *([[nodes[member][len(nodes[member]) - count :] for member in members]] if len(counts) > 1 else []),
    ):
        starts, durations = [], []
        for member, row in zip(members, rows, strict=True):
            start_ns, duration_ns = ranks[member].start_ns, ranks[member].duration_ns
            assert start_ns is not None
            assert duration_ns is not None
            starts.append(start_ns[row])
            durations.append(duration_ns[row])
        yield _Runs(members, np.stack(rows), np.stack(starts), np.stack(durations))


def _without_waits(rank: RankTrace, kept_ns: dict[int, int]) -> RankTrace:
    """Return the rank with shortened kernels, by node. If it did nothing else during a wait, later starts move."""
    if not kept_ns:
        return rank
    assert rank.start_ns is not None
    assert rank.duration_ns is not None
    start_ns, duration_ns = rank.start_ns.copy(), rank.duration_ns.copy()
    has_start = rank.start_ns != ABSENT
    for node in sorted(kept_ns, key=lambda kernel: int(start_ns[kernel]), reverse=True):
        begin_ns, end_ns = int(start_ns[node]), int(start_ns[node] + duration_ns[node])
        wait_ns = end_ns - begin_ns - kept_ns[node]
        duration_ns[node] = kept_ns[node]
        is_busy = has_start & (start_ns > begin_ns) & (start_ns < end_ns)
        if not is_busy.any():
            start_ns[has_start & (start_ns >= end_ns)] -= wait_ns
    start_us = np.where(has_start, np.maximum(start_ns, 0) // 1000, rank.start_us.astype(np.int64))
    duration_us = np.where(duration_ns != ABSENT, (duration_ns + 500) // 1000, 0)
    keeps_us = duration_ns == ABSENT
    duration_us = np.where(keeps_us, rank.duration_us.astype(np.int64), duration_us)
    columns = (start_ns, duration_ns, start_us.astype(np.uint64), duration_us.astype(np.uint64))
    for column in columns:
        column.flags.writeable = False
    return replace(
        rank, start_ns=columns[0], duration_ns=columns[1], start_us=columns[2], duration_us=columns[3]
    )


def _report(ranks: Sequence[RankTrace], name: bytes, runs: _Runs) -> LeftOut:
    kernels = runs.nodes.size
    kernel_name = shown(function_name(name.decode(errors="replace"))[:64])
    longest_ns, shortest_ns = int(runs.duration_ns.max()), int(runs.duration_ns.min())
    problem = (
        f"{kernels} kernels wait for other ranks, so they communicate, and their bytes are unknown: {kernel_name} ends "
        f"together on {len(runs.ranks)} ranks and lasts {shortest_ns / 1000:g} to {longest_ns / 1000:g} us; replayed as "
        "the time on the rank that arrives last"
    )
    where = f"{ranks[runs.ranks[0]].path} and {len(runs.ranks) - 1} more"
    return LeftOut(
        Problem(where, problem, f"{STATE_THEM}, with collective none if it does not communicate"), kernels
    )
