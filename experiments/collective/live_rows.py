"""Rows of a benchmark as soon as they are complete, while the session continues. Pure.

Decides when a row is complete: when every rank has sent every measured operation of both its halves. The figures are
those of `figures`, which need no common clock. Rows are yielded in their order; a row that never completes is left to
the end of the session.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from etloop.contract.model.records import OP_RECORD
from etloop.contract.model.run import PlannedOps
from etloop.controller.inputs.collective_spec import Average
from etloop.experiments.collective.figures import RowFigures, row_figures
from etloop.experiments.collective.job import Span
from etloop.results.measure.joined import MeasuredOps


class LiveRows:
    """Records of each row received so far. A row is the spans of one collective and size."""

    def __init__(self, planned: PlannedOps, spans: Sequence[Span], ranks: int, average: Average) -> None:
        self._planned, self._ranks, self._average = planned, ranks, average
        self._rows = _rows_of(spans)
        self._row_of_op = np.full(1 + max(op for span in spans for op in span.ops), -1, np.int64)
        for number, row in enumerate(self._rows):
            for span in row:
                self._row_of_op[list(span.ops)] = number
        self._parts: list[list[NDArray[np.void]]] = [[] for _ in self._rows]
        self._missing = [ranks * sum(len(span.ops) for span in row) for row in self._rows]
        self._seen = np.zeros((ranks, len(self._row_of_op)), np.bool_)
        self._next = 0

    def take(self, records: NDArray[np.void]) -> Iterator[tuple[RowFigures, ...]]:
        """Take op records of some agent; yield the rows that are complete now, each with its halves."""
        rank, op = records["rank"].astype(np.int64), records["op"].astype(np.int64)
        is_planned = (records["iteration"] == 0) & (rank < self._ranks) & (op < len(self._row_of_op))
        records, rank, op = records[is_planned], rank[is_planned], op[is_planned]
        row = self._row_of_op[op]
        fresh = (row >= 0) & ~self._seen[rank, op]
        for number in np.unique(row[fresh]).tolist():
            in_row = fresh & (row == number)
            self._seen[rank[in_row], op[in_row]] = True
            self._parts[number].append(records[in_row])
            self._missing[number] -= int(in_row.sum())
        while self._next < len(self._rows) and self._missing[self._next] <= 0:
            yield self._figures(self._next)
            self._parts[self._next] = []
            self._next += 1

    def _figures(self, number: int) -> tuple[RowFigures, ...]:
        records = np.concatenate([np.empty(0, OP_RECORD), *self._parts[number]])
        order = np.lexsort((records["op"], records["rank"]))
        records = records[order]
        planned_keys = self._planned.rank.astype(np.int64) * (1 << 32) + self._planned.op
        by_op = np.argsort(planned_keys, kind="stable")
        keys = records["rank"].astype(np.int64) * (1 << 32) + records["op"]
        plan_row = by_op[np.minimum(np.searchsorted(planned_keys[by_op], keys), len(by_op) - 1)]
        count = len(records)
        ops = MeasuredOps(records, np.ones(count, np.bool_), plan_row, np.zeros(count, np.int64), 0, 0)
        return row_figures(ops, self._planned, self._rows[number], self._ranks, self._average)


def _rows_of(spans: Sequence[Span]) -> tuple[tuple[Span, ...], ...]:
    """Return the spans of each row, in the order in which they are measured."""
    rows: dict[tuple[int, int, int], list[Span]] = {}
    for span in spans:
        rows.setdefault((span.kind, span.amount.size_bytes, span.amount.count), []).append(span)
    return tuple(map(tuple, rows.values()))
