"""Flows that take many paths at once, held against packets: permutations, fat trees, incasts, unlike links, big fabrics."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from etloop.contract.model.assignment import Assignment
from etloop.contract.model.topology import LoadBalancing, Topology
from etloop.contract.model.transport import (
    EntropyChoice,
    MultipathSettings,
    TransportSettings,
    TrimAnswer,
    TrimSettings,
)
from etloop.contract.model.transport_kinds import TransportKind
from etloop.traffic import flow_network
from etloop.traffic.flow_level import FlowNetwork, flow_level
from etloop.traffic.flow_network import network_of
from etloop.traffic.flow_values import port_values
from tests.support.traffic.fat_tree import TRIMMED_DSCP, fat_tree
from tests.support.traffic.sprayed_by_hand import of_each_kind, sprayed
from tests.support.traffic.twin_by_hand import (
    UNCONTROLLED,
    changed,
    incast,
    pairs,
    star,
    through,
    two_tiers,
)

TRIMMING = TrimSettings((TRIMMED_DSCP,), TrimAnswer.NAK)
ANY_ORDER = replace(UNCONTROLLED, recovery=replace(UNCONTROLLED.recovery, accept_out_of_order=True))


def network(job: Assignment, topology: Topology) -> FlowNetwork:
    return network_of(job, tuple(f"r/p{index}" for index in range(len(job.ports))), topology)


def times(job: Assignment, topology: Topology) -> tuple[int, int]:
    """By flows and by packets."""
    packets, flows = through(job, topology), flow_level(job, network(job, topology))
    assert packets.failure == flows.failure == ""
    return flows.end_ns, packets.end_ns - packets.start_ns


def permutation(hosts: int, by: int) -> tuple[tuple[int, int], ...]:
    return tuple((host, (host + by) % hosts) for host in range(hosts))


@of_each_kind
def test_a_permutation_over_spines(kind: TransportKind) -> None:
    """On one path of eight each it would take 2.5 times as long."""
    job = pairs(permutation(16, 8), 2_000_000, sprayed(kind))
    flows, packets = times(job, two_tiers(2, 8, 8))
    assert flows == pytest.approx(packets, rel=0.05)


@of_each_kind
@pytest.mark.parametrize(("k", "hosts"), [(4, 16), (8, 128)])
def test_a_permutation_over_a_fat_tree(kind: TransportKind, k: int, hosts: int) -> None:
    job = pairs(permutation(hosts, hosts // 2), 2_000_000, sprayed(kind, trimming=TRIMMING))
    flows, packets = times(job, fat_tree(k))
    assert flows == pytest.approx(packets, rel=0.05)


@pytest.mark.parametrize("senders", [2, 7])
def test_an_incast_over_spines(senders: int) -> None:
    job = incast(senders, 4_000_000, ANY_ORDER)
    flows, packets = times(job, changed(two_tiers(2, 4, 4), balancing=LoadBalancing.ADAPTIVE))
    assert flows == pytest.approx(packets, rel=0.05)


PATHS = (LoadBalancing.ECMP, LoadBalancing.STRUCTURED, LoadBalancing.ADAPTIVE)


def random_permutation(seed: int, transport: TransportSettings | None = None) -> tuple[int, int]:
    """Through a network without oversubscription, by flows and by packets; None: a transport that sprays."""
    draw = random.Random(seed)
    leaves, hosts = draw.choice((2, 3, 4)), draw.choice((2, 4))
    balancing = draw.choice(PATHS)
    topology = changed(two_tiers(leaves, hosts, hosts * draw.choice((1, 2, 3))), balancing=balancing)
    if transport is None:
        paths = MultipathSettings(EntropyChoice(seed % len(EntropyChoice)))
        transport = sprayed(draw.choice((TransportKind.MRC, TransportKind.UET)), multipath=paths)
    size = leaves * hosts
    start = draw.randrange(1, size)
    to = draw.sample(range(size), size)
    flows = tuple((to[place], to[(place + start) % size]) for place in range(size))
    return times(pairs(flows, draw.choice((1, 4)) << 20, transport), topology)


@pytest.mark.parametrize("seed", range(16))
def test_random_permutations_without_congestion_control(seed: int) -> None:
    flows, packets = random_permutation(seed, ANY_ORDER)
    assert flows == pytest.approx(packets, rel=0.05), f"{seed=}"


def test_random_permutations_that_are_sprayed() -> None:
    """At full load congestion control leaves links unused now and then, and flows do not: one-sided, and mostly little."""
    differences = []
    for seed in range(32):
        flows, packets = random_permutation(seed)
        assert -0.15 < flows / packets - 1 < 0.01, f"{seed=}"
        differences.append(flows / packets - 1)
    assert abs(float(np.median(differences))) < 0.04


@pytest.mark.parametrize("switches", [1, 3, 5])
@pytest.mark.parametrize("size", [1_000, 100_000, 1 << 20])
def test_each_switch_stores_one_packet_of_a_message(switches: int, size: int) -> None:
    """And of a grant what that is long: with more of them flows are no further off, by nanoseconds a packet."""
    flow, topology = {1: ((0, 1), star(2)), 3: ((0, 4), two_tiers(2, 4, 1)), 5: ((0, 15), fat_tree(4))}[
        switches
    ]
    by_flows, by_packets = times(pairs((flow,), size), topology)
    assert by_flows == pytest.approx(by_packets, abs=30 + 2 * (size / 4096) + 80 * (size >= 4096) * 2)


@of_each_kind
def test_values_are_those_that_packets_leave_by(kind: TransportKind) -> None:
    """Each in its turn, as nothing is marked: every spine gets the packets of the values that the hash sends there."""
    spines, each_packets = 4, 512
    topology = two_tiers(2, 4, spines)
    unmarked = tuple(replace(queue, marking=None) for queue in topology.switches[0].queues)
    topology = changed(topology, queues=unmarked)
    paths = MultipathSettings(EntropyChoice.ROTATION, entropy_values=8, least_active=1)
    job = pairs(((0, 4),), each_packets * 4096, sprayed(kind, "none", multipath=paths))
    described = network(job, topology)
    expected = np.zeros(spines)
    for link, share in zip(described.part_link.tolist(), described.part_share.tolist(), strict=True):
        name = described.link_names[link]
        if name.startswith("leaf0/up"):
            expected[int(name.removeprefix("leaf0/up"))] += share
    sent = through(job, topology).switch_ports[0]["tx_bytes"][-spines:]
    assert sent / sent.sum() == pytest.approx(expected, abs=0.02)
    assert len(set(expected.tolist())) > 1, "so few values are not even"


def test_queue_pairs_between_two_addresses_share_their_values() -> None:
    job = pairs(((0, 1),), 1 << 20, sprayed(TransportKind.UET), qps_each=4)
    values = port_values(job)
    assert len(set(values.first.tolist())) == 1
    assert values.count.tolist() == [128] * 4
    own = port_values(pairs(((0, 1),), 1 << 20, UNCONTROLLED, qps_each=4))
    assert own.count.tolist() == [1] * 4
    assert len(set(own.first.tolist())) == 4


@pytest.mark.parametrize("balancing", [LoadBalancing.SPRAY, LoadBalancing.ADAPTIVE])
def test_links_of_a_stage_are_one_where_all_flows_take_them_alike(balancing: LoadBalancing) -> None:
    """However many spines: a flow takes its port, a stage up, a stage down and the port of its target."""
    transport: TransportSettings = sprayed(TransportKind.UET)
    job = pairs(permutation(32, 8), 1 << 20, transport)
    found = network(job, changed(two_tiers(4, 8, 16), balancing=balancing))
    assert np.diff(found.way_offsets).max() == 5
    assert sum("and 15 more" in name for name in found.link_names) == 8
    assert found.notes == ()


def test_more_values_than_are_followed_are_taken_as_even_and_it_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job, topology = pairs(permutation(16, 8), 2_000_000, sprayed(TransportKind.UET)), two_tiers(2, 8, 8)
    exact = flow_level(job, network(job, topology)).end_ns
    monkeypatch.setattr(flow_network, "MOST_VALUES", 16)
    evenly = network(job, topology)
    (note,) = evenly.notes
    assert note.startswith("entropy values of 16 queue pairs spread evenly")
    assert np.diff(evenly.way_offsets).max() == 5
    assert 0.75 * exact < flow_level(job, evenly).end_ns < exact
