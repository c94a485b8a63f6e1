"""Finds which nodes of a rank share a GPU stream, and their order on it.

A stream runs its nodes one after another, whatever their dependencies are. Decides the edges for this order.
Converters lose them: in a converted trace no GPU node waits for another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from etloop.workload.trace.trace import ABSENT, RankTrace

if TYPE_CHECKING:
    from numpy.typing import NDArray


def device_streams(stream: NDArray[np.int64], is_cpu_op: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """Return a file's `stream` attributes as `RankTrace.stream`: `ABSENT` for CPU nodes, where converters write 0; None
    if no node has one."""
    on_cpu = (is_cpu_op != ABSENT) & (is_cpu_op != 0)
    streams = np.where(on_cpu, ABSENT, stream)
    return streams if (streams != ABSENT).any() else None


def has_streams(rank: RankTrace) -> bool:
    """Return whether any node of the rank is known to run on a stream."""
    return rank.stream is not None and bool((rank.stream != ABSENT).any())


def stream_neighbours(
    rank: RankTrace, order: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (earlier, later) nodes adjacent on one stream, in the order of `order` (int64 [nodes]), each int64
    [edges]."""
    if rank.stream is None:
        no_nodes = np.zeros(0, dtype=np.int64)
        return no_nodes, no_nodes
    stream_nodes = order[rank.stream[order] != ABSENT]
    return neighbours(stream_nodes, rank.stream[stream_nodes])


def neighbours(
    nodes: NDArray[np.int64], group: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (earlier, later) nodes adjacent in one group, in the order of `nodes`, each int64 [edges]."""
    by_group = np.argsort(group, kind="stable")
    same_group = group[by_group][1:] == group[by_group][:-1]
    return nodes[by_group[:-1][same_group]], nodes[by_group[1:][same_group]]
