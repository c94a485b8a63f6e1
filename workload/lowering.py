"""A rank's nodes lowered to operations and delays, contracted; shared by ranks that are alike.

Decides the graph that is contracted: which nodes are operations, and the communicator-order edges the policy adds.
Leaves numbering across ranks to global_order.py and the columns of a `Program` to program_builder.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from workload.contraction import Dag, contract

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from workload.dependencies import RankGraph


@dataclass(frozen=True, slots=True, eq=False)
class LoweredRank:
    """n operations and delays in issue order."""

    node: NDArray[np.int64]
    """Index of the trace node (of a joined delay: the last one)."""
    op: NDArray[np.int64]
    """Position in the rank's `RankOps`, -1 for a delay."""
    delay_ns: NDArray[np.int64]
    dep_offsets: NDArray[np.int64]
    deps: NDArray[np.int64]
    order_edges: int
    """Communicator-order edges that no edge of the trace made superfluous at once."""

    def __len__(self) -> int:
        return len(self.node)


def lower_rank(
    graph: RankGraph,
    delay_ns: NDArray[np.int64],
    op_node: NDArray[np.int64],
    op_chain: NDArray[np.int64],
    moves: NDArray[np.bool_],
) -> LoweredRank:
    """Contracts the graph of a rank without cycles.

    Operations on one chain (`op_chain`, -1: none) start in their order. Operations that move nothing (`moves` false: the
    only member of a communicator) become delays of zero.
    """
    count = len(graph.order)
    position = np.empty(count, dtype=np.int64)
    position[graph.order] = np.arange(count)
    op_at = np.full(count, -1, dtype=np.int64)
    op_at[position[op_node[moves]]] = np.flatnonzero(moves)
    before, after = _chain_edges(position[op_node], op_chain, moves)
    rows = position[graph.waiting]
    columns = position[graph.awaited]
    keys = np.unique(rows * max(count, 1) + columns)
    added = np.setdiff1d(after * max(count, 1) + before, keys)
    keys = np.union1d(keys, added)
    offsets = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(np.bincount(keys // max(count, 1), minlength=count), out=offsets[1:])
    is_op = op_at >= 0
    full = Dag(is_op, np.where(is_op, 0, delay_ns[graph.order]), offsets, keys % max(count, 1))
    small = contract(full)
    return LoweredRank(
        node=graph.order[small.kept],
        op=op_at[small.kept],
        delay_ns=small.dag.delay_ns,
        dep_offsets=small.dag.dep_offsets,
        deps=small.dag.deps,
        order_edges=len(added),
    )


def _chain_edges(
    op_position: NDArray[np.int64], op_chain: NDArray[np.int64], moves: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(earlier, later) positions of neighbours on one chain. Operations come in issue order."""
    chained = np.flatnonzero((op_chain >= 0) & moves)
    by_chain = chained[np.argsort(op_chain[chained], kind="stable")]
    neighbours = op_chain[by_chain][1:] == op_chain[by_chain][:-1]
    return op_position[by_chain[:-1][neighbours]], op_position[by_chain[1:][neighbours]]
