"""Recognises communication by behaviour: a kernel that ends together on all ranks, and lasts far longer on some, waits
for other ranks.

Names cannot be complete, and a wait that counts as compute distorts a replay by seconds. Recognised kernels are
counted and named, and keep the time that they take on the rank that arrives last. Other times of the rank move
accordingly. Kernels named by a table keep the meaning that it gives them. A kernel is the same on all ranks if its whole
name is, or, where a template argument states the rank, its function. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.base.errors import Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.readers.json_stream import INT64_MAX
from etloop.workload.readers.pytorch.kernel_table import (
    STATE_THEM,
    KernelTable,
    function_name,
    looks_communicating,
)
from etloop.workload.trace.trace import ABSENT, LeftOut, NodeKind, RankTrace
from etloop.workload.trace.trace_names import printable_name

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
    has_times = any(rank.start_ns is not None or rank.start_us.any() for rank in ranks)
    timed = [_add_times(rank) for rank in ranks] if has_times and len(ranks) > 1 else []
    kept: dict[int, dict[int, int]] = {}
    left_out = []
    for name, nodes in _suspects(timed, table):
        for runs in _waiting_runs(timed, nodes):
            shortest_ns = runs.duration_ns.min(axis=0)
            for row, rank in enumerate(runs.ranks):
                kept.setdefault(rank, {}).update(
                    zip(runs.nodes[row].tolist(), shortest_ns.tolist(), strict=True)
                )
            if not _is_reported(name, table):
                left_out.append(_report(ranks, name, runs))
    return (
        tuple(
            _without_waits(rank, timed[index], kept[index]) if index in kept else rank
            for index, rank in enumerate(ranks)
        ),
        tuple(left_out),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Timed:
    """A rank with its times in ns: of the nodes, and of its GPU operations that are not recognised communication."""

    rank: RankTrace
    start_ns: NDArray[np.int64]
    duration_ns: NDArray[np.int64]
    """`ABSENT` where unknown, as for `start_ns`."""
    kernels: NDArray[np.int64]
    """Nodes in file order."""

    def name(self, node: int) -> bytes:
        """Return the name of a node."""
        offsets = self.rank.name_offsets
        return self.rank.name_bytes[int(offsets[node]) : int(offsets[node + 1])]

    def nodes_named(self, name: bytes) -> NDArray[np.int64]:
        """Return the kernels of a name by start time, int64."""
        lengths = np.diff(self.rank.name_offsets.astype(np.int64))[self.kernels]
        return self._sort(
            node for node in self.kernels[lengths == len(name)].tolist() if self.name(node) == name
        )

    def nodes_of_function(self, function: str) -> NDArray[np.int64]:
        """Return the kernels of a function by start time, whatever its template arguments are, int64."""
        part = function.encode()
        return self._sort(
            node
            for node in self.kernels.tolist()
            if part in self.name(node) and _function(self.name(node)) == function
        )

    def _sort(self, nodes: Iterator[int]) -> NDArray[np.int64]:
        array = np.array(list(nodes), np.int64)
        return array[np.argsort(self.start_ns[array], kind="stable")]


def _add_times(rank: RankTrace) -> _Timed:
    """Return a rank with its times: those in ns, else those in us, where 0 means unknown."""
    most_us = np.uint64(INT64_MAX // 1000)
    start_us, duration_us = (
        np.minimum(column, most_us).astype(np.int64) * 1000 for column in (rank.start_us, rank.duration_us)
    )
    start_ns = np.where(start_us > 0, start_us, ABSENT)
    if rank.start_ns is not None:
        start_ns = np.where(rank.start_ns != ABSENT, rank.start_ns, start_ns)
    duration_ns = duration_us
    if rank.duration_ns is not None:
        duration_ns = np.where(rank.duration_ns != ABSENT, rank.duration_ns, duration_us)
    is_kernel = (rank.kind == NodeKind.COMP) & (rank.is_cpu_op == 0) & (start_ns != ABSENT)
    return _Timed(rank, start_ns, duration_ns, np.flatnonzero(is_kernel))


def _suspects(ranks: Sequence[_Timed], table: KernelTable) -> Iterator[tuple[str, list[NDArray[np.int64]]]]:
    """Yield name and nodes by rank of each kernel that runs long enough to wait, without those that a table states to be
    no communication. A name that a single rank has is yielded as its function."""
    users: Counter[bytes] = Counter()
    for rank in ranks:
        long = rank.kernels[rank.duration_ns[rank.kernels] >= LEAST_WAIT_NS]
        users.update({rank.name(node) for node in long.tolist()})
    functions: set[str] = set()
    for name in sorted(users):
        text = name.decode(errors="replace")
        if _is_no_communication(text, table):
            continue
        nodes = [rank.nodes_named(name) for rank in ranks]
        if sum(len(own_nodes) > 0 for own_nodes in nodes) > 1:
            yield text, nodes
        elif _function(name) != text:
            functions.add(_function(name))
    for function in sorted(functions):
        yield function, [rank.nodes_of_function(function) for rank in ranks]


def _function(name: bytes) -> str:
    return function_name(name.decode(errors="replace"))


def _is_no_communication(name: str, table: KernelTable) -> bool:
    entry = table.kernel(name)
    return entry is not None and entry.collective is None


def _is_reported(name: str, table: KernelTable) -> bool:
    """Decide whether the reader reports the kernel already, because its name is one of communication."""
    return table.kernel(name) is not None or looks_communicating(name)


def _waiting_runs(ranks: Sequence[_Timed], nodes: Sequence[NDArray[np.int64]]) -> Iterator[_Runs]:
    """Yield the runs of a kernel that waits: of all ranks that run it, else of each recorded group whose ranks do."""
    users = tuple(index for index, own_nodes in enumerate(nodes) if len(own_nodes))
    groups = [
        users,
        *dict.fromkeys(members for timed in ranks for members in (timed.rank.groups or {}).values()),
    ]
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
    ranks: Sequence[_Timed], nodes: Sequence[NDArray[np.int64]], members: tuple[int, ...]
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
            starts.append(ranks[member].start_ns[row])
            durations.append(ranks[member].duration_ns[row])
        yield _Runs(members, np.stack(rows), np.stack(starts), np.stack(durations))


def _without_waits(rank: RankTrace, timed: _Timed, kept_ns: dict[int, int]) -> RankTrace:
    """Return the rank with shortened kernels, by node. If it did nothing else during a wait, later starts move."""
    start_ns, duration_ns = timed.start_ns.copy(), timed.duration_ns.copy()
    has_start = timed.start_ns != ABSENT
    for node in sorted(kept_ns, key=lambda kernel: int(start_ns[kernel]), reverse=True):
        begin_ns, end_ns = int(start_ns[node]), int(start_ns[node] + duration_ns[node])
        wait_ns = end_ns - begin_ns - kept_ns[node]
        duration_ns[node] = kept_ns[node]
        is_busy = has_start & (start_ns > begin_ns) & (start_ns < end_ns)
        if not is_busy.any():
            start_ns[has_start & (start_ns >= end_ns)] -= wait_ns
    start_us = np.where(has_start, np.maximum(start_ns, 0) // 1000, rank.start_us.astype(np.int64))
    columns = (
        start_ns,
        duration_ns,
        start_us.astype(np.uint64),
        ((duration_ns + 500) // 1000).astype(np.uint64),
    )
    for column in columns:
        column.flags.writeable = False
    return replace(
        rank,
        start_ns=None if rank.start_ns is None else columns[0],
        duration_ns=None if rank.duration_ns is None else columns[1],
        start_us=columns[2],
        duration_us=columns[3],
    )


def _report(ranks: Sequence[RankTrace], name: str, runs: _Runs) -> LeftOut:
    kernels = runs.nodes.size
    kernel_name = printable_name(function_name(name)[:64])
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
