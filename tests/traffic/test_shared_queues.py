"""One rank over several queues of its port: the same bytes, messages and order as over one, whatever packets and queues do.

In virtual time, seeded: ETLOOP_FULL=1 runs 10,000 jobs; a failing one names its seed.
"""

from __future__ import annotations

import os
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pytest

from etloop.contract.model.records import WaitKind
from etloop.contract.model.transport import RecoverySettings
from etloop.traffic.collectives.selection import CollectiveName
from etloop.traffic.simulation import QueueTroubles, SimulationOutcome, SimulationSettings, simulate
from etloop.traffic.threads.port_queues import spread_queues
from tests.support.traffic.assignments_by_hand import TRANSPORT, HandOp, assignment

if TYPE_CHECKING:
    from etloop.contract.model.assignment import Assignment

AR, A2A, AG = CollectiveName.ALL_REDUCE, CollectiveName.ALL_TO_ALL, CollectiveName.ALL_GATHER
SEEDS: Final = 10_000 if os.environ.get("ETLOOP_FULL") == "1" else 80
BATCHES: Final = 10
COUNTS: Final = (
    "rank",
    "op",
    "iteration",
    "wire_tx_bytes",
    "wire_rx_bytes",
    "local_tx_bytes",
    "local_rx_bytes",
    "tx_messages",
    "rx_messages",
)


def over(job: Assignment, queues: int) -> Assignment:
    """The job with every port divided."""
    ports = tuple(replace(port, queues=queues) for port in job.ports)
    return spread_queues(replace(job, ports=ports)).assignment


def some_job(rng: random.Random) -> Assignment:
    """A chain of collectives, and sends and receives beside it that wait for nothing."""
    size = rng.randint(2, 4)
    amounts = (64, 4096, 70_000, 400_000)
    chain = [HandOp(rng.choice((AR, A2A, AG)), rng.choice(amounts))]
    chain += [
        HandOp("delay", rng.randint(0, 20_000), (index,))
        if rng.random() < 0.2
        else HandOp(rng.choice((AR, A2A, AG)), rng.choice(amounts), (index,))
        for index in range(rng.randint(0, 2))
    ]
    messages = rng.randint(0, 6)
    programs = []
    for rank in range(size):
        pair = [
            HandOp("send" if rank == 0 else "recv", 50_000 + 11 * number, (), 1 - rank, number)
            for number in range(messages if rank < 2 else 0)
        ]
        programs.append((*chain, *pair))
    transport = replace(
        TRANSPORT,
        split_data_on_qps=rng.random() < 0.4,
        window_packets=rng.choice((0, 8, 64)),
        ack_every_packets=rng.choice((1, 8, 32)),
        recovery=RecoverySettings(selective_repeat=True, accept_out_of_order=True)
        if rng.random() < 0.3
        else RecoverySettings(),
    )
    return assignment(
        tuple(programs), qps_each=rng.choice((1, 2, 3, 8)), iterations=rng.randint(1, 2), transport=transport
    )


def some_network(rng: random.Random, seed: int) -> SimulationSettings:
    bad = rng.random() < 0.5
    return SimulationSettings(
        seed=seed,
        loss_per_million=20_000 if bad else 0,
        duplicate_per_million=5_000 if bad else 0,
        reorder_per_million=20_000 if bad else 0,
        corrupt_per_million=2_000 if bad else 0,
        probe_first=rng.random() < 0.5,
        initial_psn=0xFFFFF0,
        queues=QueueTroubles(rng.choice((0, 0, 100_000, 1_000_000)), rng.choice((0, 300, 30_000))),
    )


def finished(job: Assignment, settings: SimulationSettings) -> SimulationOutcome:
    outcome = simulate(job, settings)
    assert outcome.failure == "", settings
    return outcome


def in_order(outcome: SimulationOutcome, rank: int, ops: list[int]) -> list[tuple[int, int]]:
    """(iteration, op) of some ops of a rank as they were completed."""
    rows = outcome.ops[(outcome.ops["rank"] == rank) & np.isin(outcome.ops["op"], ops)]
    return [(int(row["iteration"]), int(row["op"])) for row in rows]


