"""Computes the rows of a benchmark from the records of a session: time, bandwidth, wrong bytes, bytes through the
device.

Decides every figure that `etloop collective` prints. Pure. The time of a row is, on one rank, from the issue of its
first measured operation to the completion of its last, divided by the iterations; both timestamps are of one clock. The
times of the ranks are then averaged by the requested rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.run import PlannedOps
from etloop.controller.inputs.collective_spec import Amount, Average, Half
from etloop.experiments.collective.job import Span
from etloop.results.measure.distribution import nearest_rank
from etloop.results.measure.joined import MeasuredOps
from etloop.results.schema.kinds import SEND_RECV, bus_factor

NS_PER_S: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class IterationFigures:
    """Times of the single operations of a row, each on its slowest rank."""

    times_ns: tuple[int, ...]
    min_ns: int
    max_ns: int
    avg_ns: float
    p50_ns: int
    p95_ns: int
    p99_ns: int
    stdev_ns: float
    """Population standard deviation."""

    @property
    def cv_percent(self) -> float:
        """Return the standard deviation in percent of the mean; 0 for a mean of 0."""
        return 100 * self.stdev_ns / self.avg_ns if self.avg_ns else 0.0


@dataclass(frozen=True, slots=True)
class RowFigures:
    """One row and half. Bytes are payload of one iteration over all ranks."""

    kind: int
    amount: Amount
    half: Half
    together: bool
    time_ns: float | None
    """None if an operation is missing."""
    algbw: float
    """Bytes per second; 0 without a time."""
    busbw: float
    wrong_bytes: int
    """Bytes by which the accounting of the measured operations differs from the plan, missing operations included."""
    sent_bytes: int
    fabric_bytes: int
    """Payload bytes through the device under test (S_fabric)."""
    messages: int
    iterations: IterationFigures | None


@dataclass(frozen=True, slots=True)
class Interference:
    """One collective of a concurrent benchmark: alone, and while all other collectives were running."""

    kind: int
    amount: Amount
    alone_ns: float | None
    together_ns: float | None
    overlapped: int
    """Iterations of the slowest rank that completed before another collective had finished; `together_ns` is their time."""

    @property
    def factor(self) -> float | None:
        """Return the time together divided by the time alone (interference factor of the IETF benchmarking draft)."""
        return None if not self.alone_ns or self.together_ns is None else self.together_ns / self.alone_ns


def row_figures(
    ops: MeasuredOps, planned: PlannedOps, spans: Sequence[Span], ranks: int, average: Average
) -> tuple[RowFigures, ...]:
    """Return the figures of every span, in the order of `spans`."""
    return tuple(_row(_grid(ops, span, ranks), planned, span, ranks, average) for span in spans)


@dataclass(frozen=True, slots=True, eq=False)
class _Grid:
    """Records of a span as arrays of shape (ranks, ops); entries without a record are False in `is_present`."""

    records: NDArray[np.void]
    plan_row: NDArray[np.int64]
    is_present: NDArray[np.bool_]


def _grid(ops: MeasuredOps, span: Span, ranks: int) -> _Grid:
    column = np.full(max(span.ops) + 1, -1)
    column[list(span.ops)] = np.arange(len(span.ops))
    number = ops.records["op"]
    inside = np.flatnonzero((number <= span.ops[-1]) & (number >= span.ops[0]))
    inside = inside[column[number[inside]] >= 0]
    shape = (ranks, len(span.ops))
    records = np.zeros(shape, ops.records.dtype)
    plan_row = np.zeros(shape, np.int64)
    has_record = np.zeros(shape, np.bool_)
    index = (ops.records["rank"][inside], column[number[inside]])
    records[index], plan_row[index], has_record[index] = ops.records[inside], ops.plan_row[inside], True
    return _Grid(records, plan_row, has_record)


def _row(grid: _Grid, planned: PlannedOps, span: Span, ranks: int, average: Average) -> RowFigures:
    iterations = _iterations(span)
    time_ns: float | None = None
    if grid.is_present.all():
        per_rank = (
            grid.records["completed_ns"].max(axis=1) - grid.records["issued_ns"].min(axis=1)
        ) / iterations
        time_ns = _average_ns(per_rank, average)
    algbw = span.amount.size_bytes * NS_PER_S / time_ns if time_ns else 0.0
    factor = float(bus_factor(np.array([span.kind]), np.array([2 if span.kind == SEND_RECV else ranks]))[0])
    sent_bytes = (
        grid.records["wire_tx_bytes"][grid.is_present].sum()
        + grid.records["local_tx_bytes"][grid.is_present].sum()
    )
    return RowFigures(
        kind=span.kind,
        amount=span.amount,
        half=span.half,
        together=span.together,
        time_ns=time_ns,
        algbw=algbw,
        busbw=algbw * factor,
        wrong_bytes=_wrong_bytes(grid, planned, span, ranks),
        sent_bytes=int(sent_bytes) // iterations,
        fabric_bytes=int(grid.records["wire_tx_bytes"][grid.is_present].sum()) // iterations,
        messages=int(grid.records["tx_messages"][grid.is_present].sum()) // iterations,
        iterations=_iteration_figures(grid, iterations) if grid.is_present.all() else None,
    )


def _iterations(span: Span) -> int:
    return len(span.ops) // 2 if span.kind == SEND_RECV else len(span.ops)


def _average_ns(per_rank: NDArray[np.float64], average: Average) -> float:
    match average:
        case Average.RANK_0:
            return float(per_rank[0])
        case Average.MEAN:
            return float(per_rank.mean())
        case Average.LEAST:
            return float(per_rank.min())
        case Average.MOST:
            return float(per_rank.max())


def _wrong_bytes(grid: _Grid, planned: PlannedOps, span: Span, ranks: int) -> int:
    wrong = 0
    for name in ("wire_tx_bytes", "wire_rx_bytes", "local_tx_bytes", "local_rx_bytes"):
        plan: NDArray[np.int64] = getattr(planned, name)
        measured = grid.records[name][grid.is_present].astype(np.int64)
        wrong += int(np.abs(measured - plan[grid.plan_row[grid.is_present]]).sum())
        if not grid.is_present.all():
            missing = np.isin(planned.op, span.ops) & (planned.rank < ranks)
            wrong += int(plan[missing].sum() - plan[grid.plan_row[grid.is_present]].sum())
    return wrong


def _iteration_figures(grid: _Grid, iterations: int) -> IterationFigures:
    lasted = grid.records["completed_ns"] - grid.records["issued_ns"]
    slowest = lasted.reshape(len(lasted), iterations, -1).max(axis=(0, 2))
    ordered = np.sort(slowest)
    return IterationFigures(
        times_ns=tuple(slowest.tolist()),
        min_ns=int(ordered[0]),
        max_ns=int(ordered[-1]),
        avg_ns=float(slowest.mean()),
        p50_ns=int(ordered[iterations // 2]),
        p95_ns=nearest_rank(ordered, 95),
        p99_ns=nearest_rank(ordered, 99),
        stdev_ns=float(slowest.std()),
    )


def interference(
    ops: MeasuredOps, spans: Sequence[Span], ranks: int, average: Average
) -> tuple[Interference, ...]:
    """Return each collective of a concurrent benchmark alone and together, for every size, in the order of the spans."""
    results: list[Interference] = []
    alone: dict[tuple[int, int], float | None] = {}
    start = 0
    while start < len(spans):
        count = next(
            (index for index in range(start, len(spans)) if spans[index].together != spans[start].together),
            len(spans),
        )
        group = spans[start:count]
        grids = [_grid(ops, span, ranks) for span in group]
        for index, span in enumerate(group):
            own_grid = grids[index]
            if not span.together:
                is_complete = own_grid.is_present.all()
                alone[span.kind, span.amount.size_bytes] = (
                    _mean_time(own_grid, average, None) if is_complete else None
                )
                continue
            other_grids = [grid for other, grid in enumerate(grids) if other != index]
            alone_ns = alone[span.kind, span.amount.size_bytes]
            if not all(grid.is_present.all() for grid in (own_grid, *other_grids)):
                results.append(Interference(span.kind, span.amount, alone_ns, None, 0))
                continue
            # Per rank: its iterations until the first of the other collectives had finished.
            ends = np.min([grid.records["completed_ns"][:, -1] for grid in other_grids], axis=0)
            done_iterations = (own_grid.records["completed_ns"] <= ends[:, None]).sum(axis=1)
            done_iterations = np.maximum(done_iterations, 1)
            results.append(
                Interference(
                    span.kind,
                    span.amount,
                    alone_ns,
                    _mean_time(own_grid, average, done_iterations),
                    int(done_iterations.min()),
                )
            )
        start = count
    return tuple(results)


def _mean_time(grid: _Grid, average: Average, done: NDArray[np.int64] | None) -> float:
    """Return the time of an iteration in ns, averaged over the first `done` iterations of each rank, or over all (None)."""
    ranks, iterations = grid.records.shape
    iterations_of_rank = np.full(ranks, iterations) if done is None else done
    ends = grid.records["completed_ns"][np.arange(ranks), iterations_of_rank - 1]
    return _average_ns((ends - grid.records["issued_ns"][:, 0]) / iterations_of_rank, average)
