"""What the flow level models and what it refuses: every value of every setting that decides where packets go, and when."""

from __future__ import annotations

from dataclasses import fields, replace
from enum import Enum

import pytest

from etloop.contract.base.errors import PlanError
from etloop.contract.model.assignment import Assignment, SegmentSettings
from etloop.contract.model.fault_rules import FaultAction, FaultDirection, FaultPackets, FaultRule
from etloop.contract.model.topology import (
    FIVE_TUPLE,
    HashField,
    LoadBalancing,
    SwitchFault,
    SwitchSettings,
    Topology,
)
from etloop.contract.model.transport import (
    CreditSettings,
    DeliveryOrder,
    EntropyChoice,
    MultipathSettings,
    RecoverySettings,
    TransportSettings,
)
from etloop.contract.model.transport_kinds import TransportKind
from etloop.traffic.congestion import built_in
from etloop.traffic.flow_level import FlowNetwork, flow_level
from etloop.traffic.flow_limits import BALANCING, CONTROL, DELIVERY, ENTROPY, KINDS, MODELLED
from etloop.traffic.flow_network import network_of
from tests.support.traffic.planes_by_hand import on_cards, plane_stars
from tests.support.traffic.sprayed_by_hand import STAYS_OPEN, sprayed
from tests.support.traffic.twin_by_hand import GBPS, UNCONTROLLED, changed, pairs, star, through, two_tiers

SIZE = 1 << 20
CROSSING = tuple((host, 4 + host) for host in range(4))
ANY_ORDER = replace(UNCONTROLLED, recovery=replace(UNCONTROLLED.recovery, accept_out_of_order=True))


def network(job: Assignment, topology: Topology) -> FlowNetwork:
    return network_of(job, tuple(f"r/p{index}" for index in range(len(job.ports))), topology)


def crossing(
    transport: TransportSettings = ANY_ORDER, qps_each: int = 1, each_bytes: int = SIZE
) -> Assignment:
    return pairs(CROSSING, each_bytes, transport, qps_each)


def refusal(job: Assignment, topology: Topology) -> str:
    with pytest.raises(PlanError) as caught:
        network(job, topology)
    assert all("use --level packet" in str(problem) for problem in caught.value.problems)
    return str(caught.value)


def agrees(job: Assignment, topology: Topology, bound: float = 0.05) -> None:
    """Flows take as long as packets."""
    packets = through(job, topology)
    flows = flow_level(job, network(job, topology))
    assert packets.failure == flows.failure == ""
    assert flows.end_ns == pytest.approx(packets.end_ns - packets.start_ns, rel=bound)


def unlike_spines(topology: Topology) -> Topology:
    """Links to the first spine at 400 Gb/s, to others at 100."""

    def one(switch: SwitchSettings) -> SwitchSettings:
        fast = [port.name == "up0" or switch.name == "spine0" for port in switch.ports]
        ports = (
            replace(port, rate_bps=400 * GBPS) if is_fast else port
            for port, is_fast in zip(switch.ports, fast, strict=True)
        )
        return replace(switch, ports=tuple(ports))

    return replace(topology, switches=tuple(one(switch) for switch in topology.switches))


@pytest.mark.parametrize(
    ("enumeration", "table"),
    [
        (LoadBalancing, BALANCING),
        (TransportKind, KINDS),
        (EntropyChoice, ENTROPY),
        (DeliveryOrder, DELIVERY),
    ],
)
def test_every_value_is_classified(enumeration: type[Enum], table: dict[Enum, str]) -> None:
    assert set(table) == set(enumeration)


def test_every_congestion_control_is_classified() -> None:
    assert set(CONTROL) == {one.name for one in built_in()}


@pytest.mark.parametrize("balancing", LoadBalancing, ids=lambda one: one.name.lower())
def test_each_balancing_agrees_with_packets_or_is_refused(balancing: LoadBalancing) -> None:
    topology = changed(two_tiers(2, 4, 4), balancing=balancing, flowlet_gap_ns=20_000)
    if BALANCING[balancing] == MODELLED:
        agrees(crossing(), topology, 0.1 if balancing is LoadBalancing.SPRAY else 0.05)
    else:
        assert BALANCING[balancing] in refusal(crossing(), topology)


@pytest.mark.parametrize("balancing", LoadBalancing, ids=lambda one: one.name.lower())
def test_without_a_choice_any_balancing_is_the_same(balancing: LoadBalancing) -> None:
    topology = changed(two_tiers(2, 4, 1), balancing=balancing, flowlet_gap_ns=20_000)
    agrees(crossing(UNCONTROLLED), topology)


