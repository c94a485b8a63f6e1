"""What tables can say beyond one lane after the other, carried out by the engine in virtual time on a bad network."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from etloop.contract.model.records import WaitKind
from etloop.traffic._native import StepTables
from etloop.traffic.collectives.algorithms.deepep import low_latency_dispatch, normal_dispatch
from etloop.traffic.collectives.core.columns import to_columns
from etloop.traffic.collectives.core.table import Entry, EntryKind, Handshake, Lane, Protocol, Schedule, Split
from etloop.traffic.collectives.proof.validate import validate
from etloop.traffic.collectives.selection import CollectiveName
from etloop.traffic.simulation import SimulationOutcome, SimulationSettings, simulate
from tests.support.traffic.algorithm_cases import (
    CASES,
    Case,
    Shape,
    least_channels,
    nccl_ring,
    shapes_of,
    whole,
)
from tests.support.traffic.assignments_by_hand import TRANSPORT, HandOp, assignment
from tests.support.traffic.one_channel_schedules import schedule_for

A2A = CollectiveName.ALL_TO_ALL
"""The name under which every schedule of this file runs; what it does, it says itself."""
BAD_NETWORK = SimulationSettings(
    seed=11, loss_per_million=30_000, duplicate_per_million=10_000, reorder_per_million=10_000
)
SEND, RECV, COPY = EntryKind.SEND, EntryKind.RECV, EntryKind.COPY


def ran(
    schedule: Schedule,
    op_bytes: int,
    *,
    qps: int = 1,
    split: bool = False,
    hosts: tuple[int, ...] | None = None,
) -> SimulationOutcome:
    """Two ops, one behind the other, by every rank."""
    ops = (HandOp(A2A, op_bytes), HandOp(A2A, op_bytes, (0,)))
    job = assignment(
        (ops,) * schedule.size,
        instead=schedule,
        qps_each=qps,
        hosts=hosts,
        transport=replace(TRANSPORT, split_data_on_qps=split),
    )
    outcome = simulate(job, BAD_NETWORK)
    assert outcome.failure == ""
    assert len(outcome.ops) == 2 * schedule.size
    return outcome


def sent(schedule: Schedule, op_bytes: int) -> tuple[int, int]:
    """Messages and wire bytes of one op."""
    _, _, _, messages, wire_bytes, _ = StepTables(to_columns((schedule,))).schedule_sends(0, op_bytes)
    return int(messages.sum()), int(wire_bytes.sum())


def assert_exact(outcome: SimulationOutcome, schedule: Schedule, op_bytes: int) -> None:
    messages, wire_bytes = sent(schedule, op_bytes)
    for way in ("tx", "rx"):
        assert outcome.ops[f"wire_{way}_bytes"].sum() == 2 * wire_bytes
        assert outcome.ops[f"{way}_messages"].sum() == 2 * messages
    data = outcome.flows[outcome.flows["sends_data"] == 1]
    assert data["tx_payload_bytes"].sum() == 2 * wire_bytes


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_algorithm_ends_with_exact_bytes_under_loss(case: Case) -> None:
    for shape in shapes_of(case, 6)[:1] + shapes_of(case, 8)[:1]:
        schedule = case.build(shape, whole(channels=least_channels(case), chunk_bytes=16 << 10))
        assert_exact(ran(schedule, 70_001), schedule, 70_001)


@pytest.mark.parametrize("protocol", Protocol)
@pytest.mark.parametrize("op_bytes", [4, 100_003, 1 << 20])
def test_protocols_weigh_on_the_wire_what_their_lines_do(protocol: Protocol, op_bytes: int) -> None:
    case = next(case for case in CASES if case.name == "ring-all-reduce")
    schedule = replace(case.build(Shape(4), nccl_ring(2)), protocol=protocol, slices=1, split=Split.CELLS)
    outcome = ran(schedule, op_bytes)
    assert_exact(outcome, schedule, op_bytes)
    data_bytes = 2 * 2 * 3 * op_bytes
    if protocol is Protocol.SIMPLE:
        assert outcome.ops["wire_tx_bytes"].sum() == data_bytes
    elif protocol is Protocol.LL:
        assert (
            2 * data_bytes
            <= outcome.ops["wire_tx_bytes"].sum()
            < 2 * data_bytes + 16 * outcome.ops["tx_messages"].sum()
        )
    else:
        assert outcome.ops["wire_tx_bytes"].sum() % 2048 == 0


@pytest.mark.parametrize("qps", [2, 3, 8])
def test_data_split_over_queue_pairs_arrives_part_by_part(qps: int) -> None:
    schedule = schedule_for(CollectiveName.ALL_REDUCE, 3)
    for op_bytes in (900, 400_000):
        outcome = ran(schedule, op_bytes, qps=qps, split=True)
        messages, wire_bytes = sent(schedule, op_bytes)
        assert outcome.ops["wire_rx_bytes"].sum() == 2 * wire_bytes
        assert outcome.ops["rx_messages"].sum() == 2 * messages
        data = outcome.flows[outcome.flows["sends_data"] == 1]
        # Every queue pair gets a part of every message, and be it an empty one.
        assert data["tx_messages"].sum() == 2 * messages * qps
        assert len(set(data["tx_messages"].tolist())) == 1


def test_whole_messages_take_queue_pairs_in_turn_without_the_split() -> None:
    schedule = schedule_for(CollectiveName.ALL_REDUCE, 3)
    outcome = ran(schedule, 400_000, qps=2)
    data = outcome.flows[outcome.flows["sends_data"] == 1]
    assert data["tx_messages"].sum() == 2 * sent(schedule, 400_000)[0]


def star(handshake: Handshake = Handshake.CTS) -> Schedule:
    """0 sends to 1, which passes on to 2 and 3 what has come, entry by entry and then all of it."""
    relay = (
        Lane(0, -1, 0, 0, 1, (Entry(RECV | COPY, 0, 0),)),
        Lane(0, 2, -1, 0, 1, (Entry(SEND, 0, 0, after_lane=0, after_entry=0),)),
        Lane(
            0,
            3,
            -1,
            0,
            1,
            (Entry(EntryKind(0), 0, 0, after_lane=1, after_entry=0), Entry(SEND, 0, 0, after_lane=0)),
        ),
    )
    leaf = Lane(0, -1, 1, 0, 1, (Entry(RECV | COPY, 0, 0),))
    root = Lane(0, 1, -1, 0, 1, (Entry(SEND, 0, 0),))
    return replace(
        schedule_for(CollectiveName.BROADCAST, 4),
        algorithm="star",
        tables=((root,), relay, (leaf,), (leaf,)),
        chunk_bytes=10_000,
        slots=2,
        handshake=handshake,
    )


@pytest.mark.parametrize("handshake", Handshake)
def test_a_receive_releases_the_same_piece_on_another_connection(handshake: Handshake) -> None:
    schedule = star(handshake)
    validate(schedule, 95_000)
    outcome = ran(schedule, 95_000)
    assert_exact(outcome, schedule, 95_000)
    first = outcome.ops[outcome.ops["op"] == 0]
    done = {int(row["rank"]): int(row["completed_ns"]) for row in first}
    began = {int(row["rank"]): int(row["first_tx_ns"]) for row in first}
    # 1 forwards piece by piece: it begins long before the root is through.
    assert began[1] < done[0]


def test_a_lane_that_waits_for_another_says_so() -> None:
    schedule = star()
    job = assignment(((HandOp(A2A, 95_000),),) * 4, instead=schedule)
    outcome = simulate(job, SimulationSettings(dying_port=0, dies_at_ns=0, limit_ns=50_000_000))
    waits = [tuple(row) for row in outcome.waits[["rank", "kind", "peer_rank"]].tolist()]
    assert (1, WaitKind.LANE, 0) in waits
    assert (1, WaitKind.DATA, 0) in waits


def test_one_sided_data_is_written_without_being_asked_for_and_closed_by_every_sender() -> None:
    counts = [[3, 0, 5, 1], [2, 2, 2, 2]]
    schedule = low_latency_dispatch(counts, 7_408)
    validate(schedule, 0)
    outcome = ran(schedule, 0, qps=2)
    assert_exact(outcome, schedule, 0)
    crossing = 5 + 1 + 2 + 2
    assert outcome.ops["wire_tx_bytes"].sum() == 2 * crossing * 7_408
    granting = outcome.flows[outcome.flows["sends_data"] == 0]
    assert granting["tx_packets"].sum() == 0


def test_tokens_are_passed_on_inside_a_host_when_they_have_come() -> None:
    tokens = [[1, 2, 3, 4], [4, 3, 2, 1], [2, 2, 2, 2], [0, 1, 0, 1]]
    hosts = [[3, 5], [5, 3], [2, 3], [1, 1]]
    schedule = normal_dispatch(tokens, hosts, 2, 8_000, 20)
    validate(schedule, 0)
    outcome = ran(schedule, 0)
    assert_exact(outcome, schedule, 0)


def test_what_is_written_before_the_op_begins_is_kept_for_it() -> None:
    """Rank 1 computes for a long time before its op; everything is there when it begins."""
    schedule = low_latency_dispatch([[4, 4], [0, 0]], 5_000)
    late = (HandOp("delay", 5_000_000), HandOp(A2A, 0, (0,)))
    job = assignment(((HandOp(A2A, 0),), late), instead=schedule)
    outcome = simulate(job, BAD_NETWORK)
    assert outcome.failure == ""
    by_rank = {int(row["rank"]): row for row in outcome.ops}
    assert by_rank[0]["completed_ns"] < 5_000_000 <= by_rank[1]["issued_ns"]
    assert by_rank[1]["completed_ns"] == by_rank[1]["issued_ns"]
    assert by_rank[1]["wire_rx_bytes"] == 4 * 5_000
    assert by_rank[1]["rx_messages"] == 4


def test_one_sided_lanes_work_inside_a_host_too() -> None:
    schedule = low_latency_dispatch([[1, 4, 2, 0], [3, 1, 1, 2]], 7_408)
    outcome = ran(schedule, 0, hosts=(0, 0))
    assert (
        outcome.ops["local_tx_bytes"].sum() == outcome.ops["local_rx_bytes"].sum() == 2 * (2 + 3 + 1) * 7_408
    )
    assert outcome.packets == 0


@pytest.mark.parametrize("hosts", [None, (0, 0, 0, 0)])
def test_channels_are_connections_of_their_own(hosts: tuple[int, ...] | None) -> None:
    case = next(case for case in CASES if case.name == "ring-all-reduce")
    schedule = case.build(Shape(4), nccl_ring(4))
    outcome = ran(schedule, 3 << 20, hosts=hosts)
    assert outcome.ops["tx_messages"].sum() == 2 * sent(schedule, 3 << 20)[0]
    if hosts is None:
        sending = outcome.flows[outcome.flows["sends_data"] == 1]
        assert len(np.unique(sending["connection"])) == 4 * 4
