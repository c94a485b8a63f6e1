"""Jobs that go by unlike transports: each on ports of its own, whose agents get the transports that they need."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from etloop.contract.base.errors import PlanError
from etloop.contract.model.assignment import Path as Way
from etloop.contract.model.transport_kinds import TransportKind
from etloop.controller.inputs.scenario.scenario import Scenario, parse_scenario
from etloop.controller.plan.jobs import build_jobs
from etloop.controller.plan.plan import plan_jobs
from etloop.controller.plan.summary import summarise
from etloop.controller.plan.timeouts import patient
from etloop.controller.racks.scenario_needs import needs_of
from etloop.controller.run.device_demands import demands_of
from tests.support.runs.plan_by_hand import ONE_RING, rig_of

if TYPE_CHECKING:
    from etloop.controller.plan.plan import Plan

ROCE, MRC, UET = TransportKind.ROCE, TransportKind.MRC, TransportKind.UET
PAIR = "workload: {collective: {kind: all_to_all, ranks: 2, size: 1MiB}}"
RIG = {"a": 2, "b": 2, "c": 2}


def job(name: str, ports: str, own: str = "") -> str:
    return f"{{name: {name}, {PAIR}, mapping: {{ports: [{ports}]}}{', ' if own else ''}{own}}}"


def scenario_of(*jobs: str, top: str = "") -> Scenario:
    text = f"jobs: [{', '.join(jobs)}]\n{ONE_RING}{top}"
    return parse_scenario(text.encode(), "scenario.yaml", Path())


def plan(*jobs: str, top: str = "", run_id: str = "plan", drawn_nonce: int = 0) -> Plan:
    scenario = scenario_of(*jobs, top=top)
    return plan_jobs(scenario, rig_of(RIG), build_jobs(scenario), run_id, drawn_nonce=drawn_nonce)


def refusal(*jobs: str, top: str = "") -> list[str]:
    with pytest.raises(PlanError) as caught:
        plan(*jobs, top=top)
    return str(caught.value).splitlines()


THREE = (
    job("ring", "a/p0, b/p0"),
    job("spray", "a/p1, c/p0", "transport: {kind: mrc}"),
    job("ultra", "b/p1, c/p1", "transport: {kind: uet}"),
)


def test_every_agent_has_the_transports_of_its_ports_and_every_port_the_number_of_one() -> None:
    found = plan(*THREE)
    spoken = {
        f"{agent}/{port.name}": (assignment.transports[port.transport].kind, port.udp_port)
        for agent, assignment in found.assignments.items()
        for port in assignment.ports
    }
    assert spoken == {
        "a/p0": (ROCE, 4791),
        "b/p0": (ROCE, 4791),
        "a/p1": (MRC, 4971),
        "c/p0": (MRC, 4971),
        "b/p1": (UET, 4793),
        "c/p1": (UET, 4793),
    }
    kinds = {name: [one.kind for one in each.transports] for name, each in found.assignments.items()}
    assert kinds == {"a": [ROCE, MRC], "b": [ROCE, UET], "c": [MRC, UET]}
    whole = found.whole()
    assert [one.kind for one in whole.transports] == [ROCE, MRC, UET]
    assert [whole.transports[port.transport].kind for port in whole.ports] == [ROCE, MRC, ROCE, UET, MRC, UET]


def test_no_connection_joins_ports_of_unlike_transports() -> None:
    found = plan(*THREE)
    spoken = np.array(found.parts.transports.of_port)
    placed = found.parts.connections
    on_wire = placed.columns.path == Way.WIRE
    assert on_wire.sum() == 3 * 2
    assert (spoken[placed.src_port] == spoken[placed.dst_port]).all()


def test_a_plan_says_which_job_goes_by_what_and_by_which_control() -> None:
    notes = [note for note in plan(*THREE).tables.notes if "transport" in note]
    assert [note.partition(":")[0] for note in notes] == [
        "transport.kind mrc",
        "transport.kind mrc",
        "transport.kind uet",
        "transport.kind uet",
        "transports of jobs, each on ports of its own",
    ]
    assert notes[1].endswith("these are none: a/p1, c/p0"), "only its own ports"
    assert notes[-1].endswith("ring rocev2 with dcqcn; spray mrc with nscc; ultra uet with nscc")
    assert not any(
        "transport" in note for note in plan(job("one", "a/p0, b/p0"), job("two", "a/p0, c/p0")).tables.notes
    )


@pytest.mark.parametrize(
    ("what", "second", "unlike"),
    [
        ("another kind", "transport: {kind: mrc}", "ring uses rocev2 and other mrc"),
        (
            "another control",
            "transport: {cc: {algorithm: dctcp}}",
            "ring and other use rocev2 with different settings",
        ),
    ],
)
def test_jobs_of_unlike_transports_do_not_share_a_port(what: str, second: str, unlike: str) -> None:
    jobs = (job("ring", "a/p0, b/p0"), job("other", "b/p0, c/p0", second))
    said = (
        f"port b/p0: a port supports one transport; job {unlike}; give each job separate ports: "
        "mapping: {ports: [...]} in the job"
    )
    assert refusal(*jobs) == [said], what
    scenario = scenario_of(*jobs)
    with pytest.raises(PlanError, match="port b/p0: a port supports one transport"):
        summarise(scenario, rig_of(RIG), build_jobs(scenario))
    like = (job("ring", "a/p0, b/p0", second), job("other", "b/p0, c/p0", second))
    assert len(plan(*like).parts.transports.transports) == 1


def test_a_rule_of_faults_that_only_ports_of_another_kind_could_carry_out_is_refused() -> None:
    jobs = (job("spray", "a/p0, b/p0"), job("ring", "a/p1, c/p0", "transport: {kind: rocev2}"))
    (said,) = refusal(*jobs, top="transport: {kind: mrc, faults: [{do: trim, which: 1, from: 2, to: 3}]}")
    assert said.startswith(
        "transport.faults[0]: the rule matches no connection through the device under test"
    )
    found = plan(*jobs, top="transport: {kind: mrc, faults: [{do: trim, which: 1, from: 0, to: 1}]}")
    assert [len(one.faults) for one in found.whole().transports] == [1, 0]


def test_first_numbers_and_waits_are_those_of_the_run_in_every_transport() -> None:
    found = plan(*THREE, run_id="20260101-000000", drawn_nonce=4711)
    assert len({one.recovery.initial_psn for one in found.whole().transports}) == 1
    assert found.whole().transport.recovery.initial_psn > 0
    scenario = patient(scenario_of(*THREE), 1_000_000_000, None)
    assert len({(one.timeout_ns, one.recovery.timeout_floor_ns) for one in scenario.transports}) == 1
    assert scenario.transport.recovery.timeout_floor_ns > 20_000_000


def test_a_card_of_one_transport_is_not_looked_at_by_the_other() -> None:
    """The contexts of UET cannot be dealt over queues, which RoCEv2's queue pairs can."""
    plain = rig_of(RIG)
    agents = tuple(
        replace(agent, ports=(replace(agent.ports[0], queues=2), *agent.ports[1:])) for agent in plain.agents
    )
    rig = replace(plain, agents=agents)

    def planned(*jobs: str) -> Plan:
        scenario = scenario_of(*jobs)
        return plan_jobs(scenario, rig, build_jobs(scenario))

    found = planned(job("ring", "a/p0, b/p0"), job("ultra", "a/p1, c/p1", "transport: {kind: uet}"))
    assert len(found.whole().transports) == 2
    with pytest.raises(PlanError, match="cannot be divided among several queues: c/p0"):
        planned(job("ring", "a/p0, b/p0"), job("ultra", "a/p1, c/p0", "transport: {kind: uet}"))


def test_a_device_and_a_rack_are_asked_for_what_any_of_them_needs() -> None:
    scenario = scenario_of(*THREE)
    demands = demands_of(scenario, None, "s.yaml")
    assert (demands.lossless, demands.accepts_out_of_order, demands.needs_marks) == (True, False, True)
    assert (demands.congestion_algorithm, demands.cnp_dscp) == ("dcqcn and nscc", 48)
    needs = needs_of(scenario, lambda _: 0)
    assert (needs.backends, needs.backend_key) == (("packet", "xdp"), "transport.kind mrc and uet")
    assert needs_of(scenario_of(THREE[0]), lambda _: 0).backends == ()
