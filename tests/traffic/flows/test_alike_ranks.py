"""Ranks that do the same at the same times: one is run for all, and each gets the records of a run of all ranks."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from etloop.contract.model.assignment import Assignment
from etloop.contract.model.topology import LoadBalancing
from etloop.contract.model.transport_kinds import TransportKind
from etloop.traffic.collectives.selection import CollectiveName
from etloop.traffic.flow_level import (
    FlowLevelOutcome,
    FlowLevelSettings,
    FlowNetwork,
    flow_level,
    ideal_network,
)
from etloop.traffic.flow_network import network_of
from tests.support.traffic.assignments_by_hand import HandOp, assignment
from tests.support.traffic.sprayed_by_hand import sprayed
from tests.support.traffic.twin_by_hand import UNCONTROLLED, changed, pairs, star, two_tiers

RANKS = 64
MIB = 1 << 20
ALL_REDUCE = HandOp(CollectiveName.ALL_REDUCE, 4 * MIB)
ALL_TO_ALL = HandOp(CollectiveName.ALL_TO_ALL, 4 * MIB)
SPREAD = sprayed(TransportKind.UET)


def both(job: Assignment, network: FlowNetwork, **more: int) -> tuple[FlowLevelOutcome, FlowLevelOutcome]:
    """Run one of alike ranks for all, and all of them."""
    folded, whole = (
        flow_level(job, network, FlowLevelSettings(folds=folds, **more)) for folds in (True, False)
    )
    assert whole.ranks_run == len(job.ranks)
    assert (folded.failure, len(folded.ops)) == (whole.failure, len(whole.ops))
    return folded, whole


def assert_same(folded: FlowLevelOutcome, whole: FlowLevelOutcome, tolerance: float = 1e-3) -> None:
    ops, expected = (np.sort(outcome.ops, order=["rank", "iteration", "op"]) for outcome in (folded, whole))
    for column in ("rank", "op", "iteration", "tx_messages", "rx_messages", "wire_tx_bytes", "wire_rx_bytes"):
        assert np.array_equal(ops[column], expected[column]), column
    for column in ("issued_ns", "first_tx_ns", "completed_ns", "acknowledged_ns"):
        furthest = np.abs(ops[column] - expected[column]).max()
        assert furthest <= tolerance * whole.end_ns, (column, furthest)
    assert np.array_equal(folded.link_bytes, whole.link_bytes)


def ports(job: Assignment) -> tuple[str, ...]:
    return tuple(f"r/p{index}" for index in range(len(job.ports)))


@pytest.mark.parametrize("latency_ns", [0, 1_000])
def test_a_ring_is_one_rank(latency_ns: int) -> None:
    job = assignment(((ALL_REDUCE,),) * RANKS, transport=UNCONTROLLED, iterations=2)
    folded, whole = both(job, ideal_network(job, latency_ns))
    assert folded.ranks_run == 1
    assert folded.messages * RANKS == whole.messages
    assert_same(folded, whole)


def test_a_straggler_is_not_like_the_others() -> None:
    late = (HandOp("delay", 100_000), replace(ALL_REDUCE, deps=(0,)))
    punctual = (HandOp("delay", 0), replace(ALL_REDUCE, deps=(0,)))
    job = assignment((late, *(punctual,) * (RANKS - 1)), transport=UNCONTROLLED)
    folded, whole = both(job, ideal_network(job, 1_000))
    assert folded.ranks_run == RANKS, "in a ring, each is another number of steps behind the straggler"
    assert folded.ops.tobytes() == whole.ops.tobytes()


def test_a_chunk_that_is_a_byte_longer_makes_a_difference() -> None:
    job = assignment(((replace(ALL_REDUCE, amount=4 * MIB + 1),),) * RANKS, transport=UNCONTROLLED)
    folded, whole = both(job, ideal_network(job, 1_000))
    assert folded.ranks_run > 1
    assert_same(folded, whole)


def test_pairs_with_messages_of_three_sizes() -> None:
    sizes = (MIB, 2 * MIB, 3 * MIB)
    programs = [
        (
            HandOp("send", sizes[rank // 2 % 3], peer=rank + 1, sequence=0)
            if rank % 2 == 0
            else HandOp("recv", sizes[rank // 2 % 3], peer=rank - 1, sequence=0),
        )
        for rank in range(RANKS)
    ]
    job = assignment(tuple(programs), transport=UNCONTROLLED)
    folded, whole = both(job, network_of(job, ports(job), star(RANKS)))
    assert folded.ranks_run == 6, "a sender and a receiver of each size"
    assert_same(folded, whole)


def test_flows_of_a_class_share_an_uplink() -> None:
    """Four to one oversubscribed: eight hosts of a leaf over two uplinks."""
    job = pairs(tuple((host, (host + 8) % RANKS) for host in range(RANKS)), 8 * MIB, SPREAD)
    topology = changed(two_tiers(8, 8, 2), balancing=LoadBalancing.ADAPTIVE)
    folded, whole = both(job, network_of(job, ports(job), topology))
    assert folded.ranks_run == 8, "one of each leaf"
    assert_same(folded, whole)
    assert folded.end_ns > 4 * 8 * MIB * 8 / 100, "the uplinks are the bottleneck"


@pytest.mark.parametrize("ops", [(ALL_REDUCE,), (ALL_TO_ALL,), (ALL_REDUCE, replace(ALL_TO_ALL, deps=(0,)))])
def test_collectives_over_spines(ops: tuple[HandOp, ...]) -> None:
    job = assignment((ops,) * RANKS, transport=SPREAD)
    topology = changed(two_tiers(8, 8, 8), balancing=LoadBalancing.ADAPTIVE)
    folded, whole = both(job, network_of(job, ports(job), topology))
    assert folded.ranks_run <= RANKS // 2
    # Events of one instant are in another order, so that another packet goes first.
    assert_same(folded, whole, tolerance=0.01)


@pytest.mark.parametrize("seed", range(4))
def test_hashed_paths_make_ranks_unlike(seed: int) -> None:
    """The path of each flow is its own: links with other numbers of flows are other links."""
    draw = random.Random(seed)
    hosts = list(range(RANKS))
    draw.shuffle(hosts)
    job = pairs(tuple(zip(hosts, hosts[1:] + hosts[:1], strict=True)), 4 * MIB)
    folded, whole = both(job, network_of(job, ports(job), two_tiers(8, 8, 4)))
    assert folded.ranks_run > 1
    assert_same(folded, whole)


def test_what_ranks_wait_for_is_said_of_each() -> None:
    job = assignment(((ALL_REDUCE,),) * RANKS, transport=UNCONTROLLED)
    folded, whole = both(job, ideal_network(job, 1_000), limit_ns=20_000)
    assert folded.failure == "the time limit was reached"
    columns = ["rank", "op", "kind", "peer_rank", "connection"]
    waits, expected = (set(outcome.waits[columns].tolist()) for outcome in (folded, whole))
    assert waits == expected
    assert {wait[0] for wait in waits} == set(range(RANKS))


def test_a_small_job_runs_every_rank() -> None:
    job = assignment(((ALL_REDUCE,),) * (RANKS - 1), transport=UNCONTROLLED)
    assert flow_level(job, ideal_network(job)).ranks_run == RANKS - 1
