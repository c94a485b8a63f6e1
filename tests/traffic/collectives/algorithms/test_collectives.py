"""Step tables of every collective: what they move in total, in which order, and which requests are refused."""

from __future__ import annotations

import json
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etloop.contract.base.errors import PlanError
from etloop.traffic._native import StepTables
from etloop.traffic.collectives.algorithms.alltoall import PEERS_PER_BATCH, p2p_order
from etloop.traffic.collectives.choice import Settings
from etloop.traffic.collectives.core.columns import to_columns
from etloop.traffic.collectives.core.table import Schedule
from etloop.traffic.collectives.proof.outcome import share_bytes
from etloop.traffic.collectives.selection import (
    BARRIER_BYTES,
    CollectiveName,
    choose_for,
    op_bytes_for,
)
from etloop.workload.trace.trace import CollectiveKind
from tests.support.places import SHARED
from tests.support.traffic.one_channel_schedules import SEND_RECV, schedule_for
from tests.support.traffic.whole_columns import unpacked

LARGE: Final = 1024
ORACLE: Final = SHARED / "facts" / "schedules.json"
BYTES: Final = st.one_of(st.integers(0, 5000), st.integers(0, 1 << 40))


def expected_bytes(name: CollectiveName, size: int, op_bytes: int) -> int:
    """What all positions send together."""
    match name:
        case CollectiveName.ALL_REDUCE | CollectiveName.BARRIER:
            return 2 * op_bytes * (size - 1)
        case CollectiveName.ALL_GATHER:
            return op_bytes * size * (size - 1)
        case CollectiveName.SCATTER:
            return op_bytes - op_bytes // size  # the root keeps the first block
        case _:
            return op_bytes * (size - 1)


def rows_of(schedule: Schedule, op_bytes: int) -> list[tuple[int, ...]]:
    """(position, send_to, recv_from, tx_messages, tx_bytes, rx_messages, rx_bytes) of every lane."""
    columns = StepTables(to_columns([schedule])).schedule_totals(0, op_bytes)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def sent_by_pair(schedule: Schedule, op_bytes: int) -> dict[tuple[int, int], tuple[int, int]]:
    """(messages, bytes) sent, by (source, destination)."""
    return {(row[0], row[1]): (row[3], row[4]) for row in rows_of(schedule, op_bytes) if row[1] >= 0}


def received_by_pair(schedule: Schedule, op_bytes: int) -> dict[tuple[int, int], tuple[int, int]]:
    """(messages, bytes) received, by (source, destination)."""
    return {(row[2], row[0]): (row[5], row[6]) for row in rows_of(schedule, op_bytes) if row[2] >= 0}


@given(st.sampled_from(CollectiveName), st.integers(2, 64), BYTES, st.sampled_from([1, 2, 4, 8, 64]))
def test_every_byte_sent_is_received_and_all_of_them_are_what_the_collective_takes(
    name: CollectiveName, size: int, op_bytes: int, ranks_per_host: int
) -> None:
    schedule = schedule_for(name, size, ranks_per_host=ranks_per_host)
    sent = sent_by_pair(schedule, op_bytes)
    assert sent == received_by_pair(schedule, op_bytes)
    total = sum(size for _, size in sent.values())
    if name is CollectiveName.ALL_TO_ALL:
        # The block a position keeps is its own, and blocks differ by a byte where n does not divide B.
        assert total == size * op_bytes - sum(share_bytes(op_bytes, p, size) for p in range(size))
    assert total == expected_bytes(name, size, op_bytes)


@given(st.integers(2, 64), st.integers(0, 1 << 30))
def test_rings_use_only_neighbours_and_load_them_nearly_evenly(size: int, block_bytes: int) -> None:
    op_bytes = block_bytes * size
    ring = {(p, (p + 1) % size) for p in range(size)}
    for name in (CollectiveName.ALL_REDUCE, CollectiveName.REDUCE_SCATTER, CollectiveName.ALL_GATHER):
        schedule = schedule_for(name, size)
        assert set(sent_by_pair(schedule, op_bytes)) == ring
    scattered = sent_by_pair(schedule_for(CollectiveName.REDUCE_SCATTER, size), op_bytes)
    assert {sent for _, sent in scattered.values()} == {block_bytes * (size - 1)}
    gathered = sent_by_pair(schedule_for(CollectiveName.ALL_GATHER, size), block_bytes)
    assert {sent for _, sent in gathered.values()} == {block_bytes * (size - 1)}


