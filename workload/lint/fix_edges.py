"""Fixes a rank's dependencies: drops self, dangling and repeated ones, and control edges that close a cycle.

Decides which dependencies a repaired file keeps, in their original order. Leaves which dependencies a run honours to
dependencies.py. Drops edges only, never a node. A cycle of data dependencies alone is kept, because none of its
edges is safe to drop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.graph.dependencies import cycle_sets, ready_order
from etloop.workload.trace.shared_columns import offsets_of
from etloop.workload.trace.trace import RankTrace, Rows

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class FixedEdges:
    """The remaining dependencies of a rank, and per defect the waiting node of every dropped edge."""

    data: Rows[np.uint64]
    ctrl: Rows[np.uint64]
    on_self: NDArray[np.int64]
    dangling: NDArray[np.int64]
    repeated: NDArray[np.int64]
    cyclic_ctrl: NDArray[np.int64]
    """Control edges between nodes that wait for each other."""

    @property
    def dropped(self) -> int:
        """Return the number of dropped edges."""
        return len(self.on_self) + len(self.dangling) + len(self.repeated) + len(self.cyclic_ctrl)


def fix_edges(rank: RankTrace) -> FixedEdges:
    """Return the dependencies of a rank without the edges that no reader can honour. Node ids must be unique."""
    data = _Edges(rank.node_id, rank.data_deps)
    ctrl = _Edges(rank.node_id, rank.ctrl_deps)
    component = _components(len(rank), data, ctrl)
    closing = ctrl.kept & (component[ctrl.rows] >= 0) & (component[ctrl.rows] == component[ctrl.columns])
    return FixedEdges(
        data=data.without(np.zeros(len(data.rows), dtype=np.bool_)),
        ctrl=ctrl.without(closing),
        on_self=np.concatenate([data.rows[data.on_self], ctrl.rows[ctrl.on_self]]),
        dangling=np.concatenate([data.rows[~data.known], ctrl.rows[~ctrl.known]]),
        repeated=np.concatenate([data.rows[data.repeated], ctrl.rows[ctrl.repeated]]),
        cyclic_ctrl=ctrl.rows[closing],
    )


class _Edges:
    """One kind of dependencies (data or ctrl), edge by edge in file order."""

    __slots__ = ("columns", "count", "deps", "kept", "known", "on_self", "repeated", "rows")

    def __init__(self, node_id: NDArray[np.uint64], rows: Rows[np.uint64]) -> None:
        self.count = len(node_id)
        self.deps = deps = rows.values
        self.rows = np.repeat(np.arange(self.count, dtype=np.int64), np.diff(rows.offsets))
        by_id = np.argsort(node_id, kind="stable")
        if self.count:
            target = by_id[np.minimum(np.searchsorted(node_id[by_id], deps), self.count - 1)]
            self.known: NDArray[np.bool_] = node_id[target] == deps
        else:
            target, self.known = self.rows, np.zeros(0, dtype=np.bool_)
        self.columns: NDArray[np.int64] = np.where(self.known, target, -1)
        self.on_self = self.columns == self.rows
        sound = np.flatnonzero(self.known & ~self.on_self)
        _, first = np.unique(self.rows[sound] * max(self.count, 1) + self.columns[sound], return_index=True)
        self.kept = np.zeros(len(deps), dtype=np.bool_)
        self.kept[sound[first]] = True
        self.repeated = self.known & ~self.on_self & ~self.kept

    def without(self, dropped: NDArray[np.bool_]) -> Rows[np.uint64]:
        """Return the edges to keep, without those marked in `dropped` (mask [edges])."""
        is_kept = self.kept & ~dropped
        return Rows(offsets_of(np.bincount(self.rows[is_kept], minlength=self.count)), self.deps[is_kept])


def _components(count: int, data: _Edges, ctrl: _Edges) -> NDArray[np.int64]:
    """Return per node the number of the set of mutually waiting nodes that it is in, -1 if it is on no cycle, int64
    [count]."""
    waiting = np.concatenate([data.rows[data.kept], ctrl.rows[ctrl.kept]])
    awaited = np.concatenate([data.columns[data.kept], ctrl.columns[ctrl.kept]])
    if not ctrl.kept.any():
        return np.full(count, -1, dtype=np.int64)
    # Nodes that can be issued are on no cycle; the search is limited to the remaining nodes.
    order = ready_order(np.arange(count, dtype=np.int64), waiting, awaited)
    stuck = np.ones(count, dtype=np.bool_)
    stuck[order] = False
    inside = stuck[waiting] & stuck[awaited]
    return cycle_sets(count, waiting[inside], awaited[inside])
