"""Sets of nodes that all wait for each other: where a graph's cycles are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def cycle_sets(count: int, waiting: NDArray[np.int64], awaited: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return per node the number of its strongly connected set of two or more nodes, -1 where it is on no cycle.

    Node `waiting[i]` waits for node `awaited[i]`. Sets are numbered by their least node.
    """
    # Late: it takes a quarter of a second, and only a trace that has a cycle asks.
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    edges = csr_array((np.ones(len(waiting), dtype=np.int8), (waiting, awaited)), shape=(count, count))
    _, label_of = connected_components(edges, directed=True, connection="strong")
    shared = np.bincount(label_of, minlength=1)[label_of] > 1 if count else np.zeros(0, dtype=np.bool_)
    set_of = np.full(count, -1, dtype=np.int64)
    _, first, number_of = np.unique(label_of[shared], return_index=True, return_inverse=True)
    set_of[shared] = np.argsort(np.argsort(first))[number_of]
    return set_of
