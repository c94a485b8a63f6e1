"""Numbers on the wire: others in every run, the same where a scenario fixes them, and the same paths in all of them."""

from __future__ import annotations

import zlib

import pytest

from etloop.controller.plan.job_set import only
from etloop.controller.plan.plan import Plan, plan_jobs
from etloop.controller.plan.run_numbers import PLAN_ID, TWIN_ID, run_nonce
from etloop.results.schema.plan_json import plan_from_json, plan_to_json
from etloop.workload.trace.trace import CollectiveKind
from tests.support.runs.plan_by_hand import Coll, job_of, rig_of, scenario_of


def planned(run_id: str, transport: str = "{}") -> Plan:
    """Four ranks on two agents, in the run of that id."""
    scenario = scenario_of(f"transport: {transport}")
    job = job_of(4, Coll(CollectiveKind.ALL_REDUCE, (0, 1, 2, 3), 1 << 20))
    jobs = only(job, scenario.mapping, scenario.collectives.settings)
    drawn = zlib.crc32(run_id.encode())
    return plan_jobs(scenario, rig_of({"a": 1, "b": 1}), jobs, run_id, drawn_nonce=drawn)


def first_psn(plan: Plan) -> int:
    (psn,) = {each.transport.recovery.initial_psn for each in plan.assignments.values()}
    return psn


def numbers(plan: Plan) -> tuple[object, ...]:
    """All that a stale packet would have to meet; keys are made of queue pair numbers."""
    columns = plan.tables.connections
    return (columns.src_qpn.tolist(), columns.dst_qpn.tolist(), first_psn(plan))


def test_no_packet_of_one_run_is_of_a_queue_pair_of_the_next() -> None:
    one, next_one = (planned(f"20260101-12000{second}.000") for second in (1, 2))
    of_one, of_next = (
        {*plan.tables.connections.src_qpn.tolist(), *plan.tables.connections.dst_qpn.tolist()}
        for plan in (one, next_one)
    )
    assert of_one.isdisjoint(of_next)
    assert first_psn(one) != first_psn(next_one)
    assert first_psn(one) % 4096 == first_psn(next_one) % 4096 == 0


def test_numbers_do_not_follow_from_the_published_run_id() -> None:
    scenario = scenario_of("transport: {}")
    nonces = {run_nonce(scenario.transport, "20260101-120001.000", drawn) for drawn in (1, 2)}
    assert nonces == {1, 2}


def test_all_runs_take_the_same_paths() -> None:
    plans = [planned(run_id) for run_id in (PLAN_ID, "r1", "r2")]
    ports = [plan.tables.connections.src_udp_port.tolist() for plan in plans]
    assert ports[0] == ports[1] == ports[2]


@pytest.mark.parametrize("run_id", [PLAN_ID, TWIN_ID])
def test_what_sends_nothing_is_the_same_every_time(run_id: str) -> None:
    plan = planned(run_id)
    assert plan.tables.run_nonce == 0
    assert numbers(plan) == numbers(planned("r1", "{run_nonce: 0}"))
    assert first_psn(plan) == 0


def test_a_run_can_be_repeated_with_its_numbers() -> None:
    """plan.json says the number of the run; the scenario that states it makes the same packets."""
    plan = planned("20260101-120001.000")
    kept = plan_from_json(plan_to_json(plan.tables), "plan.json").run_nonce
    assert kept == plan.tables.run_nonce != 0
    assert numbers(planned("another", f"{{run_nonce: {kept}}}")) == numbers(plan)


def test_a_first_sequence_number_that_is_stated_stands() -> None:
    assert first_psn(planned("r1", "{initial_psn: 7}")) == 7
    assert first_psn(planned("r1", "{initial_psn: 0}")) == 0
