"""Seeded networks and jobs through the twin: each ends, counts every packet, and is the same again.

ETLOOP_FULL=1 runs 1,000 of them; a failing one names its seed.
"""

from __future__ import annotations

import os
import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from etloop.contract.model.congestion import CongestionSettings
from etloop.contract.model.topology import LoadBalancing, Topology, Trimming, Watchdog
from etloop.traffic.collectives.selection import CollectiveName
from etloop.traffic.twin import TwinOutcome, TwinSettings
from tests.support.traffic.assignments_by_hand import TRANSPORT, HandOp, assignment
from tests.support.traffic.twin_by_hand import changed, dropped, star, through, two_tiers
from tests.traffic.test_twin import conserved

if TYPE_CHECKING:
    from etloop.contract.model.assignment import Assignment
    from etloop.contract.model.transport import TransportSettings

SEEDS = 1000 if os.environ.get("ETLOOP_FULL") == "1" else 50
BATCHES = 10


def some_network(rng: random.Random, ranks: int) -> Topology:
    lossless = rng.random() < 0.6
    if rng.random() < 0.5:
        topology = star(ranks, rng.choice((25, 100, 400)) * 1_000_000_000, lossless=lossless)
    else:
        leaves = rng.choice([count for count in (1, 2, 4) if ranks % count == 0])
        uplink = rng.choice((40, 100, 400)) * 1_000_000_000
        topology = changed(two_tiers(leaves, ranks // leaves, rng.randint(1, 3), uplink), pfc=lossless)
        if not lossless:
            groups = tuple(replace(group, lossless=False) for group in topology.switches[0].groups)
            topology = changed(topology, groups=groups)
    extra = rng.choice((200_000, 1_000_000, 8_000_000))
    topology = replace(
        topology,
        switches=tuple(replace(one, buffer_bytes=one.set_aside_bytes + extra) for one in topology.switches),
    )
    return changed(
        topology,
        balancing=rng.choice((LoadBalancing.ECMP, LoadBalancing.FLOWLET)),
        flowlet_gap_ns=200_000,
        latency_ns=rng.choice((0, 300, 2000)),
        trimming=Trimming(128, 48) if not lossless and rng.random() < 0.3 else None,
        watchdog=Watchdog(100_000_000, 100_000_000) if rng.random() < 0.2 else None,
    )


def some_transport(rng: random.Random) -> TransportSettings:
    return replace(
        TRANSPORT,
        window_packets=rng.choice((16, 64, 256)),
        ack_every_packets=rng.choice((1, 8, 64)),
        timeout_ns=5_000_000,
        retry_limit=7,
        congestion=CongestionSettings(algorithm=rng.choice(("none", "dcqcn", "dctcp"))),
    )


def some_job(rng: random.Random, ranks: int) -> Assignment:
    transport = some_transport(rng)
    kinds = (
        CollectiveName.ALL_REDUCE,
        CollectiveName.ALL_GATHER,
        CollectiveName.REDUCE_SCATTER,
        CollectiveName.ALL_TO_ALL,
    )
    ops = [
        HandOp(rng.choice(kinds), rng.choice((ranks * 64, 40_000, 300_000)), (index - 1,) if index else ())
        for index in range(rng.randint(1, 3))
    ]
    return assignment((tuple(ops),) * ranks, transport=transport, qps_each=rng.choice((1, 2)))


def content(outcome: TwinOutcome) -> tuple[bytes, ...]:
    ports = tuple(ports.tobytes() for ports in outcome.switch_ports)
    return (outcome.ops.tobytes(), outcome.flows.tobytes(), outcome.cards.tobytes(), *ports)


@pytest.mark.parametrize("batch", range(BATCHES))
def test_every_seed_ends_whole_and_the_same_again(batch: int) -> None:
    for seed in range(batch, SEEDS, BATCHES):
        rng = random.Random(seed)
        ranks = rng.choice((2, 4, 8))
        topology, job = some_network(rng, ranks), some_job(rng, ranks)
        settings = TwinSettings(seed=seed, limit_ns=60_000_000_000)
        outcome = through(job, topology, settings)
        assert outcome.failure == "", f"seed {seed}: {outcome.failure}"
        assert conserved(outcome), f"seed {seed}"
        assert (outcome.ops["completed_ns"] >= outcome.ops["issued_ns"]).all(), f"seed {seed}"
        lossless = topology.switches[0].pfc
        assert not (lossless and dropped(outcome)), (
            f"seed {seed}: a lossless network dropped {dropped(outcome)}"
        )
        assert content(through(job, topology, settings)) == content(outcome), (
            f"seed {seed}: not the same again"
        )
