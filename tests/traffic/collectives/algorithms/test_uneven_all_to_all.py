"""All-to-all with splits of its own for every pair: proved by the validator, then carried by the engine byte by byte."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etloop.contract.base.errors import PlanError
from etloop.traffic.collectives.algorithms.alltoall import UNEVEN
from etloop.traffic.collectives.choice import Settings
from etloop.traffic.collectives.core.table import MAX_LANE_BYTES, Schedule
from etloop.traffic.collectives.proof.validate import validate
from etloop.traffic.collectives.selection import CollectiveName, choose_for_splits
from etloop.traffic.simulation import SimulationSettings, simulate
from tests.support.traffic.assignments_by_hand import HandOp, Splits, assignment
from tests.support.traffic.one_channel_schedules import schedule_for, schedule_for_splits

A2A = CollectiveName.ALL_TO_ALL
BAD_NETWORK = SimulationSettings(
    seed=11,
    loss_per_million=50_000,
    duplicate_per_million=10_000,
    reorder_per_million=10_000,
    corrupt_per_million=5_000,
    initial_psn=0xFFFFF0,
)
ENTRY_BYTES = st.one_of(
    st.just(0), st.integers(1, 64), st.integers(0, 40_000), st.integers(130_000, 132_000), st.just(300_000)
)


@st.composite
def matrices(draw: st.DrawFn, most: int = 16) -> Splits:
    """Square matrices: dense, with many zeros, with one entry alone."""
    size = draw(st.integers(2, most))
    cells = [draw(ENTRY_BYTES) for _ in range(min(size * size, 24))]
    kind = draw(st.sampled_from(["dense", "sparse", "one hot", "one row", "one column"]))
    hot = draw(st.integers(0, size - 1)), draw(st.integers(0, size - 1))

    def entry(source: int, destination: int) -> int:
        cell = cells[(source * 7 + destination * 5) % len(cells)]
        keep = {
            "dense": True,
            "sparse": (source * 3 + destination) % 4 == 0,
            "one hot": (source, destination) == hot,
            "one row": source == hot[0],
            "one column": destination == hot[1],
        }[kind]
        return cell if keep else 0

    return tuple(tuple(entry(source, destination) for destination in range(size)) for source in range(size))


def moved(splits: Splits) -> dict[tuple[int, int], int]:
    """Bytes of every pair that has any."""
    return {(i, j): entry for i, row in enumerate(splits) for j, entry in enumerate(row) if i != j and entry}


@settings(max_examples=60, deadline=None)
@given(matrices(), st.sampled_from([1, 2, 4, 8]), st.integers(0, 1 << 20))
def test_every_pair_gets_its_split_and_nothing_deadlocks(
    splits: Splits, ranks_per_host: int, op_bytes: int
) -> None:
    """The op's own byte count does not matter."""
    validate(schedule_for_splits(splits, ranks_per_host=ranks_per_host), op_bytes)


@settings(max_examples=25, deadline=None)
@given(matrices(), st.integers(0, 3))
def test_the_engine_moves_the_matrix_on_a_bad_network(splits: Splits, seed: int) -> None:
    """Loss, duplicates, reordering and bit errors change no byte of any pair; an even one after it is not touched."""
    size = len(splits)
    ops = (HandOp(A2A, 1, splits=splits), HandOp(A2A, size * 1000, (0,)))
    job = assignment(tuple(ops for _ in range(size)), iterations=2)
    outcome = simulate(job, replace(BAD_NETWORK, seed=seed))
    assert outcome.failure == ""
    assert len(outcome.ops) == 2 * 2 * size
    uneven = outcome.ops[outcome.ops["op"] == 0]
    for row in uneven:
        rank = int(row["rank"])
        assert row["wire_tx_bytes"] == sum(splits[rank]) - splits[rank][rank]
        assert row["wire_rx_bytes"] == sum(line[rank] for line in splits) - splits[rank][rank]
    expected = {pair: 2 * (entry + 1000) for pair, entry in moved(splits).items()}
    connections = job.connections
    for name, sends in (("tx_payload_bytes", 1), ("rx_payload_bytes", 0)):
        carried = np.zeros(len(connections.src_rank), np.int64)
        ends = outcome.flows[outcome.flows["sends_data"] == sends]
        np.add.at(carried, ends["connection"], ends[name])
        pairs = zip(connections.src_rank.tolist(), connections.dst_rank.tolist(), strict=True)
        assert dict(zip(pairs, carried.tolist(), strict=True)) == {
            (i, j): expected.get((i, j), 2000) for i in range(size) for j in range(size) if i != j
        }


def test_nothing_at_all_ends_at_once() -> None:
    """A matrix of zeros has no lanes and needs no connection; the op after it is released."""
    splits = ((0, 0, 0),) * 3
    assert tuple(schedule_for_splits(splits).tables) == ((), (), ())
    ops = (HandOp(A2A, 0, splits=splits), HandOp("delay", 500, (0,)), HandOp(A2A, 0, (1,), splits=splits))
    outcome = simulate(assignment((ops,) * 3), SimulationSettings())
    assert outcome.failure == ""
    assert len(outcome.ops) == 6
    assert outcome.packets == 0


