"""Dependencies of a rank fixed: self, dangling and repeated ones dropped, and control edges that close a cycle.

Decides which dependencies a repaired file keeps, in the order in which they stand; what a run honours is left to
dependencies.py. Only edges go, never a node; a cycle of data dependencies alone has no edge that is safe to drop.
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
    """What is left of a rank's dependencies. The other columns: the waiting node, once for every edge dropped."""

    data: Rows[np.uint64]
    ctrl: Rows[np.uint64]
    on_self: NDArray[np.int64]
    dangling: NDArray[np.int64]
    repeated: NDArray[np.int64]
    cyclic_ctrl: NDArray[np.int64]
    """Control edges between nodes that wait for each other."""

    @property
    def dropped(self) -> int:
        return len(self.on_self) + len(self.dangling) + len(self.repeated) + len(self.cyclic_ctrl)


def fix_edges(rank: RankTrace) -> FixedEdges:
    """The dependencies of a rank whose node ids are unique, without the edges that no reader can honour."""
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
    """One sort of dependencies, edge by edge in file order."""

    __slots__ = ("columns", "count", "deps", "kept", "known", "on_self", "repeated", "rows")

    def __init__(self, node_id: NDArray[np.uint64], given: Rows[np.uint64]) -> None:
        self.count = len(node_id)
        self.deps = deps = given.values
        self.rows = np.repeat(np.arange(self.count, dtype=np.int64), np.diff(given.offsets))
        by_id = np.argsort(node_id, kind="stable")
        if self.count:
            at = by_id[np.minimum(np.searchsorted(node_id[by_id], deps), self.count - 1)]
            self.known: NDArray[np.bool_] = node_id[at] == deps
        else:
            at, self.known = self.rows, np.zeros(0, dtype=np.bool_)
        self.columns: NDArray[np.int64] = np.where(self.known, at, -1)
        self.on_self = self.columns == self.rows
        sound = np.flatnonzero(self.known & ~self.on_self)
        _, first = np.unique(self.rows[sound] * max(self.count, 1) + self.columns[sound], return_index=True)
        self.kept = np.zeros(len(deps), dtype=np.bool_)
        self.kept[sound[first]] = True
        self.repeated = self.known & ~self.on_self & ~self.kept

    def without(self, dropped: NDArray[np.bool_]) -> Rows[np.uint64]:
        """The edges that stay, `dropped` taken out as well."""
        stays = self.kept & ~dropped
        return Rows(offsets_of(np.bincount(self.rows[stays], minlength=self.count)), self.deps[stays])


def _components(count: int, data: _Edges, ctrl: _Edges) -> NDArray[np.int64]:
    """Number of the group of nodes waiting for each other that a node is in; -1: it is on no cycle."""
    waiting = np.concatenate([data.rows[data.kept], ctrl.rows[ctrl.kept]])
    awaited = np.concatenate([data.columns[data.kept], ctrl.columns[ctrl.kept]])
    if not ctrl.kept.any():
        return np.full(count, -1, dtype=np.int64)
    # Where all nodes can be issued there is no cycle; the search looks at the others only.
    order = ready_order(np.arange(count, dtype=np.int64), waiting, awaited)
    stuck = np.ones(count, dtype=np.bool_)
    stuck[order] = False
    inside = stuck[waiting] & stuck[awaited]
    return cycle_sets(count, waiting[inside], awaited[inside])
