"""Plans of rigs whose cards have several planes: where ranks are, what agents get, what plans say, and what they refuse."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from etloop.contract.base.errors import ConfigError, PlanError
from etloop.controller.inputs.rig import parse_rig
from etloop.controller.plan.plan import make_plan
from etloop.controller.plan.report import report_plan
from etloop.workload.trace.trace import CollectiveKind
from tests.support.runs.plan_by_hand import Coll, job_of, scenario_of

if TYPE_CHECKING:
    from etloop.controller.inputs.rig import Rig
    from etloop.controller.plan.plan import Plan

MRC = "transport: {kind: mrc}"


def port(agent: int, number: int, more: str = "backend: packet, card: c0") -> str:
    return (
        f"{{name: p{number}, addresses: 10.{number}.{agent}.1-10.{number}.{agent}.8, link: 100Gbps, {more}}}"
    )


def rig(*planes: int, more: str = "backend: packet, card: c0") -> Rig:
    """One agent with a card of so many planes each."""
    lines = [
        f"  - {{name: a{agent}, ports: [{', '.join(port(agent, number, more) for number in range(count))}]}}"
        for agent, count in enumerate(planes)
    ]
    return parse_rig("\n".join(["agents:", *lines]).encode(), "rig.yaml", Path())


def plan(on: Rig, scenario: str = MRC, ranks: int = 2) -> Plan:
    job = job_of(ranks, Coll(CollectiveKind.ALL_REDUCE, tuple(range(ranks)), 8 << 20))
    return make_plan(scenario_of(scenario), on, job)


def test_ranks_are_on_cards_and_agents_get_all_planes() -> None:
    found = plan(rig(4, 4))
    assert [place.label for place in found.placement.ports] == [
        f"a{a}/p{plane}" for a in range(2) for plane in range(4)
    ]
    assert found.placement.port == (0, 4)
    ports = found.assignments["a1"].ports
    assert [(one.name, one.plane, one.planes, one.addresses) for one in ports] == [
        (f"p{plane}", plane, 4, (f"10.{plane}.1.1",)) for plane in range(4)
    ]
    both = tuple(tuple(f"10.{plane}.{a}.1" for plane in range(4)) for a in range(2))
    assert found.assignments["a0"].planes == both, "its own, and its peer's"
    assert found.whole().planes == both
    assert [rank.port for rank in found.assignments["a1"].ranks] == [0]


def test_an_agent_is_told_of_its_peers_planes_alone() -> None:
    """Of three cards the job of two ranks has two; each further rank of a card has an address on every plane."""
    found = plan(rig(2, 2, 2), ranks=2)
    assert sorted(found.assignments) == ["a0", "a1"]
    shared = plan(rig(2, 2), "transport: {kind: mrc}\nmapping: {ranks_per_host: 2}", ranks=4)
    assert [place.ranks for place in shared.placement.ports] == [(0, 1), (), (2, 3), ()]
    assert shared.assignments["a0"].planes[1] == ("10.0.0.2", "10.1.0.2")


@pytest.mark.parametrize(
    ("scenario", "sends"),
    [
        (MRC, "sends over all ports of its card"),
        ("transport: {kind: uet}", "sends over all ports of its card"),
        (
            "transport: {kind: uet, uet: {delivery: rod}}",
            "keeps to one port of its card and leaves it where that is lost",
        ),
    ],
    ids=["mrc", "uet", "uet-rod"],
)
def test_a_plan_says_which_planes_a_queue_pair_has_and_what_each_carries(scenario: str, sends: str) -> None:
    found = plan(rig(2, 2), scenario)
    notes = [note for note in found.tables.notes if note.startswith("planes:")]
    assert notes == [f"planes: every queue pair {sends}, from plane i to plane i: a0/p0, a0/p1; a1/p0, a1/p1"]
    loads = report_plan(found).ports
    assert [(load.agent, load.port, load.tx_bytes) for load in loads] == [
        (f"a{a}", f"p{plane}", 4 << 20) for a in range(2) for plane in range(2)
    ]
    assert len({load.queue_pairs for load in loads}) == 1
    assert not [note for note in plan(rig(1, 1)).tables.notes if note.startswith("planes:")], (
        "one port is no plane"
    )


@pytest.mark.parametrize(
    ("planes", "scenario", "message"),
    [
        (
            (2, 2),
            "",
            r"transport\.kind: rocev2 keeps a queue pair on one port, .*; write transport: \{kind: mrc\} or \{kind: uet\}, or",
        ),
        (
            (2, 1),
            MRC,
            r"both ends of a queue pair need the same number of planes: a1/p0 has 1 plane, but the cards are a0/c0 \(2\)",
        ),
        (
            (4, 2),
            MRC,
            r"a1/p0 has 2 planes, but the cards are a0/c0 \(4\), a1/c0 \(2\); give every card the same number of ports",
        ),
        (
            (3, 3),
            MRC,
            r"card a0/c0: it has 3 ports; the lowest bits of an entropy value .*; use 2, 4 or 8 ports",
        ),
        (
            (4, 4),
            "transport: {kind: mrc, mrc: {entropy_values: 30}}",
            r"transport\.mrc\.entropy_values: 30 values cannot be divided evenly among 4 planes; write a multiple of 4",
        ),
        (
            (8, 8),
            "transport: {kind: uet, uet: {entropy_values: 12}}",
            r"transport\.uet\.entropy_values: 12 values cannot be divided evenly among 8 planes; write a multiple of 8",
        ),
        (
            (2, 2),
            "transport: {kind: uet, uet: {srv6: adjacency}}",
            r"transport\.uet\.srv6: segments route to one port of a host, but these cards have several: a0/c0",
        ),
        (
            (2, 2),
            f"{MRC}\nmapping: {{placement: explicit, explicit: {{0: a0/p0, 1: a1/p1}}}}",
            r"mapping: a1/p1 is a plane of the card whose first port is a1/p0; write a1/p0",
        ),
        (
            (2, 2),
            "transport: {kind: mrc, faults: [{do: pause, priority: 3, every: 10ms}]}",
            r"pause frames are not sent by ports that are planes of a card: a0/p0, a0/p1",
        ),
    ],
    ids=[
        "rocev2",
        "one of them is a port",
        "unlike",
        "three",
        "values",
        "values of uet",
        "segments",
        "mapping",
        "pauses",
    ],
)
def test_what_is_not_there_is_refused_by_name(planes: tuple[int, ...], scenario: str, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        plan(rig(*planes), scenario)


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ("link: 200Gbps, addresses: 10.1.0.1, backend: packet", "has link 200Gbps, its plane p0 has 100Gbps"),
        ("link: 100Gbps, addresses: 10.1.0.1, backend: xdp", "has backend xdp, its plane p0 has packet"),
        (
            "link: 100Gbps, addresses: 10.1.0.1-10.1.0.2, backend: packet",
            "has number of addresses 2, its plane p0 has 1",
        ),
        (
            "link: 100Gbps, addresses: 'fd00::1', backend: packet",
            "has family of addresses IPv6, its plane p0 has IPv4",
        ),
        (
            "link: 100Gbps, addresses: 10.1.0.1, backend: packet, udp_port: 4792",
            "has udp_port 4792, its plane p0 has 4791",
        ),
        (
            "link: 100Gbps, addresses: 10.1.0.1",
            "is a udp port, whose packets have one source port a queue pair",
        ),
        (
            "link: 100Gbps, addresses: 10.1.0.1, backend: packet, queues: 2",
            "has queues; planes of a card have none",
        ),
    ],
)
def test_planes_of_a_card_are_alike(second: str, message: str) -> None:
    text = (
        "agents: [{name: a, ports: [{name: p0, addresses: 10.0.0.1, link: 100Gbps, backend: packet, card: c0}, "
        f"{{name: p1, card: c0, {second}}}]}}]"
    )
    with pytest.raises(ConfigError) as refused:
        parse_rig(text.encode(), "rig.yaml", Path())
    assert f"port p1 of card c0 {message}" in str(refused.value)