def test_a_peer_of_zero_bytes_is_sent_nothing_and_takes_no_place_in_a_batch() -> None:
    size = 17
    # Every position sends to the nine after it; of the 16 rounds only those with work fill batches of eight.
    splits = tuple(tuple(5 if 0 < (j - i) % size <= 9 else 0 for j in range(size)) for i in range(size))
    schedule = schedule_for_splits(splits)
    for position, table in enumerate(schedule.tables):
        assert {lane.send_to for lane in table if lane.send_to >= 0} == {
            (position + k) % size for k in range(1, 10)
        }
        for batch in {lane.batch for lane in table}:
            assert sum(lane.batch == batch and lane.send_to >= 0 for lane in table) <= 8
    even = schedule_for(A2A, 9)
    same = schedule_for_splits(tuple((7,) * 9 for _ in range(9)))
    order = [[(lane.batch, lane.send_to, lane.recv_from) for lane in table] for table in even.tables]
    assert [[(lane.batch, lane.send_to, lane.recv_from) for lane in table] for table in same.tables] == order


def test_it_is_told_apart_from_the_even_one() -> None:
    schedule = schedule_for_splits(((0, 1), (2, 0)))
    assert schedule.algorithm == UNEVEN != schedule_for(A2A, 2).algorithm


def broken(schedule: Schedule, position: int, lane_bytes: int) -> Schedule:
    """A schedule whose first lane of a position states other bytes."""
    lanes = list(schedule.tables[position])
    lanes[0] = replace(lanes[0], lane_bytes=lane_bytes)
    tables = list(schedule.tables)
    tables[position] = tuple(lanes)
    return replace(schedule, tables=tuple(tables))


UNEVEN_PAIR = schedule_for_splits(((0, 100), (30, 0)))


@pytest.mark.parametrize(
    ("schedule", "line"),
    [
        # A sender and a receiver that disagree.
        (
            broken(UNEVEN_PAIR, 0, lane_bytes=99),
            "sends 99 bytes of block 1 (loop 0, slice 0) to position 1, which",
        ),
        # Both agree, but on something else than the splits say.
        (
            replace(UNEVEN_PAIR, splits=((0, 101), (30, 0))),
            "position 1: it gets 100 bytes from position 0 instead of 101",
        ),
        # A pair that the splits have and the tables do not.
        (
            replace(schedule_for_splits(((0, 0), (30, 0))), splits=((0, 7), (30, 0))),
            "position 1: it gets 0 bytes from position 0 instead of 7",
        ),
        # What a position keeps is not moved.
        (replace(UNEVEN_PAIR, splits=((5, 100), (30, 0))), ""),
        (broken(UNEVEN_PAIR, 0, lane_bytes=-2), f"works on -2 bytes, outside 0 to {MAX_LANE_BYTES}"),
        (
            replace(UNEVEN_PAIR, splits=()),
            "splits: a matrix of 2 by 2 is allowed only for an uneven all-to-all",
        ),
        (
            replace(schedule_for(A2A, 2), splits=((0, 1), (1, 0))),
            "splits: a matrix of 2 by 2 is allowed only for an uneven all-to-all",
        ),
    ],
)
def test_a_schedule_that_is_not_its_matrix_is_refused(schedule: Schedule, line: str) -> None:
    if not line:
        validate(schedule, 0)
        return
    with pytest.raises(PlanError) as refused:
        validate(schedule, 0)
    assert line in str(refused.value)


@pytest.mark.parametrize(
    ("splits", "what"),
    [
        (((1,),), "its group has 1 ranks, but schedules exist for 2 to 1024"),
        (((1, 2), (3,)), "position 1 has 1 splits, one for each of 2 positions is needed"),
        (((1, -1), (3, 0)), f"position 0 has a split outside 0 to {MAX_LANE_BYTES} bytes"),
        (((1, 1), (MAX_LANE_BYTES + 1, 0)), f"position 1 has a split outside 0 to {MAX_LANE_BYTES} bytes"),
    ],
)
def test_a_matrix_that_is_none_is_refused(splits: Splits, what: str) -> None:
    with pytest.raises(PlanError) as refused:
        choose_for_splits(splits, Settings())
    assert str(refused.value) == (
        f"collective all_to_all with uneven splits: {what}; correct the split sizes of the trace"
    )


def test_a_block_that_nobody_owns_is_refused() -> None:
    """Tables from outside may name anything."""
    tables = []
    for table in UNEVEN_PAIR.tables:
        lanes = [replace(lane, entries=(replace(lane.entries[0], block=9),)) for lane in table]
        tables.append(tuple(lanes))
    with pytest.raises(PlanError, match="sends block 9, of which it has no data"):
        validate(replace(UNEVEN_PAIR, tables=tuple(tables)), 0)
