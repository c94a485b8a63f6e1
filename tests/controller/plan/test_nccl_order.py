"""Operations of one communicator follow each other as on an NCCL stream, those of different communicators do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from etloop.cli.text.plan import render_plan
from etloop.controller.inputs.scenario.scenario import parse_scenario
from etloop.controller.plan.plan import Plan, make_plan
from etloop.controller.plan.report import report_plan
from etloop.traffic.simulation import SimulationSettings, simulate
from etloop.workload.job import build_job
from tests.support.runs.plan_by_hand import rig_of
from tests.support.traces.traces_by_hand import all_reduce, trace_of

RANKS = 4
FIRST, SECOND, BESIDE = 10, 11, 12
"""Nodes: two all-reduces of one communicator and one of another, none of which waits for another in the trace."""
OP_BYTES = 4 << 20


def planned(dependencies: str, shaping: str) -> Plan:
    nodes = [
        all_reduce(FIRST, OP_BYTES, "tensor"),
        all_reduce(SECOND, OP_BYTES, "tensor"),
        all_reduce(BESIDE, OP_BYTES, "data"),
    ]
    everybody = tuple(range(RANKS))
    trace = trace_of(*[nodes] * RANKS, groups={"tensor": everybody, "data": everybody})
    text = f"workload: {{trace: job, dependencies: {dependencies}}}\ncollectives: {{shaping: {shaping}}}\n"
    scenario = parse_scenario(text.encode(), "s.yaml", Path())
    job = build_job(trace, scenario.jobs[0].source.settings)
    return make_plan(scenario, rig_of({"a": RANKS}), job)


def times(plan: Plan) -> dict[int, dict[int, tuple[int, int]]]:
    """(issued, completed) of every node, by rank."""
    outcome = simulate(plan.assignments["a"], SimulationSettings(seed=1))
    assert outcome.failure == ""
    ops = plan.tables.ops
    rows = zip(ops.rank.tolist(), ops.op.tolist(), ops.node_id.tolist(), strict=True)
    node = {(rank, op): node_id for rank, op, node_id in rows}
    found: dict[int, dict[int, tuple[int, int]]] = {}
    for row in outcome.ops:
        rank = int(row["rank"])
        span = (int(row["issued_ns"]), int(row["completed_ns"]))
        found.setdefault(rank, {})[node[rank, int(row["op"])]] = span
    return found


@pytest.mark.parametrize("dependencies", ["data", "data+ctrl", "data+communicator"])
def test_nccl_runs_a_communicator_in_order_and_communicators_side_by_side(dependencies: str) -> None:
    spans = times(planned(dependencies, "nccl"))
    assert len(spans) == RANKS
    for rank, of in spans.items():
        assert of[SECOND][0] >= of[FIRST][1], f"rank {rank}: the second begins when the first is over"
        assert of[BESIDE][0] == of[FIRST][0], f"rank {rank}: the other communicator does not wait"


@pytest.mark.parametrize("shaping", ["plain", "gloo", "mpi"])
def test_other_shapings_leave_the_order_to_the_trace(shaping: str) -> None:
    spans = times(planned("data", shaping))
    for of in spans.values():
        assert len({issued for issued, _ in of.values()}) == 1, "all three begin at once"


def test_the_plan_says_that_the_order_is_nccls() -> None:
    note = (
        "note: dependencies data do not order the operations of a communicator, but NCCL runs them one after another, "
        "as this plan does; use collectives.shaping plain, gloo or mpi to keep the trace's order\n"
    )
    reported = render_plan(report_plan(planned("data", "nccl")))
    assert note in reported
    assert "dependencies data+communicator, shaped as nccl" in reported
    assert f"{RANKS} communicator" in reported, "one edge a rank is added"
    assert note not in render_plan(report_plan(planned("data", "plain")))
    assert note not in render_plan(report_plan(planned("data+communicator", "nccl")))
