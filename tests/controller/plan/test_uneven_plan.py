"""Uneven all-to-alls from a job to the records of a run in virtual time: planned and measured bytes of every pair agree."""

from __future__ import annotations

import json
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etloop.cli.text.plan import render_plan
from etloop.contract.base.errors import PlanError
from etloop.contract.model.records import PORT_RECORD
from etloop.contract.model.run import AgentRecords, RunEnd, RunOutcome
from etloop.controller.plan import schedule_set
from etloop.controller.plan.demand import Demand, demand_of
from etloop.controller.plan.job_set import only
from etloop.controller.plan.plan import Plan, make_plan
from etloop.controller.plan.report import report_plan
from etloop.results.schema.summary import ConsistencyResult
from etloop.results.store.run_dir import write_run
from etloop.traffic.collectives.algorithms.alltoall import UNEVEN
from etloop.traffic.simulation import SimulationOutcome, SimulationSettings, simulate
from etloop.workload.job import build_job
from etloop.workload.readers.files import read_trace
from etloop.workload.trace.program import Job
from etloop.workload.trace.settings import WorkloadSettings
from etloop.workload.trace.trace import CollectiveKind, Trace
from tests.support.runs.plan_by_hand import rig_of, scenario_of
from tests.support.runs.records_by_hand import run_by_hand
from tests.support.traces.shared_traces import SHARED_TRACES
from tests.support.traces.splits_by_hand import Matrix, all_to_all_v, with_splits
from tests.support.traces.traces_by_hand import all_reduce, collective, trace_of

A2A: Final = CollectiveKind.ALL_TO_ALL
PROJECTION: Final = SHARED_TRACES / "param-dlrm-8gpu" / "dlrm8_network_projection.json"
BAD_NETWORK: Final = SimulationSettings(
    seed=5, loss_per_million=40_000, duplicate_per_million=5_000, reorder_per_million=5_000
)


def _demand(job: Job) -> Demand:
    scenario = scenario_of()
    return demand_of(only(job, scenario.mapping, scenario.collectives.settings))


def planned(job: Job, ports: int, text: str = "") -> Plan:
    """The job on one agent that has all ports, so that one assignment is the whole of it."""
    return make_plan(scenario_of(text), rig_of({"a": ports}), job)


def ran(plan: Plan) -> SimulationOutcome:
    outcome = simulate(plan.assignments["a"], BAD_NETWORK)
    assert outcome.failure == ""
    return outcome


def outcome_of(plan: Plan, simulated: SimulationOutcome) -> RunOutcome:
    records = AgentRecords(
        agent="a",
        host="here",
        ops=simulated.ops,
        flows=simulated.flows,
        ports=np.zeros(0, PORT_RECORD),
        clock_offset_ns=0,
        clock_error_ns=0,
        degraded=(),
        versions={},
        complete=True,
    )
    return RunOutcome("uneven", RunEnd.DONE, "", "2026-01-01T00:00:00Z", 0, (records,))


def pair_bytes(plan: Plan) -> dict[tuple[int, int], int]:
    """Planned payload bytes of one iteration by (source, destination), without pairs that have none."""
    connections = plan.tables.connections
    found: Counter[tuple[int, int]] = Counter()
    for src, dst, payload in zip(
        connections.src_rank.tolist(),
        connections.dst_rank.tolist(),
        connections.payload_bytes.tolist(),
        strict=True,
    ):
        found[src, dst] += payload
    return {pair: payload for pair, payload in found.items() if payload}


SKEW: Matrix = ((9, 70_000, 0, 5), (0, 4, 0, 1), (300_001, 0, 7, 0), (0, 0, 0, 8))


def test_a_plan_counts_the_bytes_of_every_pair() -> None:
    job = build_job(all_to_all_v(SKEW, ((16,) * 4,) * 4), WorkloadSettings())
    plan = planned(job, ports=4)
    # 16 bytes each of the even one after it, which connects all pairs; the diagonal does not move.
    assert pair_bytes(plan) == {(i, j): SKEW[i][j] + 16 for i in range(4) for j in range(4) if i != j}
    ops = plan.tables.ops
    uneven = ops.sequence == 0
    assert ops.message_bytes[uneven].tolist() == [70_014, 5, 300_008, 8]
    assert ops.wire_tx_bytes[uneven].tolist() == [70_005, 1, 300_001, 0]
    assert ops.wire_rx_bytes[uneven].tolist() == [300_001, 70_000, 0, 6]
    kinds = {kind.algorithm: kind for kind in report_plan(plan).kinds}
    assert kinds[UNEVEN].operations == kinds["p2p"].operations == 1
    assert kinds[UNEVEN].message_bytes == sum(map(sum, SKEW))
    assert kinds[UNEVEN].wire_bytes == 370_007
    assert any(note.startswith("uneven-all-to-all: ") for note in plan.tables.notes)
    text = render_plan(report_plan(plan)).splitlines()
    at = next(at for at, line in enumerate(text) if line.startswith("uneven all-to-all"))
    assert [cell.strip() for cell in text[at + 1].split("  ") if cell.strip()] == [
        "world",
        "4",
        "1",
        "370 kB",
        "rank 2: 300 kB (3.2 x mean)",
        "rank 0: 300 kB (3.2 x mean)",
    ]