@pytest.mark.parametrize("kind", TransportKind, ids=lambda one: one.name.lower())
@pytest.mark.parametrize("order", DeliveryOrder, ids=lambda one: one.name.lower())
def test_each_transport_agrees_with_packets(kind: TransportKind, order: DeliveryOrder) -> None:
    assert KINDS[kind] == DELIVERY[order] == MODELLED
    if kind is TransportKind.ROCE:
        agrees(crossing(), two_tiers(2, 4, 4))
        return
    if kind is TransportKind.MRC and order is DeliveryOrder.SENT:
        return  # of UET alone
    values = 1 if order is DeliveryOrder.SENT else 128
    paths = MultipathSettings(entropy_values=values, least_active=1, uet=replace(STAYS_OPEN, order=order))
    agrees(crossing(sprayed(kind, "none", multipath=paths), each_bytes=4 * SIZE), two_tiers(2, 4, 4))


@pytest.mark.parametrize("kind", [TransportKind.MRC, TransportKind.UET], ids=lambda one: one.name.lower())
@pytest.mark.parametrize("choice", EntropyChoice, ids=lambda one: one.name.lower())
def test_each_choice_of_entropy_agrees_or_is_refused_where_ways_are_unlike(
    kind: TransportKind, choice: EntropyChoice
) -> None:
    job = crossing(sprayed(kind, multipath=MultipathSettings(choice=choice)), each_bytes=4 * SIZE)
    # A recycled value is used for all packets of an answer: with UET few values share equal paths less evenly.
    few_values = choice is EntropyChoice.RECYCLED and kind is TransportKind.UET
    agrees(job, two_tiers(2, 4, 4), 0.1 if few_values else 0.05)
    unlike = unlike_spines(two_tiers(2, 4, 2))
    if ENTROPY[choice] == MODELLED:
        agrees(job, unlike)
    else:
        assert ENTROPY[choice] in refusal(job, unlike)


@pytest.mark.parametrize("field", HashField)
def test_hashes_of_other_fields_are_refused_where_there_is_a_choice(field: HashField) -> None:
    fields_of_hash = tuple(one for one in FIVE_TUPLE if one != field)
    if field not in FIVE_TUPLE:
        fields_of_hash = (*FIVE_TUPLE, field)
    assert "hash: does not use the five-tuple" in refusal(
        crossing(), changed(two_tiers(2, 4, 2), hash_fields=fields_of_hash)
    )
    network(crossing(), changed(two_tiers(2, 4, 1), hash_fields=fields_of_hash))


@pytest.mark.parametrize("action", FaultAction, ids=lambda one: one.name.lower())
def test_faults_of_endpoints_are_refused(action: FaultAction) -> None:
    rule = FaultRule(action, FaultDirection.SENT, FaultPackets.DATA)
    assert "transport.faults change packets" in refusal(
        crossing(replace(UNCONTROLLED, faults=(rule,))), star(8)
    )


def test_faults_of_switches_are_refused() -> None:
    lossy = changed(star(8), faults=(SwitchFault(per_million=10),))
    assert "switch switch: its faults drop or corrupt packets" in refusal(crossing(), lossy)


def test_planes_and_micro_segments_are_refused() -> None:
    job = crossing()
    cards, stars = on_cards(pairs(((0, 1),), SIZE, sprayed(TransportKind.MRC)), 2), plane_stars(2, 2)
    names = tuple(f"r/{port.name}" for port in cards.ports)
    with pytest.raises(PlanError, match="several planes"):
        network_of(cards, names, stars)
    led = tuple(replace(port, segments=SegmentSettings(0, 1, ())) for port in job.ports)
    assert "srv6: micro segments route packets" in refusal(replace(job, ports=led), star(8))


def test_packets_that_are_taken_in_order_alone_are_refused_where_switches_reorder() -> None:
    for balancing in (LoadBalancing.SPRAY, LoadBalancing.ADAPTIVE):
        topology = changed(two_tiers(2, 4, 4), balancing=balancing)
        assert "reorders packets, but the transport accepts them in order only" in refusal(
            crossing(UNCONTROLLED), topology
        )
        rod = MultipathSettings(
            entropy_values=1, least_active=1, uet=replace(STAYS_OPEN, order=DeliveryOrder.SENT)
        )
        assert "accepts them in order only" in refusal(
            crossing(sprayed(TransportKind.UET, multipath=rod)), topology
        )


def test_spraying_over_unlike_ways_is_refused_for_rocev2_and_modelled_for_others() -> None:
    topology = changed(unlike_spines(two_tiers(2, 4, 2)), balancing=LoadBalancing.SPRAY)
    assert "fall far behind each other" in refusal(crossing(), topology)
    agrees(crossing(sprayed(TransportKind.UET), each_bytes=4 * SIZE), topology)


@pytest.mark.parametrize("kind", [TransportKind.MRC, TransportKind.UET], ids=lambda one: one.name.lower())
@pytest.mark.parametrize("algorithm", [one.name for one in built_in()])
def test_each_congestion_control_agrees_or_is_refused_where_ways_are_unlike(
    kind: TransportKind, algorithm: str
) -> None:
    job, unlike = crossing(sprayed(kind, algorithm), each_bytes=4 * SIZE), unlike_spines(two_tiers(2, 4, 2))
    if CONTROL[algorithm] == MODELLED:
        agrees(job, unlike, 0.06)
    else:
        assert CONTROL[algorithm] in refusal(job, unlike)


