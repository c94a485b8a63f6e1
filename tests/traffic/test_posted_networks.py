"""Ops that complete when their messages have left: every byte arrives once and every run ends, whatever the network does.

In virtual time, seeded: ETLOOP_FULL=1 runs 10,000 networks for each transport; a failing one names its seed.
"""

from __future__ import annotations

import os
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pytest

from etloop.contract.model.transport import DeliveryOrder
from etloop.traffic.collectives.completion import EAGER_BYTES
from etloop.traffic.collectives.core.table import MOST_SLOTS, Completion
from etloop.traffic.collectives.selection import CollectiveName
from etloop.traffic.simulation import SimulationSettings, simulate
from tests.support.traffic.assignments_by_hand import TRANSPORT, HandOp, assignment
from tests.support.traffic.sprayed_by_hand import DELIVERIES, paths_of, sprayed

if TYPE_CHECKING:
    from etloop.contract.model.assignment import Assignment
    from etloop.contract.model.transport import TransportSettings

SEEDS: Final = 10_000 if os.environ.get("ETLOOP_FULL") == "1" else 80
BATCHES: Final = 4
COLLECTIVES: Final = (
    CollectiveName.ALL_REDUCE,
    CollectiveName.ALL_GATHER,
    CollectiveName.ALL_TO_ALL,
    CollectiveName.BROADCAST,
    CollectiveName.REDUCE,
)
COUNTS: Final = ("rank", "op", "iteration", "wire_tx_bytes", "wire_rx_bytes", "tx_messages", "rx_messages")
PATIENCE_NS: Final = 50_000


def completing(job: Assignment, completion: Completion, connection_slots: int = MOST_SLOTS) -> Assignment:
    """The job with this rule for all of its ops."""
    columns = job.schedules.schedules
    ruled = replace(
        columns,
        completion=np.full_like(columns.completion, completion),
        eager_bytes=np.full_like(columns.eager_bytes, EAGER_BYTES),
        connection_slots=np.full_like(columns.connection_slots, connection_slots),
    )
    return replace(job, schedules=replace(job.schedules, schedules=ruled))


def transport_of(name: str, rng: random.Random, seed: int) -> TransportSettings:
    if name == "rocev2":
        return replace(
            TRANSPORT,
            window_packets=rng.choice((0, 0, 8, 64)),
            ack_every_packets=rng.choice((8, 32)),
            split_data_on_qps=rng.random() < 0.3,
        )
    delivery = DELIVERIES[name]
    return replace(
        sprayed(delivery.kind, multipath=paths_of(delivery, seed)),
        timeout_ns=TRANSPORT.timeout_ns,
        drop_per_million=0,
    )


def some_job(rng: random.Random, transport: TransportSettings) -> Assignment:
    """Small and large collectives that follow each other, over a few iterations."""
    amounts = (0, 64, 4096, 70_000, 300_000)
    ops = tuple(
        HandOp(rng.choice(COLLECTIVES), rng.choice(amounts), (index - 1,) if index else ())
        for index in range(rng.randint(1, 6))
    )
    size = rng.randint(2, 4)
    return assignment(
        tuple(ops for _ in range(size)),
        qps_each=rng.choice((1, 1, 2, 4)),
        iterations=rng.randint(1, 3),
        transport=transport,
    )


@pytest.mark.timeout(3600)  # for 10,000 networks on a busy machine
@pytest.mark.parametrize("name", ["rocev2", *DELIVERIES])
@pytest.mark.parametrize("batch", range(BATCHES))
def test_posted_ops_lose_and_repeat_nothing(name: str, batch: int) -> None:
    for seed in range(1 + batch, SEEDS + 1, BATCHES):
        rng = random.Random(seed)
        job = some_job(rng, transport_of(name, rng, seed))
        bad = rng.random() < 0.6
        # UET in the order sent needs a network that keeps it.
        in_order = name in DELIVERIES and DELIVERIES[name].order is DeliveryOrder.SENT
        settings = SimulationSettings(
            seed=seed,
            loss_per_million=20_000 if bad else 0,
            duplicate_per_million=5_000 if bad else 0,
            reorder_per_million=20_000 if bad and not in_order else 0,
            probe_first=True,
            answer_patience_ns=rng.choice((0, PATIENCE_NS)),
            limit_ns=60_000_000_000,
        )
        completion = rng.choice((Completion.POSTED, Completion.POSTED, Completion.EAGER))
        posted = simulate(completing(job, completion, rng.choice((1, 4, 8, MOST_SLOTS))), settings)
        assert posted.failure == "", (name, seed)
        expected = simulate(completing(job, Completion.ACKNOWLEDGED), replace(settings, answer_patience_ns=0))
        assert expected.failure == "", (name, seed)
        order = ("rank", "iteration", "op")
        for column in COUNTS:
            ours, theirs = (np.sort(run.ops, order=order)[column] for run in (posted, expected))
            assert (ours == theirs).all(), (name, seed, column)
        flows = posted.flows
        assert flows["tx_messages"].sum() == flows["rx_messages"].sum(), (name, seed)
        # No record is closed before everything that its op sent is acknowledged.
        sends = posted.ops["tx_messages"] > 0
        assert (posted.ops["acknowledged_ns"][sends] >= posted.ops["first_tx_ns"][sends]).all(), (name, seed)
