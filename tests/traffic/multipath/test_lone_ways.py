"""What the ways of a lone transfer are, by topologies and jobs written by hand."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest

from etloop.contract.model.assignment import Assignment, SegmentSettings
from etloop.contract.model.capabilities import OUTER_HEADER_BYTES
from etloop.contract.model.empty_network import LatencySource, LoneWay
from etloop.contract.model.topology import LoadBalancing, Topology
from etloop.traffic.lone_ways import framing_of, lone_network, maximum_flow
from tests.support.traffic.planes_by_hand import in_planes, on_cards, plane_stars
from tests.support.traffic.twin_by_hand import (
    DELAY_NS,
    GBPS,
    RATE_BPS,
    UNCONTROLLED,
    changed,
    pairs,
    star,
    two_tiers,
)


def ways_of_first_pair(network: Topology, **job: int) -> tuple[LoneWay, ...]:
    """Return the ways of the only pair of a job of one message from rank 0 to the last."""
    planes, qps = job.get("planes", 1), job.get("qps", 1)
    made = pairs(((0, job.get("to", 1)),), 1 << 20, qps_each=qps)
    made = attached(on_cards(made, planes) if planes > 1 else made)
    found = lone_network(made, network, "t.yaml", cuts=qps > 1)
    assert (found.latency, found.src_rank[0], found.dst_rank[0]) == (
        LatencySource.TOPOLOGY,
        0,
        job.get("to", 1),
    )
    return found.way_sets[found.way_set[0]]


def attached(job: Assignment) -> Assignment:
    """Return a job by hand whose ports are called as the topologies by hand call them."""
    return replace(job, ports=tuple(replace(port, name=f"r/{port.name}") for port in job.ports))


def test_one_switch_has_two_links_and_its_own_latency() -> None:
    (way,) = ways_of_first_pair(star(2))
    assert way.link_bps == way.shared_bps == (RATE_BPS, RATE_BPS)
    assert way.latency_ns == 2 * DELAY_NS + star(2).switches[0].latency_ns


def test_a_flow_that_is_hashed_has_one_of_several_links_and_spread_packets_have_all() -> None:
    fabric = two_tiers(2, 1, 4, uplink_bps=25 * GBPS)
    (hashed,) = ways_of_first_pair(fabric)
    assert hashed.link_bps == hashed.shared_bps == (RATE_BPS, 25 * GBPS, 25 * GBPS, RATE_BPS)
    for spread in (
        ways_of_first_pair(changed(fabric, balancing=LoadBalancing.SPRAY)),
        ways_of_first_pair(fabric, qps=4),
    ):
        (way,) = spread
        assert way.link_bps == hashed.link_bps
        assert way.shared_bps == (RATE_BPS, RATE_BPS, RATE_BPS, RATE_BPS)


def test_ways_of_unlike_rates_stay_apart_where_neither_is_better() -> None:
    """One spine has a slow link and the other a slow latency; a third is worse than the first in both."""
    fabric = two_tiers(2, 1, 3)
    kinds = ((25 * GBPS, 500), (100 * GBPS, 90_000), (10 * GBPS, 600))
    spines = []
    for one, (rate_bps, latency_ns) in zip(fabric.switches[2:], kinds, strict=True):
        ports = tuple(replace(port, rate_bps=rate_bps) for port in one.ports)
        spines.append(replace(one, ports=ports, latency_ns=latency_ns))
    ways = ways_of_first_pair(replace(fabric, switches=(*fabric.switches[:2], *spines)))
    assert sorted(way.link_bps[2] for way in ways) == [25 * GBPS, 100 * GBPS]


def test_planes_of_a_card_are_used_together() -> None:
    (way,) = ways_of_first_pair(plane_stars(2, 4), planes=4)
    assert way.link_bps == (RATE_BPS // 4, RATE_BPS // 4)
    assert way.shared_bps == (RATE_BPS, RATE_BPS)
    (way,) = ways_of_first_pair(in_planes(two_tiers(2, 1, 2, uplink_bps=25 * GBPS), 2), planes=2)
    assert way.shared_bps == (2 * RATE_BPS, 100 * GBPS, 100 * GBPS, 2 * RATE_BPS), (
        "2 planes x 2 spines x 25 Gbit/s"
    )


def test_without_a_topology_the_ports_links_are_the_way_and_the_latency_is_not_known() -> None:
    job = on_cards(pairs(((0, 1),), 1 << 20), 2)
    found = lone_network(job, None, "", cuts=False)
    assert found.latency is LatencySource.UNKNOWN
    assert found.way_sets == ((LoneWay((RATE_BPS // 2,) * 2, (RATE_BPS,) * 2, 0),),)


def test_segments_lead_every_packet_by_an_outer_header() -> None:
    job = attached(pairs(((0, 1),), 1 << 20))
    plain = lone_network(job, star(2), "", cuts=False).framings
    led = replace(job, ports=tuple(replace(port, segments=SegmentSettings(48, 16, ())) for port in job.ports))
    (framing,) = lone_network(led, star(2), "", cuts=False).framings
    assert framing.around_bytes - plain[0].around_bytes == OUTER_HEADER_BYTES


def test_ipv6_and_a_tag_are_longer() -> None:
    plain = framing_of(UNCONTROLLED, ipv6=False, encapsulated=False)
    assert plain.around_bytes == 82
    assert framing_of(UNCONTROLLED, ipv6=True, encapsulated=False).around_bytes == 102
    assert framing_of(replace(UNCONTROLLED, vlan_id=5), ipv6=False, encapsulated=False).around_bytes == 86


@pytest.mark.parametrize("seed", range(20))
def test_the_maximum_flow_is_the_least_cut(seed: int) -> None:
    """Over all divisions of six nodes that separate source and target (Ford and Fulkerson 1956)."""
    drawn = random.Random(seed)
    links = {
        pair: drawn.randint(1, 9) for pair in itertools.permutations(range(6), 2) if drawn.random() < 0.4
    }
    cuts = []
    for size in range(5):
        for others in itertools.combinations(range(1, 5), size):
            inside = {0, *others}
            cuts.append(sum(bps for (a, b), bps in links.items() if a in inside and b not in inside))
    assert maximum_flow(links, 0, 5) == min(cuts), f"seed {seed}: {links}"


def test_the_flow_to_itself_is_none() -> None:
    assert maximum_flow({(0, 1): 5}, 0, 0) == 0
