"""A queue pair over all ports of a card: shapes, counts and seeds in virtual time, while planes go down and come back.

ETLOOP_FULL=1 draws 10,000 networks; a failing one names its seed.
"""

from __future__ import annotations

import os
import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from etloop.contract.model.fault_rules import FaultAction, FaultDirection, FaultPackets, FaultRule
from etloop.contract.model.topology import LoadBalancing, SwitchEnd, Topology, Trimming
from etloop.contract.model.transport import (
    CreditSettings,
    DeliveryOrder,
    MultipathSettings,
    TrimAnswer,
    TrimSettings,
)
from etloop.contract.model.transport_kinds import TransportKind
from etloop.traffic.twin import LinkChange, TwinOutcome, TwinSettings
from tests.support.traffic.assignments_by_hand import HandOp, assignment
from tests.support.traffic.planes_by_hand import in_planes, on_cards, over_planes
from tests.support.traffic.sprayed_by_hand import (
    PROBED,
    SPRAYING,
    STAYS_OPEN,
    Delivery,
    lossy,
    of_each_delivery,
    of_each_kind,
    paths_of,
    sprayed,
)
from tests.support.traffic.twin_by_hand import (
    LINE_BYTES,
    RATE_BPS,
    UNCONTROLLED,
    changed,
    pairs,
    star,
    two_tiers,
)
from tests.traffic.test_simulation import CLOSED_FORMS, everywhere

if TYPE_CHECKING:
    from etloop.contract.model.assignment import Assignment

MIB = 1 << 20
PLANES = 8
RING = tuple((host, (host + 1) % 4) for host in range(4))
SEEDS = 10_000 if os.environ.get("ETLOOP_FULL") == "1" else 80
BATCHES = 10
LEAVES, HOSTS, SPINES = 2, 2, 2
RUN_NS = 400_000
TRIMMED_DSCP = 48
DOWN_NS = 100_000
WHOLE = MultipathSettings(uet=STAYS_OPEN)
IN_ORDER = MultipathSettings(
    entropy_values=1, least_active=1, uet=replace(STAYS_OPEN, order=DeliveryOrder.SENT)
)
CREDIT = CreditSettings(granted=True)
WAYS = {
    **{kind.name.lower(): (kind, WHOLE, "nscc") for kind in SPRAYING},
    "uet that sends": (TransportKind.UET, replace(WHOLE, uet=replace(STAYS_OPEN, sends=True)), "nscc"),
    "uet with credit": (TransportKind.UET, replace(WHOLE, uet=replace(STAYS_OPEN, credit=CREDIT)), "nscc"),
    "uet by credit alone": (
        TransportKind.UET,
        replace(WHOLE, uet=replace(STAYS_OPEN, credit=replace(CREDIT, alone=True))),
        "rccc",
    ),
}
IN_ORDER_WAY = (TransportKind.UET, IN_ORDER, "nscc")
"""Every way to send over all planes: the transport, how its queue pairs find their paths, and what controls them."""
of_each_way = pytest.mark.parametrize("way", WAYS.values(), ids=list(WAYS))
Way = tuple[TransportKind, MultipathSettings, str]


def took_ns(outcome: TwinOutcome) -> int:
    assert outcome.failure == ""
    return outcome.end_ns - outcome.start_ns


def ideal_ns(payload_bytes: int) -> float:
    return payload_bytes / 4096 * LINE_BYTES * 8 * 1_000_000_000 / RATE_BPS


def ring(planes: int, way: Way, qps_each: int = 1) -> Assignment:
    """Each of four hosts sends to the next, over cards of 100 Gbit/s."""
    kind, paths, algorithm = way
    return on_cards(pairs(RING, 64 * MIB, sprayed(kind, algorithm, paths), qps_each), planes)


