"""From the records of a session to the rows of a benchmark: time, bandwidth, what was wrong, what crossed the device.

Decides every figure that `etloop collective` prints. Pure. The time of a row is, on one rank, from the issue of its first
measured operation to the completion of its last, divided by the iterations; both are stamps of one clock. Ranks are then
averaged as asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.run import PlannedOps
from etloop.controller.inputs.collective_spec import Amount, Average, Half
from etloop.experiments.collective.job import Span
from etloop.results.measure.distribution import nearest_rank
from etloop.results.measure.joined import MeasuredOps
from etloop.results.schema.kinds import SEND_RECV, bus_factor
from numpy.typing import NDArray

NS_PER_S: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class IterationFigures:
    """Single operations of a row: of each, the time on its slowest rank."""

    times_ns: tuple[int, ...]
    min_ns: int
    max_ns: int
    avg_ns: float
    p50_ns: int
    p95_ns: int
    p99_ns: int
    stdev_ns: float
    """Of the population."""

    @property
    def cv_percent(self) -> float:
        """Deviation in percent of the mean."""
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
    """Bytes per second; 0 where there is no time."""
    busbw: float
    wrong_bytes: int
    """By how many bytes the accounting of the measured operations differs from the plan, missing operations included."""
    sent_bytes: int
    fabric_bytes: int
    """S_fabric."""
    messages: int
    iterations: IterationFigures | None


@dataclass(frozen=True, slots=True)
class Interference:
    """One collective of a concurrent benchmark: alone, and while all the others were under way."""

    kind: int
    amount: Amount
    alone_ns: float | None
    together_ns: float | None
    overlapped: int
    """Iterations, of the slowest rank, that were complete before another collective had none left. The time is theirs."""

    @property
    def factor(self) -> float | None:
        """Time together in times of the time alone (the interference factor of the IETF benchmarking draft)."""
        return None if not self.alone_ns or self.together_ns is None else self.together_ns / self.alone_ns


def row_figures(
    ops: MeasuredOps, planned: PlannedOps, spans: Sequence[Span], ranks: int, average: Average
) -> tuple[RowFigures, ...]:
    """The figures of every span."""
    return tuple(_row(_grid(ops, span, ranks), planned, span, ranks, average) for span in spans)


@dataclass(frozen=True, slots=True, eq=False)
class _Grid:
    """Records of a span by rank and op; rows of `found` that are False hold nothing."""

    records: NDArray[np.void]
    plan_row: NDArray[np.int64]
    found: NDArray[np.bool_]


def _grid(ops: MeasuredOps, span: Span, ranks: int) -> _Grid:
    column = np.full(max(span.ops) + 1, -1)
    column[list(span.ops)] = np.arange(len(span.ops))
    number = ops.records["op"]
    inside = np.flatnonzero((number <= span.ops[-1]) & (number >= span.ops[0]))
    inside = inside[column[number[inside]] >= 0]
    shape = (ranks, len(span.ops))
    records = np.zeros(shape, ops.records.dtype)
    plan_row = np.zeros(shape, np.int64)
    found = np.zeros(shape, np.bool_)
    at = (ops.records["rank"][inside], column[number[inside]])
    records[at], plan_row[at], found[at] = ops.records[inside], ops.plan_row[inside], True
    return _Grid(records, plan_row, found)


def _row(grid: _Grid, planned: PlannedOps, span: Span, ranks: int, average: Average) -> RowFigures:
    iterations = _iterations(span)
    time_ns: float | None = None
    if grid.found.all():
        per_rank = (
            grid.records["completed_ns"].max(axis=1) - grid.records["issued_ns"].min(axis=1)
        ) / iterations
        time_ns = _averaged(per_rank, average)
    algbw = span.amount.size_bytes * NS_PER_S / time_ns if time_ns else 0.0
    factor = float(bus_factor(np.array([span.kind]), np.array([2 if span.kind == SEND_RECV else ranks]))[0])
    sent = grid.records["wire_tx_bytes"][grid.found].sum() + grid.records["local_tx_bytes"][grid.found].sum()
    return RowFigures(
        kind=span.kind,
        amount=span.amount,
        half=span.half,
        together=span.together,
        time_ns=time_ns,
        algbw=algbw,
        busbw=algbw * factor,
        wrong_bytes=_wrong_bytes(grid, planned, span, ranks),
        sent_bytes=int(sent) // iterations,
        fabric_bytes=int(grid.records["wire_tx_bytes"][grid.found].sum()) // iterations,
        messages=int(grid.records["tx_messages"][grid.found].sum()) // iterations,
        iterations=_iteration_figures(grid, iterations) if grid.found.all() else None,
    )


def _iterations(span: Span) -> int:
    return len(span.ops) // 2 if span.kind == SEND_RECV else len(span.ops)


def _averaged(per_rank: NDArray[np.float64], average: Average) -> float:
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
        measured = grid.records[name][grid.found].astype(np.int64)
        wrong += int(np.abs(measured - plan[grid.plan_row[grid.found]]).sum())
        if not grid.found.all():
            missing = np.isin(planned.op, span.ops) & (planned.rank < ranks)
            wrong += int(plan[missing].sum() - plan[grid.plan_row[grid.found]].sum())
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
    """Of every size of a concurrent benchmark, each collective alone and together, in the order of the spans."""
    found: list[Interference] = []
    alone: dict[tuple[int, int], float | None] = {}
    at = 0
    while at < len(spans):
        count = next(
            (index for index in range(at, len(spans)) if spans[index].together != spans[at].together),
            len(spans),
        )
        group = spans[at:count]
        grids = [_grid(ops, span, ranks) for span in group]
        for index, span in enumerate(group):
            own = grids[index]
            if not span.together:
                whole = own.found.all()
                alone[span.kind, span.amount.size_bytes] = _mean_time(own, average, None) if whole else None
                continue
            others = [grid for other, grid in enumerate(grids) if other != index]
            known = alone[span.kind, span.amount.size_bytes]
            if not all(grid.found.all() for grid in (own, *others)):
                found.append(Interference(span.kind, span.amount, known, None, 0))
                continue
            # Per rank: its iterations until the first of the others had none left.
            ends = np.min([grid.records["completed_ns"][:, -1] for grid in others], axis=0)
            done = (own.records["completed_ns"] <= ends[:, None]).sum(axis=1)
            done = np.maximum(done, 1)
            found.append(
                Interference(span.kind, span.amount, known, _mean_time(own, average, done), int(done.min()))
            )
        at = count
    return tuple(found)


def _mean_time(grid: _Grid, average: Average, done: NDArray[np.int64] | None) -> float:
    """Time of an iteration over the first `done` of each rank, or over all."""
    ranks, iterations = grid.records.shape
    counted = np.full(ranks, iterations) if done is None else done
    ends = grid.records["completed_ns"][np.arange(ranks), counted - 1]
    return _averaged((ends - grid.records["issued_ns"][:, 0]) / counted, average)
