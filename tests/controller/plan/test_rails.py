"""Ranks on the NICs of their hosts: which rail, which port, what stays inside the host, and rigs that do not fit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path as FilePath
from typing import TYPE_CHECKING

import pytest

from etloop.cli.text.plan import render_plan
from etloop.contract.base.errors import ConfigError, PlanError
from etloop.contract.model.assignment import Path
from etloop.controller.inputs.rig import parse_rig
from etloop.controller.plan.places.rails import port_sets
from etloop.controller.plan.plan import make_plan
from etloop.controller.plan.report import report_plan
from etloop.workload.trace.trace import CollectiveKind
from tests.support.runs.plan_by_hand import Coll, job_of, rig_of, scenario_of

if TYPE_CHECKING:
    from etloop.controller.inputs.rig import Rig
    from etloop.controller.plan.plan import Plan

MIB = 1 << 20
A2A = CollectiveKind.ALL_TO_ALL


def plan_of(mapping: str, rig: Rig, ranks: int = 8) -> Plan:
    job = job_of(ranks, Coll(A2A, tuple(range(ranks)), ranks * MIB))
    return make_plan(scenario_of(f"mapping: {{{mapping}}}"), rig, job)


def labels(plan: Plan) -> list[str]:
    return [plan.placement.ports[port].label for port in plan.placement.port]


def labelled_rig(rails: dict[str, tuple[int | None, ...]]) -> Rig:
    """A rig whose ports say their rails; None: says nothing."""
    rig = rig_of({agent: len(ports) for agent, ports in rails.items()})
    agents = tuple(
        replace(
            agent,
            ports=tuple(
                replace(port, rail=rail) for port, rail in zip(agent.ports, rails[agent.name], strict=True)
            ),
        )
        for agent in rig.agents
    )
    return replace(rig, agents=agents)


def test_local_rank_uses_its_nic_and_neighbours_share_one() -> None:
    plan = plan_of("ranks_per_host: 4, nics_per_host: 2", rig_of({"a": 2, "b": 2}))
    assert labels(plan) == ["a/p0", "a/p0", "a/p1", "a/p1", "b/p0", "b/p0", "b/p1", "b/p1"]
    assert plan.placement.nic == (0, 0, 1, 1, 0, 0, 1, 1)


def test_more_nics_than_ranks_leave_nics_unused() -> None:
    plan = plan_of("ranks_per_host: 2, nics_per_host: 4", rig_of({"a": 4}), ranks=2)
    assert labels(plan) == ["a/p0", "a/p2"]
    assert "ports without ranks, left unused: a/p1, a/p3" in plan.placement.notes


def test_ports_may_say_their_rails_in_any_order() -> None:
    rig = labelled_rig({"a": (1, 0), "b": (0, 0, 1, 1)})
    plan = plan_of("ranks_per_host: 2, rails: true, placement: round_robin", rig, ranks=6)
    assert labels(plan) == ["a/p1", "a/p0", "b/p0", "b/p2", "b/p1", "b/p3"], (
        "three hosts on three sets of two"
    )


def test_sets_of_rails_are_filled_where_the_first_of_their_ports_stands() -> None:
    ports = "ports: [b/p1, a/p0, a/p1, b/p0]"
    plan = plan_of(f"ranks_per_host: 2, nics_per_host: 2, {ports}", rig_of({"a": 2, "b": 2}), ranks=4)
    assert labels(plan) == ["b/p0", "b/p1", "a/p0", "a/p1"]


def test_ranks_of_a_host_talk_inside_it_though_their_ports_differ() -> None:
    plan = plan_of("ranks_per_host: 4, nics_per_host: 4", rig_of({"a": 4, "b": 4}))
    connections = plan.tables.connections
    for src, dst, path in zip(
        connections.src_rank.tolist(), connections.dst_rank.tolist(), connections.path.tolist(), strict=True
    ):
        assert (path == Path.SCALE_UP) == (src // 4 == dst // 4)
    ops = plan.tables.ops
    assert ops.local_tx_bytes.tolist() == ops.local_rx_bytes.tolist() == [3 * MIB] * 8
    assert ops.wire_tx_bytes.tolist() == ops.wire_rx_bytes.tolist() == [4 * MIB] * 8
    report = report_plan(plan)
    assert report.same_rail_bytes == 8 * MIB, "each rank sends to one rank of its own rail"
    text = render_plan(report)
    assert "(25%) stay on their rail" in text
    assert "rank  host  rail  port  address" in text


def test_without_rails_nothing_is_said_of_them() -> None:
    report = report_plan(plan_of("ranks_per_host: 4", rig_of({"a": 1, "b": 1})))
    assert report.same_rail_bytes is None
    assert "rail" not in render_plan(report)


def test_explicit_hosts_may_spread_over_the_ports_of_an_agent() -> None:
    mapping = "ranks_per_host: 2, placement: explicit, explicit: {0: a/p0, 1: a/p1, 2: b/p0, 3: b/p1}"
    plan = plan_of(mapping, rig_of({"a": 2, "b": 2}), ranks=4)
    inside = plan.tables.connections.path == Path.SCALE_UP
    assert int(inside.sum()) == 4


def test_connections_beside_the_device_are_noted() -> None:
    plan = plan_of("ranks_per_host: 1", rig_of({"a": 2}), ranks=2)
    (note,) = [note for note in plan.tables.notes if "join two ports of one agent" in note]
    assert note.startswith("2 of 2 connections")


@pytest.mark.parametrize(
    ("rails", "mapping", "message"),
    [
        (
            {"a": (None, None, None), "b": (None,)},
            "ranks_per_host: 2, nics_per_host: 2",
            (
                "agent a: it has 3 ports, which do not make up hosts of 2 NICs; "
                "give it a multiple of 2: one agent carries all NICs of a host\n"
                "agent b: it has 1 port, which do not make up hosts of 2 NICs; "
                "give it a multiple of 2: one agent carries all NICs of a host"
            ),
        ),
        (
            {"a": (0, 1, 1)},
            "ranks_per_host: 2, rails: true",
            (
                "agent a: its ports do not make up hosts of 2 NICs: 1 of rail 0, 2 of rail 1; "
                "give it the same number of each: one agent carries all NICs of a host"
            ),
        ),
        (
            {"a": (0, 3)},
            "ranks_per_host: 2, nics_per_host: 2",
            "agent a: port p1 has rail 3, but hosts have 2 NICs (0 to 1); correct the rail, or mapping.nics_per_host",
        ),
        (
            {"a": (0, None)},
            "ranks_per_host: 2, nics_per_host: 2",
            "agent a: port p1 has no rail, but other ports have one; write rail: at every port",
        ),
        (
            {"a": (None, None)},
            "ranks_per_host: 2, rails: true",
            (
                "mapping.rails: rails are requested, but neither the mapping nor the rig states their number; "
                "write nics_per_host, or rail: 0, 1, ... at the rig's ports"
            ),
        ),
    ],
)
def test_rigs_without_whole_hosts_are_refused(
    rails: dict[str, tuple[int | None, ...]], mapping: str, message: str
) -> None:
    with pytest.raises(PlanError) as caught:
        port_sets(labelled_rig(rails), scenario_of(f"mapping: {{{mapping}}}").mapping)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        (
            "nics_per_host: 2, rails: false",
            "scenario.yaml:2: mapping.rails: nics_per_host is given although rails is false; remove one of the two",
        ),
        (
            "rails: true, placement: explicit, explicit: {0: a/p0}",
            (
                "scenario.yaml:2: mapping.rails: rails choose the port of every rank, and so does placement: explicit; "
                "remove rails and nics_per_host, or let the placement be blocked"
            ),
        ),
    ],
)
def test_mappings_that_contradict_themselves_are_refused(mapping: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        scenario_of(f"mapping: {{{mapping}}}")
    assert str(caught.value) == message


def test_explicit_problems_name_their_lines() -> None:
    text = "mapping:\n  ranks_per_host: 2\n  placement: explicit\n  explicit:\n    0: a/p0\n    1: b/p0\n    2: c/p0\n"
    with pytest.raises(PlanError) as caught:
        make_plan(scenario_of(text), rig_of({"a": 1, "b": 1}), job_of(2, Coll(A2A, (0, 1), MIB)))
    assert [problem.where for problem in caught.value.problems] == [
        "scenario.yaml:8: mapping.explicit.2: rank 2",
        "scenario.yaml:6: mapping.explicit.0: ranks 0-1",
    ]


def test_a_rig_file_says_rails() -> None:
    text = b"agents:\n  - name: a\n    ports: [{name: p0, addresses: 10.0.0.1, link: 1Gbps, rail: 3}]\n"
    assert parse_rig(text, "rig.yaml", FilePath()).agents[0].ports[0].rail == 3
    with pytest.raises(ConfigError, match=r"rail: -1 is out of range; write a whole number from 0 to 63"):
        parse_rig(text.replace(b"rail: 3", b"rail: -1"), "rig.yaml", FilePath())
