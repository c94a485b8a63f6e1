"""Links of the twin that go down: against the same job on a network built without the link, the hash, and the clock."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import pytest

from etloop.contract.model.assignment import Assignment
from etloop.contract.model.switch_presets import preset
from etloop.contract.model.topology import (
    FOREVER_NS,
    Attachment,
    LoadBalancing,
    Outage,
    Routing,
    SwitchEnd,
    SwitchLink,
    SwitchPort,
    Topology,
)
from etloop.traffic import _native
from etloop.traffic.collectives.selection import CollectiveName
from etloop.traffic.twin import LinkNews, TwinOutcome, TwinSettings
from tests.support.traffic.assignments_by_hand import TRANSPORT, HandOp, assignment
from tests.support.traffic.twin_by_hand import (
    DELAY_NS,
    LINE_BYTES,
    RATE_BPS,
    ROCE,
    UNCONTROLLED,
    changed,
    pairs,
    through,
    two_tiers,
)

US: Final = 1_000
MS: Final = 1_000_000
UPLINK: Final = SwitchEnd(0, 4)
"""From leaf 0 to spine 0."""
PATIENT: Final = replace(
    TRANSPORT, timeout_ns=20 * MS, recovery=replace(TRANSPORT.recovery, timeout_floor_ns=5 * MS)
)
AT_ONCE: Final = Routing(0, 0)


def all_to_all(ranks: int) -> Assignment:
    return assignment(((HandOp(CollectiveName.ALL_TO_ALL, 4 << 20),),) * ranks, transport=PATIENT)


def without(topology: Topology, *ends: SwitchEnd) -> Topology:
    """The network built without these links; their ports stay, and lead nowhere."""
    return replace(topology, links=tuple(link for link in topology.links if link.a not in ends))


def down(topology: Topology, routing: Routing, *outages: Outage) -> Topology:
    return replace(topology, outages=outages, routing=routing)


def for_good(end: SwitchEnd, from_ns: int = 0) -> Outage:
    return Outage(end, from_ns, FOREVER_NS)


def lasted_ns(outcome: TwinOutcome) -> int:
    return outcome.end_ns - outcome.start_ns


def unrouted(outcome: TwinOutcome) -> list[int]:
    return [int(ports["no_route_packets"].sum()) for ports in outcome.switch_ports]


def fat_tree() -> Topology:
    """Two pods of two edges and two aggregations, four cores: aggregation a of every pod has the cores 2 a and 2 a + 1.

    Switches are edge 0 and 1 and aggregation 0 and 1 of the first pod, those of the second, and the cores. An edge has two
    hosts, then its aggregations; an aggregation has its edges, then its cores.
    """
    links = []
    for pod in range(2):
        for edge in range(2):
            links += [
                SwitchLink(SwitchEnd(4 * pod + edge, 2 + up), SwitchEnd(4 * pod + 2 + up, edge))
                for up in range(2)
            ]
        for up in range(2):
            links += [
                SwitchLink(SwitchEnd(4 * pod + 2 + up, 2 + core), SwitchEnd(8 + 2 * up + core, pod))
                for core in range(2)
            ]
    ports = [
        tuple(SwitchPort(str(number), RATE_BPS, DELAY_NS) for number in range(count)) for count in (4, 2)
    ]
    switches = tuple(
        replace(preset(f"s{number}", ports[number >= 8], lossless=True), seed=number + 1)
        for number in range(12)
    )
    attachments = tuple(
        Attachment(f"r/p{rank}", SwitchEnd(4 * (rank // 4) + rank // 2 % 2, rank % 2)) for rank in range(8)
    )
    return Topology(switches, tuple(links), attachments)


SHAPES = (
    ("leaf-spine: the remote leaves' groups lose the spine", two_tiers(4, 4, 2), (UPLINK,), 16),
    ("leaf-spine: several links at once", two_tiers(4, 4, 3), (UPLINK, SwitchEnd(1, 5), SwitchEnd(2, 4)), 16),
    ("three tiers: an edge and an aggregation of its pod", fat_tree(), (SwitchEnd(0, 2),), 8),
    ("three tiers: an aggregation and a core", fat_tree(), (SwitchEnd(2, 2), SwitchEnd(7, 3)), 8),
)


@pytest.mark.parametrize("balancing", list(LoadBalancing), ids=lambda one: one.name.lower())
@pytest.mark.parametrize(
    ("shape", "gone", "ranks"), [row[1:] for row in SHAPES], ids=[row[0] for row in SHAPES]
)
def test_routed_around_at_once_is_the_network_built_without_the_link(
    shape: Topology, gone: tuple[SwitchEnd, ...], ranks: int, balancing: LoadBalancing
) -> None:
    recovery = replace(PATIENT.recovery, accept_out_of_order=balancing is not LoadBalancing.ECMP)
    job = all_to_all(ranks)
    job = replace(job, transport=replace(job.transport, recovery=recovery))
    shape = changed(shape, balancing=balancing, flowlet_gap_ns=20 * US)
    settings = TwinSettings(probe_first=False)
    built = through(job, without(shape, *gone), settings)
    routed = through(job, down(shape, AT_ONCE, *map(for_good, gone)), settings)
    assert routed.failure == built.failure == ""
    assert np.array_equal(routed.ops, built.ops)
    for left, right in zip(routed.switch_ports, built.switch_ports, strict=True):
        assert np.array_equal(left, right)


@pytest.mark.parametrize("convergence_ns", [MS, 10 * MS, 50 * MS])
def test_a_job_outlives_a_link_by_the_time_of_convergence(convergence_ns: int) -> None:
    network, job, down_ns = two_tiers(4, 4, 2), all_to_all(16), 200 * US
    never = through(job, down(network, Routing(MS, FOREVER_NS), for_good(UPLINK, down_ns)))
    assert "no acknowledgement after the last retry" in never.failure
    built = through(job, without(network, UPLINK))
    routed = through(job, down(network, Routing(MS, convergence_ns), for_good(UPLINK, down_ns)))
    assert routed.failure == ""
    converged_ns = down_ns + convergence_ns
    # What was lost is sent again a timeout after the last one in vain at the latest; then there is as much to send as before.
    assert converged_ns < lasted_ns(routed) < converged_ns + PATIENT.timeout_ns + lasted_ns(built)
    assert [(step.news, step.at_ns) for step in routed.link_steps] == [
        (LinkNews.DOWN, down_ns),
        (LinkNews.NOTICED, down_ns + MS),
        (LinkNews.ROUTED_AROUND, converged_ns),
    ]
    leaf0, spine0 = routed.switch_ports[0], routed.switch_ports[4]
    assert unrouted(routed) == [0, 0, 0, 0, int(spine0["no_route_packets"].sum()), 0]
    assert leaf0["link_dropped_packets"][UPLINK.port] > 0


def test_a_link_that_is_back_carries_its_share_again() -> None:
    network, job = two_tiers(4, 4, 2), replace(all_to_all(16), iterations=20)
    healthy, built = through(job, network), through(job, without(network, UPLINK))
    outcome = through(job, down(network, Routing(100 * US, MS), Outage(UPLINK, 500 * US, 9 * MS)))
    assert outcome.failure == ""
    assert [(step.news, step.at_ns) for step in outcome.link_steps][-2:] == [
        (LinkNews.UP, 9 * MS),
        (LinkNews.USED_AGAIN, 10 * MS),
    ]

    def round_ns(one: TwinOutcome, from_ns: int, until_ns: int) -> float:
        """The mean of rounds, of all ranks, that began and ended within that time."""
        begin, end = one.ops["issued_ns"] - one.start_ns, one.ops["completed_ns"] - one.start_ns
        return float(np.mean((end - begin)[(begin >= from_ns) & (end <= until_ns)]))

    around_ns = round_ns(outcome, 6 * MS, 10 * MS)
    after_ns = round_ns(outcome, 12 * MS, lasted_ns(outcome))
    assert around_ns == pytest.approx(round_ns(built, MS, lasted_ns(built)), rel=0.02)
    assert after_ns == pytest.approx(round_ns(healthy, MS, lasted_ns(healthy)), rel=0.02)
    assert around_ns > 1.4 * after_ns


def test_flows_of_a_remote_leaf_collide_as_the_hash_of_the_smaller_group_predicts() -> None:
    spines, hosts = 4, 8
    network = two_tiers(2, hosts, spines)
    flows = tuple((host, hosts + host) for host in range(hosts))
    job = pairs(flows, 256 << 10)
    gone = SwitchEnd(1, hosts + 1)  # leaf 1 and spine 1: none of leaf 0's own
    outcome = through(job, down(network, AT_ONCE, for_good(gone)), TwinSettings(probe_first=False))
    assert outcome.failure == ""
    keys = np.frombuffer(_native.flow_keys(job), np.uint64)
    choices = np.frombuffer(_native.ecmp_choices(keys, network.switches[0].seed, spines - 1), np.int32)
    sent = outcome.flows[outcome.flows["sends_data"] == 1]
    sent = sent[np.argsort(sent["connection"])]
    expected = np.zeros(spines, np.int64)
    np.add.at(expected, np.array([0, 2, 3])[choices], sent["tx_packets"] + sent["acks_tx"])
    assert outcome.switch_ports[0]["queues"]["packets"][hosts:, ROCE].tolist() == expected.tolist()
    assert np.count_nonzero(expected) == spines - 1


def test_another_aggregation_is_taken_when_one_lost_its_edge() -> None:
    """From the other pod to edge 0: aggregation 0 of its pod leads there no more, and neither do the cores behind it."""
    job = pairs(
        ((4, 0), (5, 1), (6, 0), (7, 1)), 1 << 20, replace(PATIENT, congestion=UNCONTROLLED.congestion)
    )
    outcome = through(
        job, down(fat_tree(), AT_ONCE, for_good(SwitchEnd(0, 2))), TwinSettings(probe_first=False)
    )
    assert outcome.failure == ""
    received = [int(ports["rx_packets"].sum()) for ports in outcome.switch_ports]
    assert received[2] == received[8] == received[9] == 0
    assert received[3] > 0
    assert received[10] + received[11] > 0
    assert unrouted(outcome) == [0] * 12


def test_with_both_uplinks_down_the_job_fails_for_want_of_a_route() -> None:
    network = two_tiers(4, 4, 2)
    outages = (for_good(UPLINK, 200 * US), for_good(SwitchEnd(0, 5), 200 * US))
    outcome = through(all_to_all(16), down(network, Routing(MS, 10 * MS), *outages))
    dropped = unrouted(outcome)
    assert f"; no route: {sum(dropped)} packets were dropped by switches without a route (" in outcome.failure
    assert f"{dropped[0]} at leaf0" in outcome.failure
    assert all(dropped[:4]), "at last every leaf knows"
    assert "no acknowledgement after the last retry" in outcome.failure


def test_outages_shorter_than_convergence_are_as_without_it() -> None:
    network, job = two_tiers(4, 4, 2), all_to_all(16)
    outage = Outage(UPLINK, 200 * US, 2 * MS)
    first, second = (
        through(job, down(network, Routing(500 * US, convergence_ns), outage))
        for convergence_ns in (FOREVER_NS, 2 * MS)
    )
    assert first.failure == ""
    assert np.array_equal(first.ops, second.ops)
    assert first.link_steps == second.link_steps


@pytest.mark.parametrize("detection_ns", [0, 20 * US, 60 * US])
def test_until_its_switch_has_noticed_a_port_loses_what_it_sends(detection_ns: int) -> None:
    network = two_tiers(2, 1, 2)
    job = pairs(((0, 1),), 4 << 20)
    keys = np.frombuffer(_native.flow_keys(job), np.uint64)
    (spine,) = np.frombuffer(_native.ecmp_choices(keys, network.switches[0].seed, 2), np.int32).tolist()
    outage = for_good(SwitchEnd(0, 1 + spine), 50 * US)
    outcome = through(job, down(network, Routing(detection_ns, MS), outage), TwinSettings(probe_first=False))
    assert outcome.failure == ""
    lost = int(outcome.switch_ports[0]["link_dropped_packets"][1 + spine])
    line_ns = LINE_BYTES * 8 * 1_000_000_000 / RATE_BPS
    assert lost == pytest.approx(detection_ns / line_ns, abs=2), "the sender has more than that under way"
    lane = outcome.switch_ports[0]["queues"]["packets"]
    assert lane[1:].sum() == outcome.switch_ports[0]["tx_packets"][1:].sum(), "what is lost was not sent"


def test_the_same_links_give_the_same_bytes() -> None:
    outage = Outage(UPLINK, 200 * US, 8 * MS)
    network = down(two_tiers(4, 4, 2), Routing(100 * US, MS), outage, for_good(SwitchEnd(1, 5), 4 * MS))
    first, second = (through(replace(all_to_all(16), iterations=8), network) for _ in range(2))
    assert np.array_equal(first.ops, second.ops)
    assert first.link_steps == second.link_steps
