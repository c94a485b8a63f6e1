"""Windows smaller than the interval at which receivers answer: where nothing is lost no timer fires, and nothing is sent again.

What a switch trimmed is not lost in silence: a NACK asks for it.

A failing seed names its draw. ETLOOP_FULL=1 draws 5,000 for each way of delivery.
"""

from __future__ import annotations

import os
import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from etloop.contract.model.congestion import CongestionParameter, CongestionSettings
from etloop.contract.model.transport import (
    CreditSettings,
    DeliveryOrder,
    MarkSettings,
    MultipathSettings,
    TrimAnswer,
    TrimSettings,
)
from etloop.contract.model.transport_kinds import TransportKind
from etloop.traffic.simulation import SimulationSettings, simulate
from tests.support.traffic.fat_tree import TRIMMED_DSCP, fat_tree
from tests.support.traffic.sprayed_by_hand import (
    PROBED,
    STAYS_OPEN,
    Delivery,
    of_each_delivery,
    of_each_kind,
    paths_of,
    sprayed,
)
from tests.support.traffic.twin_by_hand import UNCONTROLLED, dropped, pairs, through

if TYPE_CHECKING:
    import numpy as np

    from etloop.contract.model.assignment import Assignment
    from etloop.contract.model.transport import TransportSettings

SEEDS = 5_000 if os.environ.get("ETLOOP_FULL") == "1" else 120
FLOOR_NS = 20_000_000
"""Of timeouts as they are by default: no queue here takes as long, so only a stall would reach it."""
WINDOWS = (1, 2, 3, 4, 5, 7, 16, 64)
TRIMMING = TrimSettings((TRIMMED_DSCP,), TrimAnswer.NAK)
ANSWERS = MarkSettings(dscp=48, ecn=0)
FLOWS = ((0, 2), (1, 2), (2, 0))
PACKET_BYTES = 4_202
"""Of a full packet of UET on the wire, MRC's and RoCEv2's are shorter."""


def small_window(draw: random.Random) -> CongestionSettings:
    """An algorithm that begins with a window of few packets, or none."""
    share = CongestionParameter("initial_window", draw.choice((0.01, 0.05, 0.2)))
    most = CongestionParameter("max_window", draw.choice((0.1, 0.2, 1.0)))
    return draw.choice(
        (
            CongestionSettings(algorithm="none"),
            CongestionSettings(algorithm="nscc", profile="untrimmed", parameters=(share, most)),
            CongestionSettings(
                algorithm="dctcp", parameters=(CongestionParameter("initial_window", draw.choice((1, 2, 5))),)
            ),
            CongestionSettings(algorithm="swift"),
        )
    )


def no_timer_fired(flows: np.ndarray, named: str) -> None:
    assert int(flows["local_ack_timeout_err"].sum()) == 0, named
    assert int(flows["tail_probes"].sum()) == 0, named


def on_a_network_that_reorders(
    transport: TransportSettings, draw: random.Random, late: bool, named: str
) -> None:
    settings = SimulationSettings(
        seed=draw.randrange(1 << 30),
        latency_ns=2_000,
        reorder_per_million=draw.choice((0, 50_000, 400_000)) if late else 0,
        reorder_delay_ns=draw.choice(
            (300, 700)
        ),  # there and back less than half a round trip: late, not lost
        receiver_links=draw.random() < 0.5,
        probe_first=True,
        limit_ns=1_000_000_000,
    )
    outcome = simulate(pairs(FLOWS, draw.choice((30_000, 300_000)), transport), settings)
    assert outcome.failure == "", named
    no_timer_fired(outcome.flows, named)
    if settings.reorder_per_million == 0:  # else what is overtaken may be taken for lost
        assert int(outcome.flows["retransmitted_packets"].sum()) == 0, named


@of_each_delivery
def test_a_window_below_the_ack_interval_does_not_stall(delivery: Delivery) -> None:
    for seed in range(SEEDS):
        draw = random.Random(seed)
        ordered = delivery.order is DeliveryOrder.SENT
        drawn = paths_of(delivery, seed)
        paths = replace(
            drawn,
            sack_bytes=draw.choice((1_024, 4_096, 16_384, 32_768)),
            uet=replace(drawn.uet, credit=CreditSettings()),
        )
        transport = replace(
            sprayed(delivery.kind, multipath=paths, floor_ns=FLOOR_NS),
            congestion=small_window(draw),
            window_packets=draw.choice((*WINDOWS, 1_024)),
            path_mtu_bytes=draw.choice((256, 1_024, 4_096)),
        )
        on_a_network_that_reorders(transport, draw, not ordered, f"seed {seed}: {transport}")