def test_an_exchange_of_nothing_has_no_busiest_rank() -> None:
    empty: Matrix = ((1, 0), (0, 2))
    text = render_plan(report_plan(planned(build_job(all_to_all_v(empty), WorkloadSettings()), ports=2)))
    assert "no rank" in text


def test_a_pair_of_zero_bytes_has_no_connection() -> None:
    plan = planned(build_job(all_to_all_v(SKEW), WorkloadSettings()), ports=4)
    connections = plan.tables.connections
    assert set(zip(connections.src_rank.tolist(), connections.dst_rank.tolist(), strict=True)) == {
        (0, 1),
        (0, 3),
        (1, 3),
        (2, 0),
    }


def test_ranks_that_run_alike_share_a_variant_and_a_matrix_its_schedule() -> None:
    nodes = [[collective(k, A2A, 6, group) for k in (1, 2)] for group in ("a", "a", "b", "b")]
    groups: dict[str, tuple[int, ...]] = {"a": (0, 1), "b": (2, 3)}
    turned: Matrix = ((2, 4), (5, 1))
    rows = {(rank, 1): turned[rank % 2] for rank in range(4)} | {
        (rank, 2): turned[rank % 2] for rank in range(4)
    }
    job = build_job(with_splits(trace_of(*nodes, groups=groups), rows), WorkloadSettings())
    found = _demand(job)
    assert [schedule.algorithm for schedule in found.schedules] == [UNEVEN]
    assert found.variant_of_rank == (0, 0, 0, 0)
    assert [(shape.ops, shape.payload_bytes.tolist()) for shape in found.shapes] == [(2, [4, 5]), (2, [4, 5])]


def test_other_splits_on_another_group_are_another_variant() -> None:
    """Equal message sizes, so one program; but the rows differ."""
    nodes = [[collective(1, A2A, 6, group)] for group in ("a", "a", "b", "b")]
    groups: dict[str, tuple[int, ...]] = {"a": (0, 1), "b": (2, 3)}
    rows = {(0, 1): (2, 4), (1, 1): (5, 1), (2, 1): (4, 2), (3, 1): (1, 5)}
    job = build_job(with_splits(trace_of(*nodes, groups=groups), rows), WorkloadSettings())
    assert len(job.programs) == 1
    found = _demand(job)
    assert found.variant_of_rank == (0, 0, 1, 1)


def test_step_tables_beyond_what_an_agent_can_take_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule_set, "MOST_UNEVEN_LANES", 20)
    job = build_job(all_to_all_v(SKEW, ((1, 2, 3, 4),) * 4), WorkloadSettings())
    with pytest.raises(PlanError) as refused:
        _demand(job)
    assert str(refused.value) == (
        "hand: its uneven all-to-alls have more than 10 different splits in all; replay fewer steps of the job, or remove "
        "the split sizes from the trace"
    )


@settings(max_examples=25, deadline=None)
@given(
    st.integers(2, 9).flatmap(
        lambda n: st.lists(
            st.lists(st.one_of(st.just(0), st.integers(0, 90_000)), min_size=n, max_size=n),
            min_size=n,
            max_size=n,
        )
    ),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([Fraction(1), Fraction(1, 3)]),
)
def test_what_is_planned_is_what_the_engine_moves(
    rows: list[list[int]], ranks_per_host: int, scale: Fraction
) -> None:
    """Whatever the matrix, the hosts and the scale, on a bad network: every op and every queue pair."""
    matrix = tuple(map(tuple, rows))
    job = build_job(all_to_all_v(matrix), WorkloadSettings(bytes_scale=scale))
    plan = planned(job, len(matrix), f"mapping: {{ranks_per_host: {ranks_per_host}}}\niterations: 2")
    outcome = ran(plan)
    ops = plan.tables.ops
    row_of = {(int(rank), int(op)): row for row, (rank, op) in enumerate(zip(ops.rank, ops.op, strict=True))}
    assert len(outcome.ops) == 2 * len(ops.rank)
    for record in outcome.ops:
        row = row_of[int(record["rank"]), int(record["op"])]
        for name in ("wire_tx_bytes", "wire_rx_bytes", "local_tx_bytes", "local_rx_bytes"):
            assert record[name] == getattr(ops, name)[row]
    carried = np.zeros(len(plan.tables.connections.src_rank), np.int64)
    flows = outcome.flows[outcome.flows["sends_data"] == 1]
    np.add.at(carried, plan.connection_rows["a"][flows["connection"]], flows["tx_payload_bytes"])
    wire = np.diff(plan.tables.connections.qp_offsets) > 0
    assert (carried[wire] == 2 * plan.tables.connections.payload_bytes[wire]).all()


