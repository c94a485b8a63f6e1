"""The oracles of the first-light tests, on cases that fit on paper: what they accept, and that they can refuse."""

from __future__ import annotations

from dataclasses import asdict, replace
from fractions import Fraction
from pathlib import Path

import pytest

from tests.support.first_light.bytes_oracle import (
    pair_bytes,
    received_by,
    ring_blocks,
    ring_of,
    sent_by,
    total_bytes,
)
from tests.support.first_light.order_oracle import Measured, order_mistakes
from tests.support.first_light.trace_oracle import (
    Job,
    Node,
    Op,
    Reading,
    delay_ns,
    framed,
    network_ops,
    read_job,
    read_rank,
    scaled,
    written,
)

COMP, SEND, RECV, COLLECTIVE = 4, 5, 6, 7
PLAIN = Reading()


def op(rank: int, kind: str, members: tuple[int, ...], size_bytes: int) -> Op:
    return Op(rank, 0, kind, members, "", size_bytes, size_bytes)


@pytest.mark.parametrize(
    ("kind", "wanted", "why"),
    [
        ("all_reduce", 2 * 48 * 2, "every byte goes round once to be reduced and once to be spread"),
        ("all_gather", 48 * 3 * 2, "every shard goes to the two others"),
        ("reduce_scatter", 48 * 2, "every block passes through the two others"),
        ("all_to_all", 48 * 2, "every rank sends two of its three blocks"),
        ("broadcast", 48 * 2, "two hops along the chain"),
        ("reduce", 48 * 2, "two hops along the chain"),
    ],
)
def test_totals_are_the_sum_over_pairs(kind: str, wanted: int, why: str) -> None:
    members = (4, 9, 2)
    ops = [op(rank, kind, members, 48) for rank in members]
    assert total_bytes(kind, 48, 3) == wanted, why
    assert sum(pair_bytes(ops).values()) == wanted, why
    assert sum(received_by(ops).values()) == wanted


def test_a_ring_sends_to_the_next_member_in_the_order_of_the_group() -> None:
    assert set(pair_bytes(op(rank, "all_gather", (4, 9, 2), 1) for rank in (4, 9, 2))) == {
        (4, 9),
        (9, 2),
        (2, 4),
    }


@pytest.mark.parametrize(
    ("members", "ranks_per_host", "wanted", "why"),
    [
        (tuple(range(6)), 1, (0, 1, 2, 3, 4, 5), "one rank a host: as they are"),
        (tuple(range(8)), 2, (0, 1, 3, 2, 4, 5, 7, 6), "1 and 3, 2 and 4 ...: the same place in their hosts"),
        ((0, 2, 4, 6), 2, (0, 2, 4, 6), "one member a host"),
        ((0, 1, 2, 4), 2, (0, 1, 2, 4), "hosts with unequal numbers of members"),
        ((0, 2, 1, 3), 2, (0, 2, 1, 3), "members that come back to a host"),
    ],
)
def test_a_ring_keeps_rails(
    members: tuple[int, ...], ranks_per_host: int, wanted: tuple[int, ...], why: str
) -> None:
    assert ring_of(Op(members[0], 0, "all_reduce", members, "", 1, 1, ranks_per_host)) == wanted, why


def test_a_message_goes_from_its_source_to_its_destination() -> None:
    assert sent_by(op(1, "send", (1, 5), 100)) == {5: 100}
    assert sent_by(op(5, "receive", (1, 5), 100)) == {}
    assert received_by([op(1, "send", (1, 5), 100)]) == {(5, "receive"): 100}


@pytest.mark.parametrize("size_bytes", [1, 15, 16, 100, 1 << 20, (8 << 20) + 1, 3 * (8 << 20) + 12345])
def test_the_blocks_of_a_ring_are_all_of_the_buffer(size_bytes: int) -> None:
    assert sum(ring_blocks(size_bytes, 4)) == size_bytes
    ops = [op(rank, "all_reduce", (0, 1, 2, 3), size_bytes) for rank in range(4)]
    assert sum(pair_bytes(ops).values()) == total_bytes("all_reduce", size_bytes, 4)


def test_equal_blocks_give_every_neighbour_the_same() -> None:
    ops = [op(rank, "all_reduce", (0, 1, 2, 3), 1 << 20) for rank in range(4)]
    assert set(pair_bytes(ops).values()) == {2 * 3 * (1 << 18)}


@pytest.mark.parametrize(
    ("size_bytes", "scale", "unit_bytes", "wanted", "why"),
    [
        (1000, Fraction(1), 4, 1000, "scale 1 changes nothing"),
        (1002, Fraction(1), 4, 1002, "not even to whole words"),
        (1000, Fraction(1, 3), 4, 332, "down to whole words"),
        (1000, Fraction(1, 1000), 32, 32, "what was sent is still sent"),
        (0, Fraction(1, 2), 4, 0, "nothing stays nothing"),
    ],
)
def test_sizes_shrink(size_bytes: int, scale: Fraction, unit_bytes: int, wanted: int, why: str) -> None:
    assert scaled(size_bytes, scale, unit_bytes) == wanted, why


@pytest.mark.parametrize(
    ("kind", "duration_us", "num_ops", "wanted_ns", "why"),
    [
        (COMP, 7, 10**6, 3500, "a recorded duration wins"),
        (COMP, 0, 10**6, 500, "10^6 operations at 10^12 a second, halved"),
        (COMP, 0, 3000, 2, "one nanosecond and a half is rounded up"),
        (COLLECTIVE, 7, 0, 0, "what a trace recorded there is waiting"),
    ],
)
def test_delays(kind: int, duration_us: int, num_ops: int, wanted_ns: int, why: str) -> None:
    node = Node(1, kind, (), duration_us, {"num_ops": num_ops})
    assert delay_ns(node, Reading(time_scale=Fraction(1, 2), flops=10**12)) == wanted_ns, why


