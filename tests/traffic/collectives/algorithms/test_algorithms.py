"""Every algorithm: what it moves against closed forms, who talks to whom, and that it does its collective."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etloop.traffic.collectives.algorithms.alltoall import base_channel
from etloop.traffic.collectives.algorithms.registry import ALGORITHMS
from etloop.traffic.collectives.core.hosts import binary_tree, hosts_of, mirrored_tree, ring_order, tree_place
from etloop.traffic.collectives.core.table import EntryKind, Schedule
from etloop.traffic.collectives.proof.outcome import share_bytes
from tests.support.places import SHARED
from tests.support.traffic.algorithm_cases import (
    CASES,
    Case,
    Shape,
    least_channels,
    moved,
    moved_each,
    nccl_p2p,
    shapes_of,
    whole,
)

ORACLE: Final = SHARED / "facts" / "schedules.json"
FULL: Final = os.environ.get("ETLOOP_FULL") == "1"
MIB: Final = 1 << 20
SIZES: Final = tuple(range(2, 65)) if FULL else (2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 33)
ODD_BYTES: Final = (1, 7, 4097, MIB + 3)
EVERY_CASE: Final = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def test_every_algorithm_has_its_closed_forms() -> None:
    served = {(name, collective) for name, a in ALGORITHMS.items() for collective in a.collectives}
    # An uneven all-to-all has no closed form but its matrix; point-to-point is a send and a receive.
    served -= {("p2p", "uneven all-to-all"), ("deepep", "uneven all-to-all"), ("p2p", "point-to-point")}
    assert {(case.algorithm, case.collective) for case in CASES} == served


@EVERY_CASE
def test_all_positions_together_send_what_the_closed_form_says(case: Case) -> None:
    for size in SIZES:
        for shape in shapes_of(case, size):
            schedule = case.build(shape, whole(channels=least_channels(case)))
            *odd, plenty = moved_each(schedule, (*ODD_BYTES, MIB))
            for op_bytes, totals in zip(ODD_BYTES, odd, strict=True):
                assert totals.sent_between() == totals.received_between(), shape
                assert int(totals.tx_bytes.sum()) == case.total(shape, op_bytes), (shape, op_bytes)
            # Many bytes leave no lane without any.
            assert int(plenty.tx_messages.sum()) == case.messages(shape), shape


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.algorithm != "gloo_ring"], ids=lambda case: case.name
)
def test_channels_split_the_bytes_and_change_nothing_else(case: Case) -> None:
    few_and_many = (5, 4 * MIB + 3)
    for size in (2, 5, 8, 24) if FULL else (2, 5, 8):
        for shape in shapes_of(case, size):
            for channels in (2, 4, 16):
                cutting = nccl_p2p(channels, 2) if case.algorithm == "p2p" else whole(channels=channels)
                schedule = case.build(shape, cutting)
                for op_bytes, totals in zip(few_and_many, moved_each(schedule, few_and_many), strict=True):
                    assert totals.sent_between() == totals.received_between(), shape
                    assert int(totals.tx_bytes.sum()) == case.total(shape, op_bytes), (shape, channels)


EVEN_LOADS: Final[dict[tuple[str, str], Callable[[int], int]]] = {
    # (algorithm, collective) -> bytes of one position in shares of B / n
    ("ring", "all-reduce"): lambda n: 2 * (n - 1),
    ("ring", "reduce-scatter"): lambda n: n - 1,
    ("ring", "all-gather"): lambda n: n * (n - 1),
    ("pat", "all-gather"): lambda n: n * (n - 1),
    ("pat", "reduce-scatter"): lambda n: n - 1,
    ("direct", "all-reduce"): lambda n: 2 * (n - 1),
    ("direct", "all-to-all"): lambda n: n - 1,
    ("bruck", "all-to-all"): lambda n: sum(way.bit_count() for way in range(n)),
    ("bruck", "all-gather"): lambda n: n * (n - 1),
    ("pairwise", "all-to-all"): lambda n: n - 1,
    ("scattered", "all-to-all"): lambda n: n - 1,
    ("p2p", "all-to-all"): lambda n: n - 1,
    ("gloo_ring", "all-reduce"): lambda n: 2 * (n - 1),
}


@pytest.mark.parametrize("key", EVEN_LOADS, ids="-".join)
def test_symmetric_algorithms_load_every_position_alike(key: tuple[str, str]) -> None:
    case = next(case for case in CASES if (case.algorithm, case.collective) == key)
    for size in SIZES:
        op_bytes = size * size * 16
        sent = moved(case.build(Shape(size), whole()), op_bytes).sent_by(size)
        assert set(sent) == {EVEN_LOADS[key](size) * op_bytes // size}, size


@pytest.mark.parametrize("size", [4, 8, 16, 64])
def test_halving_and_doubling_exchange_halves_with_ever_farther_peers(size: int) -> None:
    case = next(case for case in CASES if case.name == "halving_doubling-all-reduce")
    op_bytes = size * 1000
    pairs = moved(case.build(Shape(size), whole()), op_bytes).sent_between()
    for position in range(size):
        sent = {to: amount for (source, to), amount in pairs.items() if source == position}
        # B/2 to the nearest, B/4 to the next, ... in each of the two phases.
        expected = {
            position ^ (1 << step): (2, 2 * op_bytes >> (step + 1)) for step in range(size.bit_length() - 1)
        }
        assert sent == expected


def test_a_group_that_is_no_power_of_two_is_folded() -> None:
    case = next(case for case in CASES if case.name == "recursive_doubling-all-reduce")
    pairs = moved(case.build(Shape(6), whole()), 100).sent_between()
    # 0 and 2 hand their input to 1 and 3 and get the result; 1, 3, 4 and 5 exchange.
    exchanging = [(1, 3), (4, 5), (1, 4), (3, 5)]
    assert set(pairs) == {pair for a, b in [(0, 1), (2, 3), *exchanging] for pair in ((a, b), (b, a))}
    assert set(pairs.values()) == {(1, 100)}


def oracle_trees() -> list[dict[str, Any]]:
    if not ORACLE.exists():
        return []
    cases: list[dict[str, Any]] = json.loads(ORACLE.read_text())["double_binary_tree"]["cases"]
    return cases


@pytest.mark.skipif(not ORACLE.exists(), reason="the oracle schedules are not beside the repository")
@pytest.mark.parametrize("case", oracle_trees(), ids=lambda case: str(case["nodes"]))
def test_trees_are_those_of_the_oracle(case: dict[str, Any]) -> None:
    for tree, place_of in zip(case["trees"], (binary_tree, mirrored_tree), strict=True):
        places = [place_of(case["nodes"], node) for node in range(case["nodes"])]
        assert [place.parent for place in places] == tree["parent"]
        assert [list(place.children) for place in places] == tree["children"]
        assert places[tree["root"]].parent == -1
    (built,) = (one for one in CASES if one.name == "tree-all-reduce")
    tables = built.build(Shape(case["nodes"]), whole(channels=2)).tables
    for channel, tree in enumerate(case["trees"]):
        edges = {frozenset((node, parent)) for node, parent in enumerate(tree["parent"]) if parent >= 0}
        lanes = [(at, lane) for at, table in enumerate(tables) for lane in table if lane.channel == channel]
        assert {frozenset((at, lane.send_to)) for at, lane in lanes if lane.send_to >= 0} == edges
        assert {frozenset((at, lane.recv_from)) for at, lane in lanes if lane.recv_from >= 0} == edges


@given(st.integers(2, 200), st.integers(1, 16), st.integers(0, 15), st.booleans())
def test_a_tree_joins_all_positions_through_one_of_every_host(
    size: int, ranks_per_host: int, head: int, second: bool
) -> None:
    hosts = hosts_of(size, ranks_per_host)
    places = [tree_place(hosts, p, second=second, head=head) for p in range(size)]
    assert [place.parent for place in places].count(-1) == 1
    for position, place in enumerate(places):
        # Two in the tree and one in the chain.
        assert len(place.children) <= 3
        for child in place.children:
            assert places[child].parent == position
    between = {(position, c) for position, place in enumerate(places) for c in place.children}
    assert len(between) == size - 1
    crossing = [(p, c) for p, c in between if p // hosts.ranks_per_host != c // hosts.ranks_per_host]
    assert len(crossing) == hosts.count - 1
    if hosts.size % hosts.ranks_per_host == 0:
        assert {p % hosts.ranks_per_host for pair in crossing for p in pair} <= {head % hosts.ranks_per_host}


def test_both_trees_together_load_no_position_with_more_than_twice_the_buffer() -> None:
    case = next(case for case in CASES if case.name == "tree-all-reduce")
    for size in SIZES[1:]:
        op_bytes = 1000 * size
        sent = moved(case.build(Shape(size), whole(channels=2)), op_bytes).sent_by(size)
        assert sum(sent) == 2 * (size - 1) * op_bytes
        assert max(sent) <= 2 * op_bytes


@given(st.integers(2, 100), st.integers(1, 9), st.integers(0, 20))
def test_a_ring_visits_everyone_and_enters_and_leaves_hosts_by_one_rail(
    size: int, ranks_per_host: int, channel: int
) -> None:
    hosts = hosts_of(size, ranks_per_host)
    order = ring_order(hosts, channel)
    assert sorted(order) == list(range(size))
    links = list(pairwise(order))
    crossing = [(a, b) for a, b in links if a // hosts.ranks_per_host != b // hosts.ranks_per_host]
    assert len(crossing) == hosts.count - 1
    if hosts.size % hosts.ranks_per_host == 0:
        assert all(a % hosts.ranks_per_host == b % hosts.ranks_per_host for a, b in crossing)


def test_channels_use_all_rails_between_hosts() -> None:
    case = next(case for case in CASES if case.name == "ring-all-reduce")
    pairs = moved(case.build(Shape(32, 8), whole(channels=8)), 32 * MIB).sent_between()
    crossing = Counter(a % 8 for (a, b), _ in pairs.items() if a // 8 != b // 8)
    assert set(crossing) == set(range(8))
    assert all(a % 8 == b % 8 for a, b in pairs if a // 8 != b // 8)


def test_half_of_a_bidirectional_ring_runs_backwards() -> None:
    case = next(case for case in CASES if case.name == "bidirectional_ring-all-reduce")
    pairs = moved(case.build(Shape(5), whole(channels=2)), 5000).sent_between()
    assert {
        (b - a) % 5: sum(x for (s, d), (_, x) in pairs.items() if (d - s) % 5 == (b - a) % 5)
        for a, b in pairs
    } == {
        1: 20_000,
        4: 20_000,
    }


def sends_of(schedule: Schedule, position: int) -> dict[int, list[list[int]]]:
    """The messages that a position sends to each peer, each as the offsets of its blocks from the position."""
    found: dict[int, list[list[int]]] = {}
    for lane in schedule.tables[position]:
        message: list[int] = []
        for entry in lane.entries:
            if not entry.kind & EntryKind.SEND:
                continue
            message.append((entry.block - position) % schedule.size)
            if not entry.kind & EntryKind.MORE:
                found.setdefault(lane.send_to, []).append(message)
                message = []
    return found


@pytest.mark.parametrize(
    ("collective", "size", "aggregation", "expected"),
    [
        # Far dimension first; offsets of the blocks, message by message (collective, then peer's distance).
        ("all-gather", 8, 1, {4: [[0]], 6: [[0], [4]], 7: [[0], [2], [4], [6]]}),
        ("all-gather", 8, 8, {4: [[0]], 6: [[0, 4]], 7: [[0, 2, 4, 6]]}),
        ("all-gather", 8, 2, {4: [[0]], 6: [[0, 4]], 7: [[0, 2], [4, 6]]}),
        ("all-gather", 6, 1, {2: [[0]], 4: [[0]], 5: [[0], [2], [4]]}),
        ("reduce-scatter", 8, 1, {1: [[7], [3], [5], [1]], 2: [[6], [2]], 4: [[4]]}),
        ("reduce-scatter", 8, 8, {1: [[7, 3, 5, 1]], 2: [[6, 2]], 4: [[4]]}),
        ("reduce-scatter", 6, 1, {1: [[3], [5], [1]], 2: [[2]], 4: [[4]]}),
    ],
)
def test_pat_sends_what_nccl_was_seen_to_send(
    collective: str, size: int, aggregation: int, expected: dict[int, list[list[int]]]
) -> None:
    case = next(case for case in CASES if case.name == f"pat-{collective}")
    schedule = case.build(Shape(size), whole(aggregation=aggregation))
    for position in range(size):
        sent = {(to - position) % size: m for to, m in sends_of(schedule, position).items()}
        assert sent == expected


@pytest.mark.parametrize(
    ("size", "ranks_per_host", "channels", "expected"),
    [
        # One host: the round's number with its bits reversed.
        (8, 8, 8, [0, 4, 2, 6, 1, 5, 3, 7]),
        # Hosts of one: each round is a host of its own.
        (8, 1, 4, [0, 2, 1, 3, 0, 2, 1, 3]),
        # Eight ranks of a host share a channel: their batch.
        (16, 8, 2, [0] * 8 + [1] * 8),
    ],
)
def test_rounds_of_an_all_to_all_go_to_channels_by_bit_reversal(
    size: int, ranks_per_host: int, channels: int, expected: list[int]
) -> None:
    assert [base_channel(r, size, ranks_per_host, channels) for r in range(size)] == expected


def test_parts_of_a_transfer_lie_on_neighbouring_channels_and_batches_hold_eight_works_a_channel() -> None:
    case = next(case for case in CASES if case.name == "p2p-all-to-all")
    schedule = case.build(Shape(32), nccl_p2p(channels=4, parts=2))
    for table in schedule.tables:
        works = Counter((lane.channel, lane.batch) for lane in table if lane.send_to >= 0)
        assert max(works.values()) == 8
        for peer in {lane.send_to for lane in table} - {-1}:
            parts = [lane for lane in table if lane.send_to == peer]
            assert [lane.share for lane in sorted(parts, key=lambda lane: lane.share)] == [0, 1]
            first, second = sorted(parts, key=lambda lane: lane.share)
            assert second.channel == (first.channel + 1) % 4


@pytest.mark.parametrize("collective", ["all-to-all", "all-reduce"])
@pytest.mark.parametrize("shape", [Shape(8, 2), Shape(24, 4), Shape(24, 8), Shape(64, 8)])
def test_two_levels_talk_between_hosts_only_at_equal_places(collective: str, shape: Shape) -> None:
    algorithms = ["hierarchical"] if collective == "all-reduce" else ["hierarchical", "pxn"]
    for algorithm in algorithms:
        case = next(case for case in CASES if case.name == f"{algorithm}-{collective}")
        pairs = moved(case.build(shape, whole()), shape.size * 64).sent_between()
        g = shape.ranks_per_host
        crossing = {pair: amount for pair, amount in pairs.items() if pair[0] // g != pair[1] // g}
        assert all(a % g == b % g for a, b in crossing)
        if collective == "all-to-all":
            # Everything of g senders for one receiver goes over one link: collected, or message by message.
            messages = 1 if algorithm == "hierarchical" else g
            assert set(crossing.values()) == {(messages, g * 64)}
            assert len(crossing) == shape.size * (shape.hosts - 1)


def test_a_window_bounds_the_peers_that_are_served_side_by_side() -> None:
    case = next(case for case in CASES if case.name == "direct-all-to-all")
    for lanes in case.build(Shape(12), whole(window=3)).tables:
        waits = {lane.entries[0].after_lane: index for index, lane in enumerate(lanes)}
        assert waits == {-1: 2, **{i: i + 3 for i in range(8)}}


def test_gloo_sends_two_segments_ahead_of_what_it_has_taken_in() -> None:
    case = next(case for case in CASES if case.name == "gloo_ring-all-reduce")
    (lane,) = case.build(Shape(3), whole(segments=6)).tables[0]
    assert (lane.send_to, lane.recv_from) == (2, 1)
    kinds = ["S" if entry.kind & EntryKind.SEND else "R" for entry in lane.entries]
    assert "".join(kinds) == "SSRSRSRR" * 2
    # Reduces blocks 0, 1 (two segments each), then gathers from the one before it on.
    assert [e.block for e in lane.entries if e.kind & EntryKind.SEND] == [0, 1, 2, 3, 4, 5, 0, 1]
    assert [e.block for e in lane.entries if e.kind & EntryKind.RECV] == [2, 3, 4, 5, 0, 1, 2, 3]


@pytest.mark.parametrize(
    ("name", "shape", "channels", "why"),
    [
        (
            "bidirectional_ring-all-reduce",
            Shape(4),
            3,
            "needs an even number of channels, half for each direction; got 3",
        ),
        ("gloo_ring-all-reduce", Shape(4), 2, "needs 1 channel; got 2"),
        (
            "pxn-all-to-all",
            Shape(6, 4),
            1,
            "needs the same number of ranks on every host; got 6 ranks, 4 per host",
        ),
        (
            "pxn-all-to-all",
            Shape(4, 4),
            1,
            "needs 2 or more hosts; got 4 ranks, 4 per host",
        ),
        (
            "hierarchical-all-reduce",
            Shape(4, 1),
            1,
            "needs 2 or more hosts with 2 or more ranks each; got 4 ranks, 1 per host",
        ),
        ("ring-all-reduce", Shape(1), 1, "needs 2 or more ranks"),
    ],
)
def test_an_algorithm_says_why_it_cannot_serve_a_group(
    name: str, shape: Shape, channels: int, why: str
) -> None:
    case = next(case for case in CASES if case.name == name)
    request = case.request(shape, whole(channels=channels))
    assert ALGORITHMS[case.algorithm].limit(request) == why


@pytest.mark.parametrize(
    "name",
    [
        "ring-all-reduce",
        "tree-all-reduce",
        "halving_doubling-all-reduce",
        "pat-all-gather",
        "pat-reduce-scatter",
        "binomial-broadcast",
        "recursive_doubling-all-reduce",
    ],
)
def test_large_groups_move_exactly_their_bytes(name: str) -> None:
    case = next(case for case in CASES if case.name == name)
    size = 1024 if FULL or name == "ring-all-reduce" else 256
    shape, op_bytes = Shape(size), 10**9 + 7
    totals = moved(case.build(shape, whole()), op_bytes)
    assert int(totals.tx_bytes.sum()) == int(totals.rx_bytes.sum()) == case.total(shape, op_bytes)


def test_blocks_of_an_all_to_all_are_shares_of_the_buffer() -> None:
    case = next(case for case in CASES if case.name == "pairwise-all-to-all")
    pairs = moved(case.build(Shape(6), whole()), 1003).sent_between()
    assert pairs == {(a, b): (1, share_bytes(1003, b, 6)) for a in range(6) for b in range(6) if a != b}