def projection_trace() -> tuple[Trace, list[list[dict[str, Any]]]]:
    """The DLRM job of 8 ranks, operation by operation one after another."""
    if not PROJECTION.is_file():
        pytest.skip("the real trace sets are not beside the repository")
    ranks = json.loads(PROJECTION.read_text())["ranks"]
    ops = [ranks[str(rank)] for rank in range(8)]
    nodes, sends, receives = [], {}, {}
    for rank, own in enumerate(ops):
        made = []
        for k, op in enumerate(own):
            kind = CollectiveKind.ALL_REDUCE if op["op"] == "allreduce" else A2A
            node = collective(k, kind, op["in_bytes"])
            made.append(node.after(k - 1) if k else node)
            if op["in_splits"]:
                sends[rank, k] = tuple(op["in_splits"])
                receives[rank, k] = tuple(op["out_splits"])
        nodes.append(made)
    return with_splits(trace_of(*nodes), sends, receives), ops


def test_the_dlrm_job_moves_exactly_its_splits(tmp_path: Path) -> None:
    """The only real set with uneven splits: every operation, every pair and every table of the run directory."""
    trace, ops = projection_trace()
    job = build_job(trace, WorkloadSettings())
    assert len(job.splits) == 1, "of five all-to-alls with split sizes one is uneven"
    plan = planned(job, 8, "iterations: 3")
    wanted: Counter[tuple[int, int]] = Counter()
    for k in range(8):
        for i in range(8):
            op = ops[i][k]
            for j in range(8):
                if op["op"] != "allreduce" and i != j:
                    wanted[i, j] += (op["in_splits"] or [op["in_bytes"] // 8] * 8)[j]
    reduced = sum(2 * 7 * op["in_bytes"] for op in ops[0] if op["op"] == "allreduce")
    assert sum(pair_bytes(plan).values()) == sum(wanted.values()) + reduced
    simulated = ran(plan)
    found = run_by_hand(outcome_of(plan, simulated), plan.tables, rows=plan.connection_rows)
    write_run(tmp_path / "run", found)
    # The bad network repeats packets, which no agent sent.
    results = {check.name: check.result for check in found.summary.checks}
    assert results.pop("received_was_sent") is ConsistencyResult.FAIL
    assert set(results.values()) == {ConsistencyResult.PASS}
    rows = pq.read_table(tmp_path / "run" / "collectives.parquet").to_pylist()
    assert len(rows) == 3 * 8
    for row in rows:
        members = [ops[rank][row["sequence"]] for rank in range(8)]
        assert row["size_bytes"] == max(op["in_bytes"] for op in members)
        if members[0]["op"] != "allreduce":
            kept = sum(
                (op["in_splits"] or [op["in_bytes"] // 8] * 8)[rank] for rank, op in enumerate(members)
            )
            assert row["fabric_bytes"] == sum(op["in_bytes"] for op in members) - kept
        assert row["algorithm"] == (
            "ring" if members[0]["op"] == "allreduce" else UNEVEN if row["sequence"] == 3 else "p2p"
        )
    flows = pq.read_table(tmp_path / "run" / "flows.parquet").to_pylist()
    carried: Counter[tuple[int, int]] = Counter()
    for row in flows:
        if row["role"] == "sender":
            carried[row["src_rank"], row["dst_rank"]] += row["tx_payload_bytes"]
    assert carried == {pair: 3 * size for pair, size in pair_bytes(plan).items()}
    measured = pq.read_table(tmp_path / "run" / "ops.parquet").to_pylist()
    hot = [row for row in measured if row["sequence"] == 3]
    assert [row["wire_rx_bytes"] for row in hot] == [
        sum(ops[i][3]["in_splits"][row["rank"]] for i in range(8) if i != row["rank"]) for row in hot
    ]


def test_the_dlrm_host_traces_tell_the_same_splits_at_both_ends() -> None:
    """What each rank recorded that it sends and expects, against the projection of the same run."""
    by_hand, _ = projection_trace()
    read = read_trace(PROJECTION.with_name("dlrm_pytorch_et.tar.gz"))
    for ours, theirs in zip(read.ranks, by_hand.ranks, strict=True):
        for one, other in (
            (ours.send_splits, theirs.send_splits),
            (ours.recv_splits, theirs.recv_splits),
        ):
            assert one is not None
            assert other is not None
            assert one.values.tolist() == other.values.tolist()
    job, expected = build_job(read, WorkloadSettings()), build_job(by_hand, WorkloadSettings())
    assert [matrix.tolist() for matrix in job.splits] == [matrix.tolist() for matrix in expected.splits]
    assert pair_bytes(planned(job, 8)) == pair_bytes(planned(expected, 8))


def test_a_job_of_other_operations_has_no_uneven_schedule() -> None:
    job = build_job(trace_of([all_reduce(1)], [all_reduce(1)]), WorkloadSettings())
    assert [schedule.splits for schedule in _demand(job).schedules] == [()]