def test_frames_are_cut_at_their_lengths() -> None:
    assert list(framed(b"\x02ab\x00" + b"\x80\x01" + b"c" * 128)) == [b"ab", b"", b"c" * 128]


def test_operations_of_a_trace() -> None:
    coll = {"comm_type": 7, "comm_size": 1000, "pg_name": "g"}
    rank_0 = (
        Node(1, COLLECTIVE, (), 0, coll),
        Node(2, COLLECTIVE, (), 0, coll | {"is_cpu_op": True}),
        Node(3, COLLECTIVE, (), 0, coll | {"pg_name": "alone"}),
        Node(4, SEND, (), 0, {"comm_dst": 1, "comm_size": 10}),
    )
    rank_1 = (Node(1, COLLECTIVE, (), 0, coll), Node(5, RECV, (), 0, {"comm_src": 0, "comm_size": 10}))
    job = Job((rank_0, rank_1), {"g": (1, 0), "alone": (0,)})
    assert network_ops(job, Reading(element_bytes=2, bytes_scale=Fraction(1, 3))) == (
        Op(0, 1, "reduce_scatter", (1, 0), "g", 664, 2000),
        Op(0, 4, "send", (0, 1), "", 4, 20),
        Op(1, 1, "reduce_scatter", (1, 0), "g", 664, 2000),
        Op(1, 5, "receive", (0, 1), "", 4, 20),
    )


# ---- order: 1 (100..200) -> compute 2 (5 us) -> 3; 4 follows 1 on its communicator

NODES = (
    Node(3, COLLECTIVE, (2, 1), 0, {}),
    Node(1, COLLECTIVE, (), 0, {}),
    Node(2, COMP, (1, 77), 5, {}),
    Node(4, COLLECTIVE, (), 0, {}),
    Node(6, COMP, (4,), 30, {}),
)
FIRST = (
    Measured(1, "g", 0, 0, 100, 200),
    Measured(3, "", 0, 5200, 5300, 5400),
    Measured(4, "g", 1, 200, 250, 6000),
)
SECOND = tuple(
    replace(op, intended_ns=due, issued_ns=due, completed_ns=end)
    for op, due, end in zip(FIRST, (36000, 41100, 36100), (36100, 42000, 50000), strict=True)
)


def mistakes(*iterations: tuple[Measured, ...]) -> list[str]:
    return order_mistakes(0, NODES, [{op.node_id: op for op in measured} for measured in iterations], PLAIN)


def test_a_run_in_order_is_accepted() -> None:
    assert mistakes(FIRST, SECOND) == []


def with_op(index: int, field: str, time_ns: int) -> tuple[Measured, ...]:
    changed = asdict(FIRST[index]) | {field: time_ns}
    return tuple(Measured(**changed) if at == index else op for at, op in enumerate(FIRST))


@pytest.mark.parametrize(
    ("measured", "wanted"),
    [
        (
            with_op(1, "issued_ns", 5199),
            "rank 0 node 3 iteration 0: issued at 5199, its dependencies ended at 5200",
        ),
        (with_op(1, "intended_ns", 5100), "node 3 iteration 0: due at 5100, its dependencies ended at 5200"),
        (with_op(1, "intended_ns", 5300), "node 3 iteration 0: due at 5300, its dependencies ended at 5200"),
        (with_op(0, "completed_ns", 251), "node 4 iteration 0: issued at 250, its dependencies ended at 251"),
        (with_op(0, "issued_ns", 201), "node 1 iteration 0: completed at 200, issued at 201"),
    ],
)
def test_an_operation_out_of_order_is_named(measured: tuple[Measured, ...], wanted: str) -> None:
    assert any(wanted in mistake for mistake in mistakes(measured))


def test_two_swapped_rows_are_found() -> None:
    first, third, fourth = FIRST
    swapped = (replace(third, node_id=1), replace(first, node_id=3), fourth)
    assert len(mistakes(swapped)) >= 2


def test_an_iteration_does_not_begin_before_the_last_one_ended() -> None:
    early = tuple(replace(op, intended_ns=op.intended_ns - 1, issued_ns=op.issued_ns - 1) for op in SECOND)
    found = mistakes(FIRST, early)
    assert "rank 0 node 1 iteration 1: issued at 35999, its dependencies ended at 36000" in found


def test_a_job_is_read_from_files(tmp_path: Path) -> None:
    (tmp_path / "w.0.et").write_bytes(b"\x00" + b"\x04\x08\x01\x18\x04" + b"\x06\x08\x02\x18\x04\x2a\x00")
    (tmp_path / "w.json").write_text('{"g": [0]}')
    job = read_job(tmp_path / "w")
    assert job.groups == {"g": (0,)}
    assert job.ranks == ((Node(1, COMP, (), 0, {}), Node(2, COMP, (), 0, {})),)


def test_what_is_written_is_read_again() -> None:
    attributes = {"comm_size": 1 << 40, "pg_name": "g" * 200, "is_cpu_op": False}
    nodes = (Node(300, COLLECTIVE, (1, 1 << 60), 0, attributes), Node(1, COMP, (), 1 << 33, {}))
    assert read_rank(written(nodes)) == nodes