def test_a_window_of_rocev2_below_its_ack_interval_does_not_stall() -> None:
    for seed in range(SEEDS):
        draw = random.Random(seed)
        transport = replace(
            UNCONTROLLED,
            congestion=small_window(draw),
            window_packets=draw.choice(WINDOWS),
            ack_every_packets=draw.choice((1, 2, 3, 16, 64)),
            path_mtu_bytes=draw.choice((256, 1_024, 4_096)),
            recovery=replace(
                UNCONTROLLED.recovery, timeout_floor_ns=FLOOR_NS, selective_repeat=draw.random() < 0.5
            ),
        )
        on_a_network_that_reorders(transport, draw, late=False, named=f"seed {seed}: {transport}")


def ended_by_nacks_alone(job: Assignment, queue_packets: int, rate_bps: int, k: int = 4) -> float:
    """When an incast through switches that trim is over, in times of what the receiver's link takes for it."""
    topology = fat_tree(k, rate_bps=rate_bps, queue_bytes=queue_packets * PACKET_BYTES)
    ports = tuple(replace(port, link_bps=rate_bps) for port in job.ports)
    outcome = through(replace(job, ports=ports), topology, PROBED)
    assert outcome.failure == ""
    assert dropped(outcome) == 0
    no_timer_fired(outcome.flows, "")
    trimmed = int(outcome.flows["trimmed_resent"].sum())
    assert trimmed > 0
    assert int(outcome.flows["retransmitted_packets"].sum()) == trimmed
    data = outcome.ops[outcome.ops["wire_tx_bytes"] > 0]
    payload_bytes = int(data["wire_tx_bytes"].sum())
    bound_ns = payload_bytes * PACKET_BYTES / 4_096 * 8e9 / rate_bps
    return float((data["completed_ns"].max() - outcome.start_ns) / bound_ns)


@of_each_kind
@pytest.mark.parametrize(
    ("algorithm", "most"), [("nscc", 1.1), ("dctcp", 1.2), ("swift", 1.2), ("none", 1.5)]
)
def test_an_incast_whose_packets_are_trimmed_needs_no_timer(
    kind: TransportKind, algorithm: str, most: float
) -> None:
    transport = replace(sprayed(kind, algorithm, trimming=TRIMMING, floor_ns=FLOOR_NS), ack=ANSWERS)
    job = pairs(tuple((sender, 15) for sender in range(15)), 500_000, transport)
    assert ended_by_nacks_alone(job, 43, 100_000_000_000) < most


@of_each_kind
def test_thirty_two_to_one_in_a_larger_tree_needs_no_timer(kind: TransportKind) -> None:
    """uet-htsim takes 2,630 us, which is the bound."""
    transport = replace(sprayed(kind, trimming=TRIMMING, floor_ns=FLOOR_NS), ack=ANSWERS)
    job = pairs(tuple((4 * sender + 3, 0) for sender in range(32)), 1_000_000, transport)
    assert ended_by_nacks_alone(job, 43, 100_000_000_000, k=8) < 1.1


@of_each_kind
@pytest.mark.parametrize("queue_packets", [43, 344])
def test_an_incast_at_800_gbps_needs_no_timer(kind: TransportKind, queue_packets: int) -> None:
    """uet-htsim takes 634 and 630 us, 1.03 and 1.02 of the bound."""
    transport = replace(sprayed(kind, trimming=TRIMMING, floor_ns=FLOOR_NS), ack=ANSWERS)
    job = pairs(tuple((sender, 15) for sender in range(15)), 4_000_000, transport)
    assert ended_by_nacks_alone(job, queue_packets, 800_000_000_000) < 1.15


@pytest.mark.parametrize("alone", [True, False], ids=["credit", "credit and nscc"])
def test_an_incast_by_credit_needs_no_timer(alone: bool) -> None:
    credit = CreditSettings(granted=True, alone=alone)
    algorithm = "rccc" if alone else "nscc"
    transport = sprayed(
        TransportKind.UET,
        algorithm,
        MultipathSettings(uet=replace(STAYS_OPEN, credit=credit)),
        FLOOR_NS,
        TRIMMING,
    )
    job = pairs(tuple((sender, 15) for sender in range(15)), 500_000, replace(transport, ack=ANSWERS))
    assert ended_by_nacks_alone(job, 43, 100_000_000_000) < 1.12


@pytest.mark.parametrize("algorithm", ["nscc", "dctcp", "swift"])
def test_an_incast_of_rocev2_whose_packets_are_trimmed_needs_no_timer(algorithm: str) -> None:
    recovery = replace(
        UNCONTROLLED.recovery,
        timeout_floor_ns=FLOOR_NS,
        selective_repeat=True,
        trimming=replace(TRIMMING, answer=TrimAnswer.SELECTIVE),
    )
    congestion = CongestionSettings(algorithm=algorithm)
    transport = replace(UNCONTROLLED, ack=ANSWERS, recovery=recovery, congestion=congestion)
    job = pairs(tuple((sender, 15) for sender in range(15)), 500_000, transport)
    assert ended_by_nacks_alone(job, 43, 100_000_000_000) < 1.2
