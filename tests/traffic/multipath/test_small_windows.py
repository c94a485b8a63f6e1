"""Windows smaller than the interval at which receivers answer: where nothing is lost no timer fires, and nothing is sent again.

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
    ClassMarks,
    CreditSettings,
    DeliveryOrder,
    MultipathSettings,
    TransportKind,
    TrimAnswer,
    TrimSettings,
)
from etloop.traffic.simulation import SimulationSettings, simulate

from tests.support.traffic.fat_tree import TRIMMED_DSCP, fat_tree
from tests.support.traffic.sprayed_by_hand import (
    PROBED,
    SPRAYING,
    Delivery,
    of_each_delivery,
    of_each_kind,
    paths_of,
    sprayed,
)
from tests.support.traffic.twin_by_hand import UNCONTROLLED, dropped, pairs, through

if TYPE_CHECKING:
    import numpy as np
    from etloop.contract.model.assignment import TransportSettings

SEEDS = 5_000 if os.environ.get("ETLOOP_FULL") == "1" else 120
FLOOR_NS = 20_000_000
"""Of timeouts as they are by default: no queue here takes as long, so only a stall would reach it."""
WINDOWS = (1, 2, 3, 4, 5, 7, 16, 64)
TRIMMING = TrimSettings((TRIMMED_DSCP,), TrimAnswer.NAK)
ANSWERS = ClassMarks(48 << 2)
FLOWS = ((0, 2), (1, 2), (2, 0))


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


def nothing_fired(flows: np.ndarray, draw: str, resent: int = 0) -> None:
    """No timer did, and no more was sent again than receivers asked for."""
    assert int(flows["local_ack_timeout_err"].sum()) == 0, draw
    assert int(flows["tail_probes"].sum()) == 0, draw
    assert int(flows["retransmitted_packets"].sum()) == resent, draw


def on_a_network_that_reorders(transport: TransportSettings, draw: random.Random, late: bool, named: str) -> None:
    settings = SimulationSettings(
        seed=draw.randrange(1 << 30),
        latency_ns=2_000,
        reorder_per_million=draw.choice((0, 50_000, 400_000)) if late else 0,
        reorder_delay_ns=draw.choice((300, 700)),  # there and back less than half a round trip: late, not lost
        receiver_links=draw.random() < 0.5,
        probe_first=True,
        limit_ns=1_000_000_000,
    )
    outcome = simulate(pairs(FLOWS, draw.choice((30_000, 300_000)), transport), settings)
    assert outcome.failure == "", named
    nothing_fired(outcome.flows, named)


@of_each_delivery
def test_a_window_below_the_ack_interval_does_not_stall(delivery: Delivery) -> None:
    for seed in range(SEEDS):
        draw = random.Random(seed)
        ordered = delivery.order is DeliveryOrder.SENT
        paths = replace(
            paths_of(delivery, seed),
            sack_bytes=draw.choice((1_024, 4_096, 16_384, 32_768)),
            credit=CreditSettings(),
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
