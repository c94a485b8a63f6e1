"""Rows of a benchmark that are known while its session goes on are those that are worked out at its end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from etloop.controller.inputs.collective_spec import Average, BenchSpec
from etloop.controller.plan.plan import Plan, make_plan
from etloop.experiments.collective.figures import RowFigures, row_figures
from etloop.experiments.collective.job import BenchJob, bench_job
from etloop.experiments.collective.live_rows import LiveRows
from etloop.results.measure.joined import MeasuredOps
from etloop.traffic.simulation import SimulationSettings, simulate
from etloop.workload.trace.trace import CollectiveKind
from tests.support.runs.plan_by_hand import rig_of, scenario_of

AR, A2A = int(CollectiveKind.ALL_REDUCE), int(CollectiveKind.ALL_TO_ALL)
SPEC = BenchSpec((AR, A2A), ranks=4, least_bytes=1024, most_bytes=4096, factor=2, iterations=3)


@pytest.fixture(scope="module")
def bench() -> BenchJob:
    return bench_job(SPEC)


@pytest.fixture(scope="module")
def plan(bench: BenchJob) -> Plan:
    return make_plan(scenario_of(""), rig_of({"a": SPEC.ranks}), bench.job)


@pytest.fixture(scope="module")
def records(plan: Plan) -> NDArray[np.void]:
    outcome = simulate(plan.assignments["a"], SimulationSettings())
    assert outcome.failure == ""
    return outcome.ops


def live(bench: BenchJob, plan: Plan) -> LiveRows:
    return LiveRows(plan.tables.ops, bench.spans, SPEC.ranks, SPEC.average)


def taken(rows: LiveRows, records: NDArray[np.void], step: int) -> Iterator[RowFigures]:
    for begin in range(0, len(records), step):
        for halves in rows.take(records[begin : begin + step]):
            yield from halves


def at_the_end(bench: BenchJob, plan: Plan, records: NDArray[np.void]) -> tuple[RowFigures, ...]:
    planned = plan.tables.ops
    key = {
        (int(rank), int(op)): row for row, (rank, op) in enumerate(zip(planned.rank, planned.op, strict=True))
    }
    records = records[np.lexsort((records["op"], records["rank"]))]
    rows = np.array([key[int(one["rank"]), int(one["op"])] for one in records])
    count = len(records)
    ops = MeasuredOps(records, np.ones(count, np.bool_), rows, np.zeros(count, np.int64), 0, 0)
    return row_figures(ops, planned, bench.spans, SPEC.ranks, SPEC.average)


@pytest.mark.parametrize("step", [1, 7, 10_000])
def test_rows_come_in_their_order_with_the_figures_of_the_end(
    bench: BenchJob, plan: Plan, records: NDArray[np.void], step: int
) -> None:
    found = list(taken(live(bench, plan), records, step))
    assert found == list(at_the_end(bench, plan, records))
    assert all(row.time_ns is not None and not row.wrong_bytes for row in found)


def test_a_row_is_known_with_the_last_of_its_operations_and_not_before(
    bench: BenchJob, plan: Plan, records: NDArray[np.void]
) -> None:
    rows = live(bench, plan)
    last = bench.spans[1].ops[-1]
    first_row = records[(records["op"] <= last)]
    assert not list(rows.take(first_row[:-1]))
    ((first, second),) = rows.take(first_row[-1:])
    assert (first.amount, second.amount) == (bench.spans[0].amount, bench.spans[1].amount)


def test_records_come_twice_and_from_nowhere_without_making_a_row(
    bench: BenchJob, plan: Plan, records: NDArray[np.void]
) -> None:
    """What an agent sends is not believed: the same op twice, a rank or an op that the plan has not, another iteration."""
    rows = live(bench, plan)
    strange = records[:4].copy()
    strange["rank"], strange["op"] = [99, 0, 0, 0], [0, 60_000, 0, 0]
    strange["iteration"] = [0, 0, 7, 7]
    only = records[records["op"] == bench.spans[0].ops[0]][:1]
    assert not list(taken(rows, np.concatenate([strange, *[only] * 100]), 3))


def test_a_row_without_one_of_its_operations_holds_back_those_behind_it(
    bench: BenchJob, plan: Plan, records: NDArray[np.void]
) -> None:
    """They are printed when the session is over, in their order."""
    lost = (records["op"] == bench.spans[2].ops[0]) & (records["rank"] == 1)
    found = list(taken(live(bench, plan), records[~lost], 10_000))
    assert [row.amount.size_bytes for row in found] == [1024, 1024]


def test_averages_are_as_asked_for(bench: BenchJob, plan: Plan, records: NDArray[np.void]) -> None:
    spans = replace(SPEC, average=Average.MOST)
    rows = LiveRows(plan.tables.ops, bench.spans, SPEC.ranks, spans.average)
    most = next(taken(rows, records, 10_000))
    mean = next(taken(live(bench, plan), records, 10_000))
    assert most.time_ns is not None
    assert mean.time_ns is not None
    assert most.time_ns >= mean.time_ns