def test_what_is_slower_behind_the_next_switch_counts_too() -> None:
    topology = two_tiers(2, 4, 2)
    spine = topology.switches[2]
    slow = replace(spine, ports=tuple(replace(port, rate_bps=25 * GBPS) for port in spine.ports))
    topology = replace(topology, switches=(*topology.switches[:2], slow, topology.switches[3]))
    assert "link spine0/1: it is slower than others, and without congestion control" in refusal(
        crossing(sprayed(TransportKind.MRC, "none")), topology
    )


@pytest.mark.parametrize("transport", [ANY_ORDER, sprayed(TransportKind.MRC)], ids=["roce", "mrc"])
def test_adaptive_balancing_fills_unlike_ways_as_they_can_carry(transport: TransportSettings) -> None:
    topology = changed(unlike_spines(two_tiers(2, 5, 2)), balancing=LoadBalancing.ADAPTIVE)
    job = pairs(tuple((host, 5 + host) for host in range(5)), 4 * SIZE, transport)
    agrees(job, topology)


def test_adaptive_balancing_that_packets_alone_show_is_refused() -> None:
    """A slower link behind one of two alike, and a port that is in two sets of ways."""
    topology = changed(two_tiers(2, 4, 2), balancing=LoadBalancing.ADAPTIVE)
    spine = topology.switches[2]
    slow = replace(spine, ports=tuple(replace(port, rate_bps=10 * GBPS) for port in spine.ports))
    switches = (*topology.switches[:2], slow, topology.switches[3])
    assert "slower than others behind balancing: adaptive" in refusal(
        crossing(), replace(topology, switches=switches)
    )
    three = changed(two_tiers(3, 4, 2), balancing=LoadBalancing.ADAPTIVE)
    broken = replace(three, links=tuple(link for link in three.links if link != three.links[-1]))
    assert "sets of ports that overlap in part" in refusal(crossing(), broken)


def test_weights_are_kept_by_hashes_and_spraying() -> None:
    """Three of four to one spine: flows see it as packets do."""
    topology = two_tiers(2, 4, 2)
    weighted = replace(
        topology,
        switches=tuple(
            replace(
                switch,
                ports=tuple(replace(port, weight=3 if port.name == "up0" else 1) for port in switch.ports),
            )
            for switch in topology.switches
        ),
    )
    agrees(crossing(qps_each=4), weighted)
    agrees(crossing(sprayed(TransportKind.MRC), each_bytes=4 * SIZE), weighted)
    sprayed_by_switches = changed(weighted, balancing=LoadBalancing.SPRAY)
    agrees(crossing(sprayed(TransportKind.UET), each_bytes=4 * SIZE), sprayed_by_switches)


@pytest.mark.parametrize("packets", [2, 8, 32, 256])
def test_windows_hold_queue_pairs_as_packets_have_it(packets: int) -> None:
    held = replace(ANY_ORDER, window_packets=packets, ack_every_packets=1)
    agrees(pairs(((0, 4),), 4 * SIZE, held), two_tiers(2, 4, 1))
    paths = MultipathSettings(sack_bytes=4096)
    agrees(
        pairs(
            ((0, 4),), 4 * SIZE, replace(sprayed(TransportKind.UET, "none", paths), window_packets=packets)
        ),
        two_tiers(2, 4, 1),
    )


def test_credits_of_a_part_of_the_link_are_refused_and_others_modelled() -> None:
    whole = MultipathSettings(uet=replace(STAYS_OPEN, credit=CreditSettings(granted=True, alone=True)))
    half = MultipathSettings(
        uet=replace(STAYS_OPEN, credit=CreditSettings(granted=True, alone=True, share_per_million=500_000))
    )
    agrees(crossing(sprayed(TransportKind.UET, "none", whole)), star(8))
    assert "grant less or more than their link rate" in refusal(
        crossing(sprayed(TransportKind.UET, "none", half)), star(8)
    )


def test_data_in_several_queues_is_refused() -> None:
    """A scheduler shares a link among queues, fair shares among flows."""
    job = crossing()
    ranks = (replace(job.ranks[0], traffic_class=48 << 2), *job.ranks[1:])
    assert "are in queues" in refusal(replace(job, ranks=ranks), star(8))


@pytest.mark.parametrize("split", [False, True])
def test_queue_pairs_that_share_messages_take_ways_of_their_own(split: bool) -> None:
    agrees(crossing(replace(UNCONTROLLED, split_data_on_qps=split), qps_each=4), two_tiers(2, 4, 4))


NOT_OF_WAYS = {
    "adaptive_timeout", "timeout_floor_ns", "selective_repeat", "reorder_packets", "rnr_retry_limit",
    "min_rnr_timer_code", "outstanding_reads", "initial_psn", "tail_probe_ns", "trimming",
}  # fmt: skip
"""Of recovery: without effect where nothing is lost."""


def test_settings_of_recovery_are_classified() -> None:
    names = {field.name for field in fields(RecoverySettings)}
    assert names - NOT_OF_WAYS == {"accept_out_of_order"}, "classify a new one"
