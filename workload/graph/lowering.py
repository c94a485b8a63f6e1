"""Lowers a rank's nodes to operations and delays and contracts them; equal ranks share the result.

Decides which graph is contracted: which nodes are operations, and which communicator-order edges the policy adds.
Leaves numbering across ranks to global_order.py and the columns of a `Program` to program/builder.py.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.graph.dependencies import RankGraph
from etloop.workload.graph.recorded import RecordedTimes, insert_gaps
from etloop.workload.trace.contraction import Dag, contract
from etloop.workload.trace.shared_columns import offsets_of
from etloop.workload.trace.streams import neighbours

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class LoweredRank:
    """Operations and delays of a rank in issue order, n in total."""

    node: NDArray[np.int64]
    """Index of the trace node; of a joined delay, the last one."""
    op: NDArray[np.int64]
    """Position in the rank's `RankOps`, -1 for a delay."""
    delay_ns: NDArray[np.int64]
    dep_offsets: NDArray[np.int64]
    deps: NDArray[np.int64]
    order_edges: int
    """Number of communicator-order edges that are not edges of the trace already."""

    def __len__(self) -> int:
        return len(self.node)


@dataclass(frozen=True, slots=True, eq=False)
class Pace:
    """A rank's recording in replayed time (scaled as delays are): columns over its nodes in file order."""

    start_ns: NDArray[np.int64]
    """-1 where unknown."""
    op_ns: NDArray[np.int64]
    """Recorded duration of the node. Read for network operations only, to compute the gap after them."""


def pace_of(times: RecordedTimes, time_scale: Fraction) -> Pace:
    """Return the recording of a rank in replayed time: start and duration in ns, multiplied by `time_scale`."""
    op_ns = np.maximum(times.end_ns - times.start_ns, 0)
    if time_scale == 1:
        return Pace(times.start_ns, op_ns)
    return Pace(
        np.where(times.known, _scale_column(times.start_ns, time_scale), -1), _scale_column(op_ns, time_scale)
    )


def _scale_column(column: NDArray[np.int64], scale: Fraction) -> NDArray[np.int64]:
    distinct, inverse = np.unique(column, return_inverse=True)
    scaled = np.array([int(value * scale + Fraction(1, 2)) for value in distinct.tolist()], dtype=np.int64)
    return scaled[inverse.reshape(-1)]


def lower_rank(
    graph: RankGraph,
    delay_ns: NDArray[np.int64],
    op_node: NDArray[np.int64],
    op_chain: NDArray[np.int64],
    moves: NDArray[np.bool_],
    pace: Pace | None = None,
) -> LoweredRank:
    """Contract the graph of a rank without cycles, including its recorded gaps if `pace` is given.

    `delay_ns` is int64 [nodes]; `op_node`, `op_chain` and `moves` have one entry per operation. Operations on one
    chain (`op_chain`, -1: none) start in chain order. Operations that move no bytes (`moves` false: the only member
    of a communicator) become delays of zero.
    """
    count = len(graph.order)
    position = np.empty(count, dtype=np.int64)
    position[graph.order] = np.arange(count)
    op_at = np.full(count, -1, dtype=np.int64)
    op_at[position[op_node[moves]]] = np.flatnonzero(moves)
    chained = np.flatnonzero((op_chain >= 0) & moves)
    earlier, later = neighbours(position[op_node[chained]], op_chain[chained])
    span = max(count, 1)
    edges = position[graph.waiting] * span + position[graph.awaited]
    keys = np.unique(edges)
    added = np.setdiff1d(later * span + earlier, keys)
    keys = np.union1d(keys, added)
    offsets = offsets_of(np.bincount(keys // span, minlength=count))
    is_op = op_at >= 0
    full = Dag(is_op, np.where(is_op, 0, delay_ns[graph.order]), offsets, keys % span)
    source = np.arange(count)
    if pace is not None and graph.begin_only is not None:
        begin_only = np.zeros(len(keys), dtype=np.bool_)
        begin_only[np.searchsorted(keys, edges[graph.begin_only])] = True
        # A communicator-order edge waits for the end, even if the recording shows the same two nodes overlapping.
        begin_only[np.searchsorted(keys, later * span + earlier)] = False
        with_gaps = insert_gaps(full, begin_only, pace.start_ns[graph.order], pace.op_ns[graph.order])
        full, source = with_gaps.dag, with_gaps.source
        op_at = np.where(with_gaps.is_gap, -1, op_at[source])
    contracted = contract(full)
    return LoweredRank(
        node=graph.order[source[contracted.kept]],
        op=op_at[contracted.kept],
        delay_ns=contracted.dag.delay_ns,
        dep_offsets=contracted.dag.dep_offsets,
        deps=contracted.dag.deps,
        order_edges=len(added),
    )