@given(st.integers(2, 40), st.integers(0, 1 << 30))
def test_all_to_all_gives_every_peer_its_block(size: int, op_bytes: int) -> None:
    sent = sent_by_pair(schedule_for(CollectiveName.ALL_TO_ALL, size), op_bytes)
    for source in range(size):
        for destination in range(size):
            if source != destination:
                assert sent[source, destination][1] == share_bytes(op_bytes, destination, size)


@pytest.mark.parametrize("name", [name for name in CollectiveName if name is not CollectiveName.ALL_TO_ALL])
def test_a_large_group_moves_exactly_its_bytes(name: CollectiveName) -> None:
    op_bytes = 10**9 + 7
    sent = sent_by_pair(schedule_for(name, LARGE), op_bytes)
    assert sum(size for _, size in sent.values()) == expected_bytes(name, LARGE, op_bytes)


def test_a_position_of_a_large_all_reduce_sends_its_share() -> None:
    tables = StepTables(to_columns([schedule_for(CollectiveName.ALL_REDUCE, LARGE)]))
    positions = np.arange(LARGE, dtype=np.int32)
    op_bytes = 4 << 30  # two full loops of 1024 chunks of 2 MiB
    tx_messages, tx_bytes, rx_messages, rx_bytes = tables.position_totals(
        np.zeros(LARGE, np.int32), positions, np.full(LARGE, op_bytes, np.int64)
    )
    assert set(tx_messages.tolist()) == set(rx_messages.tolist()) == {2 * 2 * 2 * (LARGE - 1)}
    assert set(tx_bytes.tolist()) == set(rx_bytes.tolist()) == {2 * (LARGE - 1) * op_bytes // LARGE}


def test_chains_run_in_the_ring_direction_from_and_to_position_0() -> None:
    broadcast = sent_by_pair(schedule_for(CollectiveName.BROADCAST, 4), 100)
    assert broadcast == {(0, 1): (1, 100), (1, 2): (1, 100), (2, 3): (1, 100)}
    reduction = sent_by_pair(schedule_for(CollectiveName.REDUCE, 4), 100)
    assert reduction == {(1, 2): (1, 100), (2, 3): (1, 100), (3, 0): (1, 100)}


def test_a_barrier_is_an_all_reduce_of_four_bytes_whatever_the_trace_says() -> None:
    assert op_bytes_for(CollectiveName.BARRIER, 0) == BARRIER_BYTES == 4
    assert op_bytes_for(CollectiveName.ALL_REDUCE, 0) == 0
    barrier = schedule_for(CollectiveName.BARRIER, 5)
    assert tuple(barrier.tables) == tuple(schedule_for(CollectiveName.ALL_REDUCE, 5).tables)
    assert sum(sent for _, sent in sent_by_pair(barrier, BARRIER_BYTES).values()) == 2 * 4 * BARRIER_BYTES


def oracle_orders() -> list[dict[str, Any]]:
    if not ORACLE.exists():
        return []
    cases: list[dict[str, Any]] = json.loads(ORACLE.read_text())["p2p_order"]["cases"]
    return cases


@pytest.mark.skipif(not ORACLE.exists(), reason="the oracle schedules are not beside the repository")
@pytest.mark.parametrize(
    "case", oracle_orders(), ids=lambda case: f"{case['ranks']}by{case['ranks_per_host']}"
)
def test_peers_come_in_the_order_of_the_oracle(case: dict[str, Any]) -> None:
    for position in range(case["ranks"]):
        order = p2p_order(position, case["ranks"], case["ranks_per_host"])
        assert [send_to for send_to, _ in order] == case["send"][position]
        assert [recv_from for _, recv_from in order] == case["recv"][position]
    built = schedule_for(CollectiveName.ALL_TO_ALL, case["ranks"], ranks_per_host=case["ranks_per_host"])
    for position, table in enumerate(built.tables):
        # Round 0 is the rank itself, which sends nothing.
        assert [lane.send_to for lane in table if lane.send_to >= 0] == case["send"][position][1:]
        assert [lane.recv_from for lane in table if lane.recv_from >= 0] == case["recv"][position][1:]
        assert [lane.batch for lane in table] == sorted(lane.batch for lane in table)


def test_sixteen_hosts_of_one_rank_are_visited_in_quadratic_order() -> None:
    order = [send_to for send_to, _ in p2p_order(0, 16, 1)]
    assert order == [0, 1, 3, 6, 10, 15, 5, 12, 4, 13, 7, 2, 14, 11, 9, 8]


@given(st.integers(2, 96), st.integers(1, 16))
def test_every_round_pairs_all_positions(size: int, ranks_per_host: int) -> None:
    orders = [p2p_order(position, size, ranks_per_host) for position in range(size)]
    for position, order in enumerate(orders):
        assert order[0] == (position, position)
        assert sorted(send_to for send_to, _ in order) == list(range(size))
        for number, (send_to, _) in enumerate(order):
            assert orders[send_to][number][1] == position


def test_eight_peers_are_served_side_by_side_and_both_ends_agree_on_the_batch() -> None:
    schedule = schedule_for(CollectiveName.ALL_TO_ALL, 20, ranks_per_host=4)
    sends: dict[tuple[int, int], int] = {}
    receives: dict[tuple[int, int], int] = {}
    for position, table in enumerate(schedule.tables):
        sends |= {(position, lane.send_to): lane.batch for lane in table if lane.send_to >= 0}
        receives |= {(lane.recv_from, position): lane.batch for lane in table if lane.recv_from >= 0}
        batches = [lane.batch for lane in table if lane.send_to >= 0]
        assert [batches.count(batch) for batch in range(3)] == [PEERS_PER_BATCH, PEERS_PER_BATCH, 3]
    assert sends == receives


def test_the_numbers_of_collectives_are_the_trace_schema_s() -> None:
    for name in CollectiveName:
        assert CollectiveKind[name.name] == int(name)


SUPPORTED: Final = (
    "all_reduce (0), reduce (1), all_gather (2), gather (3), scatter (4), broadcast (5), all_to_all (6), "
    "reduce_scatter (7), reduce_scatter_block (8), barrier (9)"
)


@pytest.mark.parametrize(
    ("collective", "size", "ranks_per_host", "text"),
    [
        (
            99,
            4,
            1,
            f"collective 99: it has no schedule; use one of {SUPPORTED}, or express it as sends and receives",
        ),
        (
            0,
            1,
            1,
            (
                "collective all_reduce: its group has 1 ranks, but schedules exist for 2 to 16384; "
                "remove collectives over one rank, or split a larger group"
            ),
        ),
        (
            5,
            16385,
            0,
            (
                "collective broadcast: its group has 16385 ranks, but schedules exist for 2 to 16384; "
                "remove collectives over one rank, or split a larger group\n"
                "collective broadcast: ranks_per_host is 0; write the number of ranks per host, at least 1"
            ),
        ),
    ],
)
def test_what_has_no_schedule_is_refused_with_what_has(
    collective: int, size: int, ranks_per_host: int, text: str
) -> None:
    with pytest.raises(PlanError) as refused:
        choose_for(collective, size, 0, Settings(), ranks_per_host=ranks_per_host)
    assert str(refused.value) == text


def test_columns_keep_every_level_of_several_schedules() -> None:
    schedules = [
        SEND_RECV,
        schedule_for(CollectiveName.ALL_TO_ALL, 3),
        schedule_for(CollectiveName.ALL_REDUCE, 2),
    ]
    columns = unpacked(to_columns(schedules))
    assert columns.table_offsets.tolist() == [0, 2, 5, 7]
    assert columns.lane_offsets.tolist() == [0, 1, 2, 6, 10, 14, 15, 16]
    table = 0
    for schedule in schedules:
        for lanes in schedule.tables:
            for index, lane in enumerate(lanes, int(columns.lane_offsets[table])):
                assert columns.lane_send_to[index] == lane.send_to
                assert columns.lane_part[index] == lane.part
                first = int(columns.lane_first_entry[index])
                last = first + int(columns.lane_entry_count[index])
                assert columns.entry_kind[first:last].tolist() == [int(entry.kind) for entry in lane.entries]
                assert columns.entry_chunk[first:last].tolist() == [entry.chunk for entry in lane.entries]
            table += 1
