"""Every algorithm executed by the engine in virtual time, over a network that loses packets: not a byte more or less."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from etloop.traffic.collectives.algorithms.deepep import (
    deepep,
    low_latency_combine,
    low_latency_dispatch,
    normal_dispatch,
)
from etloop.traffic.collectives.core.cutting import Cutting, Request
from etloop.traffic.collectives.core.table import Schedule
from etloop.traffic.collectives.selection import CollectiveName
from etloop.traffic.simulation import SimulationOutcome, SimulationSettings, simulate
from tests.support.traffic.algorithm_cases import (
    CASES,
    Case,
    Shape,
    least_channels,
    moved,
    nccl_p2p,
    nccl_ring,
    whole,
)
from tests.support.traffic.assignments_by_hand import HandOp, assignment

LOSSY = SimulationSettings(seed=11, loss_per_million=20_000)
ITERATIONS = 2


def run(schedule: Schedule, op_bytes: int, *, qps_each: int = 1) -> SimulationOutcome:
    """Two iterations of two ops each; fails the test if they do not come to their end."""
    name = CollectiveName.ALL_REDUCE
    ops = (HandOp(name, op_bytes), HandOp(name, op_bytes, (0,)))
    job = assignment(
        tuple(ops for _ in range(schedule.size)), iterations=ITERATIONS, qps_each=qps_each, instead=schedule
    )
    outcome = simulate(job, LOSSY)
    assert outcome.failure == ""
    assert len(outcome.ops) == ITERATIONS * 2 * schedule.size
    return outcome


def assert_exact(schedule: Schedule, op_bytes: int, *, qps_each: int = 1) -> None:
    """Every position sent and received what its table says, and nothing else."""
    outcome = run(schedule, op_bytes, qps_each=qps_each)
    totals = moved(schedule, op_bytes)
    sent, received = totals.sent_by(schedule.size), totals.received_by(schedule.size)
    for rank in range(schedule.size):
        for row in outcome.ops[outcome.ops["rank"] == rank]:
            assert row["wire_tx_bytes"] == sent[rank]
            assert row["wire_rx_bytes"] == received[rank]


def cuttings(case: Case) -> list[Cutting]:
    """One message a step on one channel (or two), and several channels with small chunks."""
    several = whole(channels=4, chunk_bytes=16 << 10, aggregation=2, window=2)
    if case.algorithm == "gloo_ring":
        several = whole(chunk_bytes=16 << 10, slots=2)
    if case.algorithm == "p2p":
        several = nccl_p2p(channels=4, parts=2)
    if case.algorithm == "ring":
        several = nccl_ring(channels=4)
    return [whole(channels=least_channels(case)), several]


@pytest.mark.parametrize("size", [4, 5, 8])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_bytes_are_exact_under_loss(case: Case, size: int) -> None:
    ran = 0
    for ranks_per_host in (1, 2):
        for cutting in cuttings(case):
            if case.serves(shape := Shape(size, ranks_per_host), cutting):
                assert_exact(case.build(shape, cutting), 200_003)
                ran += 1
    # Two levels need hosts of equally many positions.
    assert ran or (case.algorithm in ("hierarchical", "pxn") and size == 5)


@pytest.mark.parametrize("name", ["tree-all-reduce", "halving_doubling-all-reduce", "bruck-all-to-all"])
def test_several_queue_pairs_change_nothing(name: str) -> None:
    case = next(case for case in CASES if case.name == name)
    assert_exact(case.build(Shape(6), whole(channels=2)), 100_001, qps_each=3)


COUNTS = (
    (3, 0, 1, 5, 0, 2, 4, 9),
    (0, 0, 0, 0, 0, 0, 0, 0),
    (1, 1, 1, 1, 1, 1, 1, 1),
    (30, 0, 0, 2, 0, 0, 1, 0),
)


@pytest.mark.parametrize("build", [low_latency_dispatch, low_latency_combine], ids=lambda b: b.__name__)
def test_tokens_are_written_one_by_one_and_every_expert_is_closed(
    build: Callable[[Sequence[Sequence[int]], int], Schedule],
) -> None:
    assert_exact(build(COUNTS, 7408), 0)


def test_tokens_cross_to_a_host_once_and_are_passed_on_inside() -> None:
    host_tokens = ((0, 7), (0, 3), (6, 0), (2, 0))
    rank_tokens = ((1, 3, 4, 5), (2, 0, 3, 3), (6, 1, 0, 8), (2, 2, 0, 0))
    assert_exact(normal_dispatch(rank_tokens, host_tokens, 2, 8000, 3), 0)


def test_uneven_splits_travel_as_tokens() -> None:
    splits = ((0, 7408 * 5 + 100, 0), (7408, 0, 99), (1, 7408 * 2, 0))
    cutting = whole(channels=2)
    request = Request("uneven all-to-all", 3, 1, cutting, splits)
    schedule = deepep(request)
    assert schedule.splits == splits
    pairs = moved(schedule, 0).sent_between()
    # Six writes for five tokens and a bit; the closing of a lane is not a message of data.
    assert pairs[0, 1] == (6, 7408 * 5 + 100)
    assert pairs[2, 1] == (2, 7408 * 2)
    assert_exact(schedule, 0)