@pytest.mark.parametrize("batch", range(BATCHES))
def test_many_queues_do_what_one_does(batch: int) -> None:
    """Bytes and messages of every op, the order of dependent ops, a row for every end of a queue pair; nothing is lost."""
    for seed in range(batch, SEEDS, BATCHES):
        rng = random.Random(seed)
        job, queues = some_job(rng), rng.randint(2, 5)
        network = some_network(rng, seed)
        one, many = finished(job, network), finished(over(job, queues), network)
        for name in COUNTS:
            order = ("rank", "iteration", "op")
            same = np.sort(one.ops, order=order)[name] == np.sort(many.ops, order=order)[name]
            assert same.all(), (seed, name)
        chain = [op for op in range(len(job.programs[0].kind)) if job.programs[0].kind[op] == 1]
        for rank in range(len(job.ranks)):
            assert in_order(one, rank, chain) == in_order(many, rank, chain), (seed, rank)
        assert (many.ops["issued_ns"] <= many.ops["completed_ns"]).all(), seed
        sends = many.ops[many.ops["tx_messages"] > 0]
        assert (sends["first_tx_ns"] >= sends["issued_ns"]).all(), seed
        assert (sends["first_tx_ns"] <= sends["completed_ns"]).all(), seed
        ends = ("connection", "sends_data", "local_qpn")
        flows = [np.sort(outcome.flows, order=ends) for outcome in (one, many)]
        for name in ("connection", "sends_data", "local_qpn", "remote_qpn"):
            assert flows[0][name].tolist() == flows[1][name].tolist(), (seed, name)
        for name in ("tx_payload_bytes", "rx_payload_bytes", "tx_messages", "rx_messages"):
            by_connection = [
                np.bincount(of["connection"], weights=of[name].astype(float)).tolist() for of in flows
            ]
            assert by_connection[0] == by_connection[1], (seed, name)


def test_a_seed_says_all() -> None:
    """The same seed gives the same records, bit for bit, and another one does not."""
    job = over(some_job(random.Random(3)), 3)
    first, again = (simulate(job, some_network(random.Random(5), 5)) for _ in range(2))
    other = simulate(job, some_network(random.Random(5), 6))
    assert first.ops.tobytes() == again.ops.tobytes()
    assert first.flows.tobytes() == again.flows.tobytes()
    assert first.ops.tobytes() != other.ops.tobytes()


def test_one_queue_is_exactly_what_it_was() -> None:
    """A port with one queue is not divided, so nothing of it may change."""
    job = some_job(random.Random(7))
    assert over(job, 1) is not job
    network = SimulationSettings(seed=7, loss_per_million=10_000, probe_first=True)
    assert simulate(over(job, 1), network).ops.tobytes() == simulate(job, network).ops.tobytes()


def test_queue_pairs_of_a_rank_are_carried_by_all_queues() -> None:
    """16 queue pairs over 4 queues: each has four senders and four receivers, and every one of them moved data."""
    split = replace(TRANSPORT, split_data_on_qps=True)
    job = over(assignment(((HandOp(AR, 4 << 20),),) * 2, qps_each=16, transport=split), 4)
    outcome = finished(job, SimulationSettings())
    for port in (job.ports[0], job.ports[4]):
        own = outcome.flows[
            (outcome.flows["local_qpn"] >= port.qpn_base)
            & (outcome.flows["local_qpn"] < port.qpn_base + port.qpn_count)
        ]
        number = own["local_qpn"] - port.qpn_base
        queue = (number + number // 4) % 4
        for sends in (0, 1):
            assert np.bincount(queue[own["sends_data"] == sends]).tolist() == [4, 4, 4, 4]
        assert (own["tx_payload_bytes"][own["sends_data"] == 1] > 0).all()


def test_a_dead_peer_is_told_by_the_queue_that_has_its_queue_pair() -> None:
    """The failure names the connection, and who waits for an acknowledgement knows the packet that is missing."""
    job = over(assignment(((HandOp(AR, 4 << 20),),) * 2, qps_each=4), 2)
    dies = SimulationSettings(dying_port=2, dies_at_ns=100_000, queues=QueueTroubles(delay_ns=500))
    outcome = simulate(job, dies)
    assert "rank 0 -> rank 1" in outcome.failure or "rank 1 -> rank 0" in outcome.failure
    assert outcome.failed_connection >= 0
    waits = outcome.waits[outcome.waits["kind"] == WaitKind.ACKNOWLEDGEMENT]
    assert len(waits) > 0
    assert (waits["rank"] >= 0).all()
    assert (waits["psn"] > 0).any()