def stars(planes: int) -> Topology:
    """A switch for each plane, which drops."""
    return in_planes(lossy(star(4, RATE_BPS // planes)), planes)


def cut(*ends: SwitchEnd, at_ns: int = DOWN_NS) -> TwinSettings:
    return replace(PROBED, link_changes=tuple(LinkChange(end, up=False, at_ns=at_ns) for end in ends))


def by_plane(outcome: TwinOutcome, planes: int) -> list[int]:
    """Packets that cards sent by each plane; attachments are plane by plane."""
    return [int(sent) for sent in outcome.cards["frames"].reshape(planes, 4).sum(axis=1)]


def resent(outcome: TwinOutcome) -> int:
    return int(outcome.flows["retransmitted_packets"].sum())


@of_each_way
@pytest.mark.parametrize("planes", [2, 4, 8])
def test_a_card_is_nearly_as_fast_as_one_port_of_all_its_rates(planes: int, way: Way) -> None:
    """Each packet takes longer on a link: by two planes 1.10 of the payload's time on the link, by eight 1.14."""
    outcome = over_planes(ring(planes, way), stars(planes))
    assert took_ns(outcome) < 1.2 * ideal_ns(64 * MIB)
    assert resent(outcome) == 0


@of_each_way
def test_every_plane_has_as_many_packets_and_counts_its_own(way: Way) -> None:
    outcome = over_planes(ring(PLANES, way), stars(PLANES))
    assert outcome.failure == ""
    sent = by_plane(outcome, PLANES)
    assert min(sent) > 0.95 * max(sent)
    assert sum(sent) == int(outcome.cards["delivered_frames"].sum())
    assert [int(ports["rx_packets"].sum()) for ports in outcome.switch_ports] == sent
    again = over_planes(ring(PLANES, way), stars(PLANES))
    assert again.ops.tobytes() == outcome.ops.tobytes()
    assert again.flows.tobytes() == outcome.flows.tobytes()


@of_each_way
@pytest.mark.parametrize(
    "ends",
    [(SwitchEnd(3, 0),), tuple(SwitchEnd(3, host) for host in range(4))],
    ids=["a port of one card", "a plane of all cards"],
)
def test_one_of_eight_planes_down_costs_an_eighth(ends: tuple[SwitchEnd, ...], way: Way) -> None:
    whole_ns = took_ns(over_planes(ring(PLANES, way), stars(PLANES)))
    outcome = over_planes(ring(PLANES, way), stars(PLANES), cut(*ends))
    assert 1.05 < took_ns(outcome) / whole_ns < 1.05 * PLANES / (PLANES - 1)
    assert resent(outcome) < 250, (
        "before 1 ms, when its host hears of the link, a plane is left by what it loses"
    )


@of_each_way
def test_one_of_two_planes_down_leaves_half(way: Way) -> None:
    whole_ns = took_ns(over_planes(ring(2, way), stars(2)))
    outcome = over_planes(ring(2, way), stars(2), cut(SwitchEnd(1, 0)))
    assert 1.7 < took_ns(outcome) / whole_ns < 2.1


@of_each_kind
def test_a_port_that_is_known_to_be_down_is_left_at_once(kind: TransportKind) -> None:
    """The host at the link's end hears of it in no time; with MRC it tells its peers, with UET one loses sixteen packets."""
    way = (kind, WHOLE, "nscc")
    quick = replace(stars(PLANES), routing=replace(stars(PLANES).routing, detection_ns=0))
    outcome = over_planes(ring(PLANES, way), quick, cut(SwitchEnd(3, 0)))
    assert outcome.failure == ""
    assert resent(outcome) < 40
    slow = over_planes(ring(PLANES, way), stars(PLANES), cut(SwitchEnd(3, 0)))
    assert resent(outcome) < resent(slow)


@of_each_way
def test_a_plane_that_comes_back_is_used_again(way: Way) -> None:
    ends = [SwitchEnd(3, host) for host in range(4)]
    changes = [LinkChange(end, up=False, at_ns=DOWN_NS) for end in ends]
    changes += [LinkChange(end, up=True, at_ns=1_500_000) for end in ends]
    outcome = over_planes(ring(PLANES, way), stars(PLANES), replace(PROBED, link_changes=tuple(changes)))
    sent = by_plane(outcome, PLANES)
    assert outcome.failure == ""
    assert 0.6 < sent[3] / sent[0] < 0.95, "away for a quarter of the time"


@of_each_way
def test_a_plane_that_is_cut_between_its_switches_is_left_and_comes_back(way: Way) -> None:
    """No port goes down: the uplinks of one leaf in one plane do, and nobody routes around them."""
    fabric = in_planes(lossy(two_tiers(LEAVES, HOSTS, SPINES)), 4)
    fabric = replace(fabric, routing=replace(fabric.routing, convergence_ns=1_000_000_000))
    flows = ((0, 2), (1, 3), (2, 0), (3, 1))
    kind, paths, algorithm = way
    job = on_cards(pairs(flows, 128 * MIB, sprayed(kind, algorithm, paths)), 4, card_bps=4 * RATE_BPS)
    step = LEAVES + SPINES
    uplinks = [SwitchEnd(step, HOSTS + spine) for spine in range(SPINES)]
    whole_ns = took_ns(over_planes(job, fabric))
    outcome = over_planes(job, fabric, cut(*uplinks))
    assert took_ns(outcome) / whole_ns < 1.1 * 4 / 3
    sent = by_plane(outcome, 4)
    assert sent[1] < 0.3 * sent[0]
    back = tuple(LinkChange(end, up=True, at_ns=DOWN_NS + 300_000) for end in uplinks)
    settings = cut(*uplinks)
    outcome = over_planes(job, fabric, replace(settings, link_changes=(*settings.link_changes, *back)))
    assert took_ns(outcome) / whole_ns < 1.15


def test_in_order_queue_pairs_have_the_planes_in_turn_and_none_overtakes_itself() -> None:
    """One queue pair has one port; as many as there are planes have the whole card, though its ports fill up unevenly."""
    alone = over_planes(ring(2, IN_ORDER_WAY), stars(2))
    assert 1.9 < took_ns(alone) / ideal_ns(64 * MIB) < 2.3
    outcome = over_planes(ring(2, IN_ORDER_WAY, qps_each=4), stars(2))
    assert took_ns(outcome) < 1.2 * ideal_ns(64 * MIB)
    for found in (alone, outcome):
        assert resent(found) == 0
        assert int(found.flows["out_of_sequence"].sum()) == 0
    sent = by_plane(over_planes(ring(PLANES, IN_ORDER_WAY, qps_each=PLANES), stars(PLANES)), PLANES)
    assert min(sent) > 0.8 * max(sent)


@pytest.mark.parametrize("way", [*WAYS.values(), IN_ORDER_WAY], ids=[*WAYS, "uet in order"])
@pytest.mark.parametrize("detection_ns", [0, 100_000_000], ids=["heard of", "unheard of"])
def test_a_port_that_is_down_is_left_by_both_ends(way: Way, detection_ns: int) -> None:
    """By the other port all takes twice as long; where nobody hears of the port, both ends find out by losses."""
    fabric = replace(stars(2), routing=replace(stars(2).routing, detection_ns=detection_ns))
    whole_ns = took_ns(over_planes(ring(2, way, qps_each=4), fabric))
    outcome = over_planes(ring(2, way, qps_each=4), fabric, cut(SwitchEnd(1, 0)))
    assert 1.7 < took_ns(outcome) / whole_ns < 2.2


@pytest.mark.parametrize("paths", [WHOLE, IN_ORDER], ids=["rud", "rod"])
def test_a_context_closes_and_opens_though_the_plane_it_was_heard_by_is_dead(
    paths: MultipathSettings,
) -> None:
    """Contexts rest between messages, and a port is cut meanwhile, of which nobody hears: commands and SYNs are lost by it."""
    rests = replace(paths, uet=replace(paths.uet, close_after_ns=20_000))
    transport = sprayed(TransportKind.UET, multipath=rests)
    waits = HandOp("delay", 300_000)
    programs = (
        (HandOp("send", MIB, peer=1, sequence=0), waits, HandOp("send", MIB, (0, 1), peer=1, sequence=1)),
        (HandOp("recv", MIB, peer=0, sequence=0), HandOp("recv", MIB, (0,), peer=0, sequence=1)),
    )
    job = on_cards(assignment(programs, transport=transport), 2)
    fabric = in_planes(lossy(star(2, RATE_BPS // 2)), 2)
    fabric = replace(fabric, routing=replace(fabric.routing, detection_ns=100_000_000))
    whole_ns = took_ns(over_planes(job, fabric))
    for plane in range(2):
        for at_ns in (60_000, 100_000, 110_000, 120_000, 150_000, 299_000, 301_000, 305_000):
            outcome = over_planes(job, fabric, cut(SwitchEnd(plane, 0), at_ns=at_ns))
            assert took_ns(outcome) < 2 * whole_ns, (plane, at_ns)


def test_unlike_ends_and_other_transports_are_refused() -> None:
    job = ring(2, WAYS["mrc"])
    for wrong, message in (
        (
            replace(job, planes=((job.planes[0][0],), *job.planes[1:])),
            "its addresses are not those of its plane",
        ),
        (replace(job, planes=job.planes[1:]), "its addresses are not those of its plane"),
        (replace(job, transport=UNCONTROLLED), "only MRC and UET send over several planes of a card"),
    ):
        with pytest.raises(ValueError, match=message):
            over_planes(wrong, stars(2))


def failures(draws: random.Random, planes: int, step: int) -> tuple[LinkChange, ...]:
    """Links of hosts and between switches, or whole planes; the first plane stays whole."""
    changes = []
    for _ in range(draws.randrange(1, 4)):
        first, down_ns = draws.randrange(1, planes) * step, draws.randrange(RUN_NS)
        hosts = [SwitchEnd(first + leaf, host) for leaf in range(LEAVES) for host in range(HOSTS)]
        uplinks = [
            SwitchEnd(first + leaf, HOSTS + spine) for leaf in range(LEAVES) for spine in range(SPINES)
        ]
        ends = draws.choice((hosts, uplinks, [draws.choice(hosts)], [draws.choice(uplinks)]))
        changes += [LinkChange(end, up=False, at_ns=down_ns) for end in ends]
        if draws.randrange(4):
            up_ns = down_ns + draws.randrange(RUN_NS)
            changes += [LinkChange(end, up=True, at_ns=up_ns) for end in ends]
    return tuple(sorted(changes, key=lambda change: change.at_ns))


def wrongs(seed: int, draws: random.Random) -> tuple[FaultRule, ...]:
    """What endpoints lose, repeat and turn over on purpose."""
    actions = draws.sample((FaultAction.DROP, FaultAction.DUPLICATE, FaultAction.REORDER), draws.randrange(3))
    return tuple(
        FaultRule(
            action,
            FaultDirection.RECEIVED,
            FaultPackets(draws.randrange(5)),
            chance_per_million=draws.randrange(20_000),
            delay_ns=100_000,
            behind_packets=1 + draws.randrange(8),
            seed=seed,
        )
        for action in actions
    )


@of_each_delivery
@pytest.mark.parametrize("batch", range(BATCHES))
def test_nothing_is_lost_or_comes_twice_whatever_planes_do(batch: int, delivery: Delivery) -> None:
    step = LEAVES + SPINES
    for seed in range(batch, SEEDS, BATCHES):
        draws = random.Random(seed)
        planes, trims = draws.choice((2, 4, 8)), seed % 2 == 1
        values = draws.choice((8, 32, 128))
        paths = paths_of(delivery, seed)
        transport = sprayed(
            delivery.kind,
            "nscc" if seed % 3 else "none",
            paths if delivery.order is DeliveryOrder.SENT else replace(paths, entropy_values=values),
            trimming=TrimSettings((TRIMMED_DSCP,), TrimAnswer.NAK) if trims else TrimSettings(),
        )
        transport = replace(transport, faults=wrongs(seed, draws))
        fabric = changed(
            in_planes(lossy(two_tiers(LEAVES, HOSTS, SPINES)), planes),
            balancing=draws.choice((LoadBalancing.STRUCTURED, LoadBalancing.ECMP)),
            trimming=Trimming(128, TRIMMED_DSCP) if trims else None,
        )
        fabric = replace(
            fabric, routing=replace(fabric.routing, detection_ns=draws.choice((0, 10_000, 1_000_000)))
        )
        name, size = list(CLOSED_FORMS)[seed % len(CLOSED_FORMS)], LEAVES * HOSTS
        amounts = (size * 300_000, size * 1024)
        programs = everywhere(size, HandOp(name, amounts[0]), HandOp(name, amounts[1], (0,)))
        job = on_cards(assignment(programs, transport=transport), planes)
        settings = replace(PROBED, seed=seed, link_changes=failures(draws, planes, step))
        outcome = over_planes(job, fabric, settings)
        assert outcome.failure == "", seed
        expected = sum(CLOSED_FORMS[name](amount, size) for amount in amounts)
        data = outcome.flows[outcome.flows["sends_data"] == 0]
        assert data["rx_payload_bytes"].sum() == expected, seed
        assert outcome.ops["wire_rx_bytes"].sum() == expected, seed
        if seed < BATCHES:
            again = over_planes(job, fabric, settings)
            assert again.ops.tobytes() == outcome.ops.tobytes(), seed
            assert again.flows.tobytes() == outcome.flows.tobytes(), seed
