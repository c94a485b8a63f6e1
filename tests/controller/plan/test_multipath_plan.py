"""Plans of jobs over MRC: which port numbers they give, what they say, and what they refuse."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from etloop.contract.base.errors import PlanError
from etloop.contract.model.assignment import PortBackend
from etloop.contract.model.transport_kinds import TransportKind
from etloop.controller.plan.plan import make_plan
from etloop.workload.trace.trace import CollectiveKind
from tests.support.runs.plan_by_hand import Coll, job_of, rig_of, scenario_of

if TYPE_CHECKING:
    from etloop.controller.inputs.rig import Rig
    from etloop.controller.plan.plan import Plan

MRC = "transport: {kind: mrc, mrc: {entropy_values: 64}}"


def rig(*backends: PortBackend) -> Rig:
    plain = rig_of(dict.fromkeys("abcd"[: len(backends)], 1))
    agents = (
        replace(agent, ports=tuple(replace(port, backend=backend) for port in agent.ports))
        for agent, backend in zip(plain.agents, backends, strict=True)
    )
    return replace(plain, agents=tuple(agents))


def with_queues(plain: Rig, queues: int) -> Rig:
    agents = (
        replace(agent, ports=tuple(replace(port, queues=queues) for port in agent.ports))
        for agent in plain.agents
    )
    return replace(plain, agents=tuple(agents))


def plan(scenario: str, *backends: PortBackend) -> Plan:
    job = job_of(len(backends), Coll(CollectiveKind.ALL_TO_ALL, tuple(range(len(backends))), 1 << 20))
    return make_plan(scenario_of(scenario), rig(*backends), job)


def said(found: Plan) -> list[str]:
    return [note for note in found.tables.notes if "mrc" in note]


def test_a_plan_says_what_carries_messages_and_where_it_cannot() -> None:
    found = plan(MRC, PortBackend.PACKET, PortBackend.XDP, PortBackend.UDP)
    first, second = said(found)
    assert (
        first
        == "transport.kind mrc: MRC in place of RoCEv2; packets of a queue pair take 64 entropy values, rotation"
    )
    assert second.startswith(
        "transport.kind mrc: the twin carries it everywhere; in a run only ports with backend: "
    )
    assert second.endswith(" these are none: c/p0")
    assert len(said(plan(MRC, PortBackend.PACKET, PortBackend.XDP))) == 1
    assert said(plan("", PortBackend.PACKET, PortBackend.UDP)) == []


def test_packets_go_to_mrcs_own_port() -> None:
    found = plan(MRC, PortBackend.PACKET, PortBackend.PACKET)
    assert {port.udp_port for one in found.assignments.values() for port in one.ports} == {4971}
    assert {one.transport.kind for one in found.assignments.values()} == {TransportKind.MRC}
    shared = plan("transport: {kind: mrc, mrc: {udp_port: 4791}}", PortBackend.PACKET, PortBackend.PACKET)
    assert {port.udp_port for one in shared.assignments.values() for port in one.ports} == {4791}


def test_what_closes_by_atomics_is_refused() -> None:
    scenario = f"{MRC}\ncollectives: {{all_to_all: {{algorithm: deepep}}}}"
    with pytest.raises(
        PlanError, match=r"MRC supports only writes, but .* ends its messages with atomics; choose another"
    ):
        plan(scenario, PortBackend.PACKET, PortBackend.PACKET)


def test_uet_is_refused_where_queues_share_an_address() -> None:
    """Its contexts are no queue pairs that queues could deal; one queue, or MRC over several, is fine."""
    job = job_of(2, Coll(CollectiveKind.ALL_TO_ALL, (0, 1), 1 << 20))
    many = with_queues(rig(PortBackend.PACKET, PortBackend.PACKET), 2)
    with pytest.raises(
        PlanError, match=r"cannot be divided among several queues: a/p0, b/p0; write queues: 1"
    ):
        make_plan(scenario_of("transport: {kind: uet}"), many, job)
    make_plan(scenario_of("transport: {kind: uet}"), rig(PortBackend.PACKET, PortBackend.PACKET), job)
    make_plan(scenario_of(MRC), many, job)
