"""Plans that points of a sweep share: the plan of equal inputs, and never that of others."""

from __future__ import annotations

from dataclasses import replace

from etloop.controller.plan.job_set import JobSet, only
from etloop.controller.plan.kept_plans import PLANS_KEPT, kept_plan
from etloop.controller.plan.plan import Plan, plan_jobs
from etloop.controller.plan.run_numbers import PLAN_ID, TWIN_ID
from etloop.results.schema.plan_json import plan_to_json
from etloop.workload.trace.trace import CollectiveKind
from tests.support.runs.plan_by_hand import Coll, job_of, rig_of, scenario_of

JOB = job_of(4, Coll(CollectiveKind.ALL_REDUCE, (0, 1, 2, 3), 1 << 20))


def jobs_of(text: str) -> JobSet:
    """Return a new set of the same job."""
    scenario = scenario_of(text)
    return only(JOB, scenario.mapping, scenario.collectives.settings)


def kept(
    text: str = "transport: {}", run_id: str = TWIN_ID, jobs: JobSet | None = None, ports: int = 1
) -> Plan:
    scenario, rig = scenario_of(text), rig_of({"a": ports, "b": 1})
    return kept_plan(scenario, rig, jobs or jobs_of(text), run_id, None, drawn_nonce=7)


def test_equal_inputs_have_one_plan_which_is_that_of_the_planner() -> None:
    plan = kept()
    assert kept() is plan
    scenario, jobs = scenario_of("transport: {}"), jobs_of("transport: {}")
    fresh = plan_jobs(scenario, rig_of({"a": 1, "b": 1}), jobs, TWIN_ID)
    assert plan_to_json(plan.tables) == plan_to_json(fresh.tables)


def test_each_input_that_differs_has_a_plan_of_its_own() -> None:
    plan = kept()
    assert kept("transport: {qps_per_connection: 2}") is not plan
    assert kept(ports=2) is not plan
    assert kept(run_id=PLAN_ID) is not plan
    assert kept(jobs=replace(jobs_of("transport: {}"), job=replace(JOB))) is not plan
    assert kept() is plan


def test_runs_in_real_time_have_plans_of_their_own() -> None:
    assert kept(run_id="20260101-120001.000") is not kept(run_id="20260101-120001.000")


def test_only_the_latest_plans_are_kept() -> None:
    plan = kept()
    for seed in range(PLANS_KEPT):
        kept(f"seed: {seed + 1}")
    assert kept() is not plan
