"""Which nodes of a rank share a GPU stream, and in which order they run there.

A stream runs its nodes one after the other, whatever their dependencies say. Decides the edges that say so. Converters
lose them: in a converted trace no GPU node waits for another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from etloop.workload.trace.trace import ABSENT, RankTrace

if TYPE_CHECKING:
    from numpy.typing import NDArray


def device_streams(stream: NDArray[np.int64], is_cpu_op: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """A file's `stream` attributes as `RankTrace.stream`: converters write 0 on CPU nodes too, which run on none."""
    on_cpu = (is_cpu_op != ABSENT) & (is_cpu_op != 0)
    streams = np.where(on_cpu, ABSENT, stream)
    return streams if (streams != ABSENT).any() else None


def has_streams(rank: RankTrace) -> bool:
    """Whether any node of the rank is known to run on a stream."""
    return rank.stream is not None and bool((rank.stream != ABSENT).any())


def stream_neighbours(
    rank: RankTrace, order: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(earlier, later) nodes next to each other on one stream, in the order that `order` (nodes) gives."""
    if rank.stream is None:
        nothing = np.zeros(0, dtype=np.int64)
        return nothing, nothing
    placed = order[rank.stream[order] != ABSENT]
    return neighbours(placed, rank.stream[placed])


def neighbours(
    nodes: NDArray[np.int64], group: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(earlier, later) nodes next to each other in one group, in the order of `nodes`."""
    by_group = np.argsort(group, kind="stable")
    alike = group[by_group][1:] == group[by_group][:-1]
    return nodes[by_group[:-1][alike]], nodes[by_group[1:][alike]]
