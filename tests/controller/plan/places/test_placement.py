"""Placement: hosts stay whole, ports are filled by the stated rules, and refusals say what is offered."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etloop.contract.base.errors import PlanError
from etloop.controller.inputs.scenario.mapping import Mapping, PlacementRule
from etloop.controller.plan.places.placement import place
from tests.support.runs.plan_by_hand import rig_of

ROUND_ROBIN = PlacementRule.ROUND_ROBIN
BLOCKED = PlacementRule.BLOCKED
BY_TRAFFIC = PlacementRule.BY_TRAFFIC
EXPLICIT = PlacementRule.EXPLICIT


@pytest.mark.parametrize(
    ("rule", "ranks", "per_host", "ports", "expected", "sentence"),
    [
        (BLOCKED, 8, 1, 2, (0, 0, 0, 0, 1, 1, 1, 1), "equal hosts make equal blocks"),
        (BLOCKED, 8, 2, 4, (0, 0, 1, 1, 2, 2, 3, 3), "the ranks of a host stay together"),
        (BLOCKED, 5, 1, 2, (0, 0, 0, 1, 1), "an odd host out goes to the first"),
        (BY_TRAFFIC, 8, 2, 4, (0, 0, 1, 1, 2, 2, 3, 3), "equal traffic makes equal blocks too"),
        (BY_TRAFFIC, 5, 1, 2, (0, 0, 1, 1, 1), "its middle is in the second half"),
        (BLOCKED, 2, 1, 4, (0, 1), "more ports than hosts leave ports unused"),
        (BLOCKED, 8, 8, 4, (0,) * 8, "one host is on the first"),
        (ROUND_ROBIN, 6, 1, 4, (0, 1, 2, 3, 0, 1), "hosts in turn"),
        (ROUND_ROBIN, 6, 2, 2, (0, 0, 1, 1, 0, 0), "whole hosts in turn"),
    ],
)
def test_rules(
    rule: PlacementRule, ranks: int, per_host: int, ports: int, expected: tuple[int, ...], sentence: str
) -> None:
    hosts = -(-ranks // per_host)
    placement = place(ranks, [1000] * hosts, Mapping(per_host, rule, ()), rig_of({"a": ports}))
    assert placement.port == expected, sentence


@pytest.mark.parametrize("rule", [BLOCKED, BY_TRAFFIC, ROUND_ROBIN])
def test_ports_of_a_mapping_are_filled_in_the_order_in_which_they_stand(rule: PlacementRule) -> None:
    wanted = ("b/p1", "a/p0", "b/p0")
    placement = place(3, [1000] * 3, Mapping(1, rule, (), ports=wanted), rig_of({"a": 2, "b": 2}))
    assert tuple(placement.ports[port].label for port in placement.port) == wanted
    assert [place.label for place in placement.ports] == ["a/p0", "b/p0", "b/p1"], "ports stay in the rig's"


@pytest.mark.parametrize(
    ("host_bytes", "ports", "expected"),
    [
        ([0], 4, ["a/p0"]),
        ([1000], 5, ["a/p0"]),
        ([5, 5], 4, ["a/p0", "a/p2"]),
        ([1, 10**9], 3, ["a/p0", "a/p1"]),
        ([10**9, 1, 1], 4, ["a/p0", "a/p1", "a/p2"]),
    ],
)
def test_fewer_hosts_than_ports_begin_at_the_first(
    host_bytes: list[int], ports: int, expected: list[str]
) -> None:
    placement = place(len(host_bytes), host_bytes, Mapping(1, BLOCKED, ()), rig_of({"a": ports}))
    assert [port.label for port in placement.ports] == expected


@pytest.mark.parametrize("rule", [BLOCKED, BY_TRAFFIC])
def test_a_faster_link_gets_more(rule: PlacementRule) -> None:
    text = rig_of({"a": 1, "b": 1}, link="100Gbps", addresses=8)
    fast = rig_of({"b": 1}, link="300Gbps", addresses=8).agents[0]
    rig = replace(text, agents=(text.agents[0], fast))
    placement = place(8, [500] * 8, Mapping(1, rule, ()), rig)
    assert placement.port == (0, 0, 1, 1, 1, 1, 1, 1)


@given(
    st.lists(st.integers(0, 10**12), min_size=1, max_size=40),
    st.integers(1, 8),
)
def test_by_traffic_no_port_exceeds_its_share_by_more_than_a_host(host_bytes: list[int], ports: int) -> None:
    hosts = len(host_bytes)
    placement = place(hosts, host_bytes, Mapping(1, BY_TRAFFIC, ()), rig_of({"a": ports}, addresses=64))
    assert list(placement.port) == sorted(placement.port), "blocks are consecutive"
    assert sorted(set(placement.port)) == list(range(len(placement.ports))), (
        "only ports with ranks are listed"
    )
    weights = [one + 1 for one in host_bytes]
    for port in range(len(placement.ports)):
        carried = sum(weight for host, weight in enumerate(weights) if placement.port[host] == port)
        assert carried * ports <= sum(weights) + max(weights) * ports


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=40), st.integers(1, 12), st.integers(1, 4))
def test_by_default_every_port_has_a_host_before_any_has_two(
    host_bytes: list[int], ports: int, per_host: int
) -> None:
    hosts = len(host_bytes)
    mapping = Mapping(per_host, BLOCKED, ())
    placement = place(hosts * per_host, host_bytes, mapping, rig_of({"a": ports}))
    on_port = Counter(placement.port[::per_host])
    assert len(placement.ports) == min(hosts, ports)
    assert max(on_port.values()) - min(on_port.values()) <= 1, "whatever their traffic"
    assert list(placement.port) == sorted(placement.port), "blocks are consecutive"
    of_host = [set(placement.port[at : at + per_host]) for at in range(0, hosts * per_host, per_host)]
    assert all(len(one) == 1 for one in of_host), "hosts stay whole"


@pytest.mark.parametrize(
    ("addresses", "ranks", "per_host", "expected", "sentence"),
    [
        ((6, 6), 12, 1, (6, 6), "two ports of six addresses take six ranks each"),
        ((4, 8), 12, 1, (4, 8), "no address is shared while another is free"),
        ((1, 8), 12, 1, (4, 8), "what is left over goes where there are fewest hosts"),
        ((8, 16, 8), 32, 8, (8, 16, 8), "a host needs an address for each of its ranks"),
        ((1, 1, 1), 7, 1, (3, 2, 2), "where all have to share, hosts are spread evenly"),
        ((7, 16), 24, 8, (8, 16), "every port has a host, even if its addresses are too few"),
    ],
)
def test_addresses_of_the_rig_are_kept_to(
    addresses: tuple[int, ...], ranks: int, per_host: int, expected: tuple[int, ...], sentence: str
) -> None:
    agents = [rig_of({f"a{at}": 1}, addresses=count).agents[0] for at, count in enumerate(addresses)]
    whole = rig_of({"a0": 1})
    rig = replace(whole, agents=tuple(agents))
    uneven = [1000] + [1] * (ranks // per_host - 1)
    placement = place(ranks, uneven, Mapping(per_host, BLOCKED, ()), rig)
    assert tuple(len(port.ranks) for port in placement.ports) == expected, sentence


def test_ranks_have_their_own_addresses_while_there_are_enough() -> None:
    placement = place(4, [1] * 4, Mapping(1, BLOCKED, ()), rig_of({"a": 2}, addresses=2))
    assert [placement.address_of(rank) for rank in range(4)] == [
        "10.0.0.1",
        "10.0.0.2",
        "10.0.1.1",
        "10.0.1.2",
    ]
    assert placement.notes == ()


def test_shared_addresses_are_noted() -> None:
    placement = place(3, [1] * 3, Mapping(1, BLOCKED, ()), rig_of({"a": 1}, addresses=2))
    assert [placement.address_of(rank) for rank in range(3)] == ["10.0.0.1", "10.0.0.2", "10.0.0.1"]
    assert placement.notes == (
        "a/p0: 3 ranks share 2 addresses, so the device sees fewer addresses than the job has ranks",
    )


def test_unused_ports_are_noted() -> None:
    placement = place(1, [1], Mapping(1, ROUND_ROBIN, ()), rig_of({"a": 1, "b": 2}))
    assert placement.notes == ("ports without ranks, left unused: b/p0, b/p1",)


def test_explicit_places_are_kept() -> None:
    mapping = Mapping(1, EXPLICIT, ((0, "b/p0"), (1, "a/p0"), (2, "b/p0")))
    placement = place(3, [1] * 3, mapping, rig_of({"a": 1, "b": 1}))
    assert [placement.ports[port].label for port in placement.port] == ["b/p0", "a/p0", "b/p0"]


@pytest.mark.parametrize(
    ("explicit", "per_host", "message"),
    [
        (
            ((0, "b/p2"), (1, "a/p0")),
            1,
            'mapping.explicit: rank 0: the rig has no port "b/p2"; agent b offers 2 ports: b/p0, b/p1',
        ),
        (
            ((0, "c/p0"), (1, "a/p0")),
            1,
            'mapping.explicit: rank 0: the rig has no port "c/p0"; the agents are a, b',
        ),
        (((0, "a/p0"),), 1, "mapping.explicit: no port for rank 1; place every rank of the job"),
        (
            ((0, "a/p0"), (1, "a/p0"), (2, "a/p0")),
            1,
            "mapping.explicit: rank 2: the job has ranks 0 to 1; remove it",
        ),
        (
            ((0, "a/p0"), (1, "b/p0")),
            2,
            (
                "mapping.explicit: ranks 0-1: they share a host (ranks_per_host 2) but are on several agents: a/p0, b/p0; "
                "place them on ports of one agent, or write ranks_per_host: 1"
            ),
        ),
    ],
)
def test_a_placement_that_does_not_fit_is_refused(
    explicit: tuple[tuple[int, str], ...], per_host: int, message: str
) -> None:
    with pytest.raises(PlanError) as caught:
        place(2, [1] * 2, Mapping(per_host, EXPLICIT, explicit), rig_of({"a": 1, "b": 2}))
    assert str(caught.value) == message
