"""Every algorithm at 1,024 positions: tables of some positions, as an agent would be sent them, held against closed forms."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import pairwise
from typing import Final

import numpy as np
import pytest

from etloop.traffic._native import StepTables
from etloop.traffic.collectives.algorithms.alltoall import p2p_order, quadratic_order
from etloop.traffic.collectives.core.columns import to_columns
from etloop.traffic.collectives.core.hosts import TreePlace, binary_tree, mirrored_tree
from etloop.traffic.collectives.core.table import EntryKind, Schedule
from etloop.traffic.collectives.proof.validate import validate
from tests.support.traffic.algorithm_cases import CASES, Case, Moved, Shape, least_channels, whole

FULL: Final = os.environ.get("ETLOOP_FULL") == "1"
SIZE: Final = 1024
OP_BYTES: Final = 1 << 24
SAMPLE: Final = (0, 7, 512, 777)
UNEVEN_LOADS: Final = ("tree", "chain", "binomial", "linear")
"""Positions differ, and their tables are small: all of them are added up."""
AT_1024: Final = [case for case in CASES if case.collective != "barrier"]


def shape_of(case: Case) -> Shape:
    """Hosts of eight, or of one for algorithms that know no others."""
    cutting = whole(channels=least_channels(case))
    return next(shape for each in (8, 1) if case.serves(shape := Shape(SIZE, each), cutting))


def moved_by(schedule: Schedule, positions: list[int]) -> Moved:
    return Moved(*StepTables(to_columns([schedule], [positions])).schedule_totals(0, OP_BYTES))


def with_some_peers(schedule: Schedule) -> list[int]:
    """The sample, and of each of it the first, a middle and the last peer that it sends to."""
    tables = to_columns([schedule], [SAMPLE])
    positions = set(SAMPLE)
    for first, last in pairwise(tables.lane_offsets.tolist()):
        to = [peer for peer in tables.lane_send_to[first:last].tolist() if peer >= 0]
        positions |= {to[at] for at in (0, len(to) // 2, -1) if to}
    return sorted(positions)


@pytest.mark.parametrize("case", AT_1024, ids=lambda case: case.name)
def test_sampled_positions_move_what_the_closed_form_says_and_their_peers_agree(case: Case) -> None:
    shape = shape_of(case)
    schedule = case.build(shape, whole(channels=least_channels(case)))
    total = case.total(shape, OP_BYTES)
    everybody = case.algorithm in UNEVEN_LOADS
    positions = list(range(SIZE)) if everybody else with_some_peers(schedule)
    some = moved_by(schedule, positions)
    sent, received = some.sent_by(SIZE), some.received_by(SIZE)
    if everybody:
        assert sum(sent) == sum(received) == total
    else:
        assert total % SIZE == 0
        assert {sent[position] for position in positions} == {total // SIZE}
        assert {received[position] for position in positions} == {total // SIZE}
    here = set(positions)
    leaving = {pair: moved for pair, moved in some.sent_between().items() if pair[1] in here}
    arriving = {pair: moved for pair, moved in some.received_between().items() if pair[0] in here}
    assert leaving == arriving
    assert len(leaving) >= len(SAMPLE) - 1, "there are such connections"


FEW_MESSAGES: Final = (
    *("tree-all-reduce", "chain-broadcast", "chain-reduce"),
    *("binomial-broadcast", "binomial-reduce", "binomial-gather", "binomial-scatter"),
    *("linear-gather", "linear-scatter"),
)
MANY_MESSAGES: Final = ("recursive_doubling-all-reduce",)
"""Of those in which every position sends some; where it sends to or for all others, a million messages are too many to follow."""


@pytest.mark.timeout(900 if FULL else 120)
@pytest.mark.parametrize("name", [*FEW_MESSAGES, *(MANY_MESSAGES if FULL else ())])
def test_the_validator_passes_what_few_messages_do(name: str) -> None:
    case = next(case for case in AT_1024 if case.name == name)
    schedule = case.build(shape_of(case), whole())
    validate(schedule, 8 if case.collective in ("all-gather", "gather") else 8 * SIZE)


@pytest.mark.skipif(not FULL, reason="a million lanes of every algorithm; ETLOOP_FULL=1 walks them")
@pytest.mark.parametrize("case", AT_1024, ids=lambda case: case.name)
def test_both_ends_of_every_connection_agree(case: Case) -> None:
    shape = shape_of(case)
    every = moved_by(case.build(shape, whole(channels=least_channels(case))), list(range(SIZE)))
    assert int(every.tx_bytes.sum()) == int(every.rx_bytes.sum()) == case.total(shape, OP_BYTES)
    sends, receives = every.send_to >= 0, every.recv_from >= 0
    sent = np.stack([every.position, every.send_to, every.tx_messages, every.tx_bytes])[:, sends]
    received = np.stack([every.recv_from, every.position, every.rx_messages, every.rx_bytes])[:, receives]
    np.testing.assert_array_equal(sent[:, np.lexsort(sent)], received[:, np.lexsort(received)])


@pytest.mark.parametrize("position", SAMPLE)
def test_a_ring_goes_through_its_chunks_backwards(position: int) -> None:
    """NCCL device/all_reduce.h: chunk r-1 goes out first, r becomes final, r+1 is taken in last."""
    case = next(case for case in CASES if case.name == "ring-all-reduce")
    (lane,) = case.build(Shape(SIZE), whole()).tables[position]
    assert (lane.send_to, lane.recv_from) == ((position + 1) % SIZE, (position - 1) % SIZE)
    assert [entry.chunk for entry in lane.entries] == [(position - 1 - j) % SIZE for j in range(2 * SIZE - 1)]
    assert lane.entries[0].kind == EntryKind.SEND
    assert all(entry.kind & EntryKind.REDUCE for entry in lane.entries[1:SIZE])
    assert not any(entry.kind & EntryKind.REDUCE for entry in lane.entries[SIZE:])
    assert lane.entries[-1].kind == EntryKind.RECV | EntryKind.COPY


def test_rounds_of_an_all_to_all_pair_all_positions_in_quadratic_order() -> None:
    orders = np.array([p2p_order(position, SIZE, 8) for position in range(SIZE)])
    sends, receives = orders[..., 0], orders[..., 1]
    everybody = np.arange(SIZE)
    for number in range(SIZE):
        np.testing.assert_array_equal(receives[sends[:, number], number], everybody)
    np.testing.assert_array_equal(np.sort(sends, axis=1), np.broadcast_to(everybody, (SIZE, SIZE)))
    # Groups of eight are visited at distances 0, 1, 3, 6, ..., modulo their number, a power of two.
    groups = [number * (number + 1) // 2 % (SIZE // 8) for number in range(SIZE // 8)]
    assert list(quadratic_order(SIZE // 8)) == groups
    np.testing.assert_array_equal(sends[0, ::8] // 8, groups)


@pytest.mark.parametrize("place_of", [binary_tree, mirrored_tree])
def test_trees_join_all_and_are_as_deep_as_their_number_asks(
    place_of: Callable[[int, int], TreePlace],
) -> None:
    places = [place_of(SIZE, node) for node in range(SIZE)]
    parents = [place.parent for place in places]
    assert parents.count(-1) == 1
    assert all(parents[child] == node for node, place in enumerate(places) for child in place.children)
    assert sum(len(place.children) for place in places) == SIZE - 1
    assert max(len(place.children) for place in places) == 2
    depth = 0
    for leaf in range(SIZE):
        node, hops = leaf, 0
        while parents[node] >= 0:
            node, hops = parents[node], hops + 1
        depth = max(depth, hops)
    assert depth == 10
