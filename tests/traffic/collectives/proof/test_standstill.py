"""What the validator passes comes to its end in the engine with bounded buffers, however many chunks an op has."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etloop.contract.base.errors import PlanError
from etloop.traffic.collectives.algorithms.gloo_ring import gloo_ring
from etloop.traffic.collectives.core.cutting import Cutting, Request
from etloop.traffic.collectives.core.table import Entry, EntryKind, Lane, Protocol, Schedule
from etloop.traffic.collectives.other_shapings import ShapingRequest, gloo_ring_cutting
from etloop.traffic.collectives.proof.validate import validate
from etloop.traffic.collectives.selection import CollectiveName
from etloop.traffic.simulation import SimulationSettings, simulate
from tests.support.traffic.algorithm_cases import CASES, Case, Shape, moved, nccl_p2p, nccl_ring, whole
from tests.support.traffic.assignments_by_hand import HandOp, assignment

FULL: Final = os.environ.get("ETLOOP_FULL") == "1"
CHUNK_BYTES: Final = 512
STANDSTILL: Final = "no event is left: the job waits for itself"
SEND, KEEP = EntryKind.SEND, EntryKind.RECV | EntryKind.COPY
FOLDED: Final = ("recursive_doubling-all-gather", "halving_doubling-reduce-scatter")


def case_of(name: str) -> Case:
    return next(case for case in CASES if case.name == name)


def outcome(schedule: Schedule, op_bytes: int) -> str:
    """What becomes of two ops of the schedule in virtual time: nothing if they end, with every byte, else why not."""
    name = CollectiveName.ALL_REDUCE
    ops = (HandOp(name, op_bytes), HandOp(name, op_bytes, (0,)))
    ran = simulate(
        assignment((ops,) * schedule.size, instead=schedule), SimulationSettings(limit_ns=10_000_000_000)
    )
    if not ran.failure:
        sent = moved(schedule, op_bytes).sent_by(schedule.size)
        assert len(ran.ops) == 2 * schedule.size
        assert all(row["wire_tx_bytes"] == sent[int(row["rank"])] for row in ran.ops)
    return ran.failure


def joined(table: tuple[Lane, ...]) -> tuple[Lane, ...]:
    """A table in which the lane that receives from a peer, and the one that only sends to it, are one."""
    back = next(
        (
            (i, j)
            for i, one in enumerate(table)
            for j, other in enumerate(table)
            if i < j
            and {one.send_to, other.send_to} == {one.recv_from, other.recv_from} != {-1}
            and -1 in (one.send_to, one.recv_from)
        ),
        None,
    )
    if back is None:
        return table
    kept, gone = back
    number = {i: i - (i > gone) for i in range(len(table))} | {gone: kept, -1: -1}
    lanes = []
    for i, lane in enumerate(table):
        entries = lane.entries if i != kept else (*lane.entries, *table[gone].entries)
        entries = tuple(replace(entry, after_lane=number[entry.after_lane]) for entry in entries)
        peers = (max(lane.send_to, table[gone].send_to), max(lane.recv_from, table[gone].recv_from))
        send_to, recv_from = peers if i == kept else (lane.send_to, lane.recv_from)
        lanes.append(replace(lane, send_to=send_to, recv_from=recv_from, entries=entries))
    return tuple(lane for i, lane in enumerate(lanes) if i != gone)


def folded_in_one_lane(name: str, size: int) -> Schedule:
    """What these tables were before folded positions got back their result by a lane of its own."""
    schedule = case_of(name).build(Shape(size), whole(chunk_bytes=CHUNK_BYTES))
    return replace(schedule, tables=tuple(joined(table) for table in schedule.tables))


@pytest.mark.parametrize("size", [3, 5, 6, 7])
@pytest.mark.parametrize("name", FOLDED)
def test_a_folded_table_that_stood_still_from_the_second_chunk_on_is_refused_at_any_size(
    name: str, size: int
) -> None:
    schedule = folded_in_one_lane(name, size)
    blocks = size if name.endswith("scatter") else 1
    assert outcome(schedule, CHUNK_BYTES * blocks) == ""
    assert outcome(schedule, 2 * CHUNK_BYTES * blocks) == STANDSTILL
    last = size.bit_length() - 1
    entry = next(i for i, entry in enumerate(schedule.tables[1][0].entries) if entry.after_lane >= 0)
    step = f"of {size}: position 1, lane 0, entry {entry}: waits for all of lane {last}"
    with pytest.raises(PlanError) as refused:
        validate(schedule, CHUNK_BYTES * blocks)
    assert f"{step}, which needs this one to go on" in str(refused.value)
    assert "when an op has several chunks; wait for an entry of that lane" in str(refused.value)
    with pytest.raises(PlanError) as refused:
        validate(schedule, 2 * CHUNK_BYTES * blocks)
    assert f"{step}; order the entries" in str(refused.value)


def test_the_way_round_is_named() -> None:
    with pytest.raises(PlanError) as refused:
        validate(folded_in_one_lane("recursive_doubling-all-gather", 5), 1)
    assert "position 1, lane 0, entry 1: waits for all of lane 2, which needs this one to go on" in str(
        refused.value
    )
    assert "(by way of position 1, lane 1)" in str(refused.value)


def three(middle: tuple[Lane, ...]) -> Schedule:
    """Position 0 sends to 1 and, when 1 has acknowledged all of that, to 2, which passes it on to 1."""
    first = Lane(0, 1, -1, 0, 1, (Entry(SEND, 0, 0),))
    second = Lane(0, 2, -1, 0, 1, (Entry(SEND, 0, 0, after_lane=0, after_entry=-1),))
    passed_on = (
        Lane(0, -1, 0, 0, 1, (Entry(KEEP, 0, 0),)),
        Lane(0, 1, -1, 0, 1, (Entry(SEND, 0, 0, 0, 0),)),
    )
    schedule = case_of("chain-broadcast").build(Shape(3), whole(chunk_bytes=CHUNK_BYTES, slots=2))
    return replace(schedule, algorithm="three", tables=((first, second), middle, passed_on))


def receives_in_order(turn: EntryKind) -> tuple[Lane, ...]:
    """Takes in what comes from 0 when what comes from 2 is here."""
    direct = Entry(KEEP | turn, 0, 0, after_lane=1, after_entry=0)
    return Lane(0, -1, 0, 0, 1, (direct,)), Lane(0, -1, 2, 0, 1, (Entry(KEEP, 0, 0),))


def with_bytes(schedule: Schedule, lane_bytes: int) -> Schedule:
    """Lanes that state their bytes: nothing else than these will ever be sent."""
    tables = tuple(tuple(replace(lane, lane_bytes=lane_bytes) for lane in table) for table in schedule.tables)
    return replace(schedule, tables=tables)


@pytest.mark.parametrize(
    ("turn", "chunks", "ends"),
    [
        # Two messages are granted ahead, so the sender has its acknowledgements before they are taken in.
        (EntryKind(0), 2, True),
        # Of three the last is granted when the first is taken in, which waits for the sender.
        (EntryKind(0), 5, False),
        # A receive in its turn grants nothing ahead.
        (EntryKind.IN_TURN, 1, False),
    ],
)
def test_an_acknowledgement_comes_when_there_is_room_and_it_is_its_turn(
    turn: EntryKind, chunks: int, *, ends: bool
) -> None:
    schedule = with_bytes(three(receives_in_order(turn)), chunks * CHUNK_BYTES)
    assert (outcome(schedule, 1) == "") is ends
    if ends:
        validate(schedule, 1, contents=False)
        return
    with pytest.raises(PlanError, match="position 0, lane"):
        validate(schedule, 1, contents=False)
    # Without bytes of its own the schedule is for every byte count, of which some stand still.
    with pytest.raises(PlanError, match="position 0, lane 1, entry 0: waits for all of lane 0"):
        validate(three(receives_in_order(turn)), CHUNK_BYTES, contents=False)


def test_a_lane_without_bytes_is_over_when_its_batch_begins_and_not_before() -> None:
    """Position 0 answers when the empty lane of its second batch is over; the first batch ends when it has answered."""
    answers = Entry(SEND, 0, 0, after_lane=2, after_entry=-1)
    zero = (
        Lane(0, -1, 1, 0, 1, (Entry(KEEP, 0, 0, after_lane=1, after_entry=0),), lane_bytes=8),
        Lane(0, 1, -1, 0, 1, (answers,), lane_bytes=8, channel=1),
        Lane(1, 1, -1, 0, 1, (Entry(SEND, 0, 0),), lane_bytes=0),
    )
    one = (
        Lane(0, 0, -1, 0, 1, (Entry(SEND, 0, 0),), lane_bytes=8),
        Lane(0, -1, 0, 0, 1, (Entry(KEEP, 0, 0),), lane_bytes=8, channel=1),
        Lane(1, -1, 0, 0, 1, (Entry(KEEP, 0, 0),), lane_bytes=0),
    )
    schedule = case_of("chain-broadcast").build(Shape(2), whole())
    schedule = replace(schedule, algorithm="two", tables=(zero, one), channels=2)
    assert outcome(schedule, 1) == STANDSTILL
    with pytest.raises(PlanError) as refused:
        validate(schedule, 1, contents=False)
    assert "two broadcast of 2: position 0, lane 1, entry 0: waits for all of lane 2" in str(refused.value)


def cuttings(case: Case, data: st.DataObject) -> Cutting:
    """A cut of some shaping, in chunks small enough that an op has many."""
    channels = data.draw(st.sampled_from([1, 2, 4]), "channels")
    chunk_bytes = data.draw(st.sampled_from([64, CHUNK_BYTES, 1 << 30]), "chunk bytes")
    slots = data.draw(st.sampled_from([2, 4, 8]), "slots")
    cut = whole(
        channels=channels,
        chunk_bytes=chunk_bytes,
        slots=slots,
        window=data.draw(st.sampled_from([0, 1, 3]), "window"),
        aggregation=data.draw(st.sampled_from([1, 2, 1 << 20]), "aggregation"),
    )
    kinds = [cut]
    if case.algorithm in ("tree", "ring", "chain"):
        kinds.append(
            replace(cut, protocol=data.draw(st.sampled_from([Protocol.LL, Protocol.LL128]), "lines"))
        )
    if case.algorithm in ("p2p", "linear"):
        kinds.append(nccl_p2p(channels, min(channels, 2)))
    if case.algorithm in ("ring", "bidirectional_ring"):
        # Two slices, of which the second one may be empty.
        kinds.append(replace(nccl_ring(channels), chunk_bytes=CHUNK_BYTES, min_slice_bytes=128))
    return data.draw(st.sampled_from(kinds), "cutting")


def shape_of(data: st.DataObject, most: int) -> Shape:
    size = data.draw(st.integers(2, most), "size")
    return Shape(size, data.draw(st.sampled_from([1, 2, 3, 4]), "ranks per host"))


@pytest.mark.timeout(900 if FULL else 120)
@settings(max_examples=300 if FULL else 80)
@given(st.sampled_from(CASES), st.data())
def test_what_is_proved_comes_to_its_end(case: Case, data: st.DataObject) -> None:
    shape, cutting = shape_of(data, 20 if FULL else 10), cuttings(case, data)
    if not case.serves(shape, cutting):
        return
    schedule = case.build(shape, cutting)
    op_bytes = data.draw(st.integers(0, 8 * CHUNK_BYTES), "bytes")
    validate(schedule, op_bytes)
    assert outcome(schedule, op_bytes) == ""


@pytest.mark.parametrize("size", [2, 3, 5, 8])
def test_segments_of_gloo_s_ring_come_to_their_end(size: int) -> None:
    for op_bytes in (0, 1, 5_000_003):
        cutting = gloo_ring_cutting(ShapingRequest("all-reduce", size, op_bytes))
        schedule = gloo_ring(Request("all-reduce", size, 1, cutting))
        validate(schedule, op_bytes)
        assert outcome(schedule, op_bytes) == ""


def changed_entry(schedule: Schedule, data: st.DataObject) -> Schedule:
    """A wait that asks for more, or is new; a message that is granted in its turn; two messages that change places."""
    position = data.draw(st.integers(0, schedule.size - 1), "position")
    table = list(schedule.tables[position])
    index = data.draw(st.integers(0, len(table) - 1), "lane")
    entries = list(table[index].entries)
    at = data.draw(st.integers(0, len(entries) - 1), "entry")
    match data.draw(st.sampled_from(["whole", "new", "turn", "swap", "batch"]), "change"):
        case "whole":
            entries[at] = replace(entries[at], after_entry=-1)
        case "new":
            other = data.draw(st.integers(0, len(table) - 1), "after lane")
            after = data.draw(st.integers(-1, len(table[other].entries) - 1), "after entry")
            entries[at] = replace(entries[at], after_lane=other, after_entry=after)
        case "turn":
            entries[at] = replace(entries[at], kind=entries[at].kind | EntryKind.IN_TURN)
        case "swap":
            entries[at - 1], entries[at] = entries[at], entries[at - 1]
        case _:
            table[index:] = [replace(lane, batch=lane.batch + 1) for lane in table[index:]]
    table[index] = replace(table[index], entries=tuple(entries))
    tables = list(schedule.tables)
    tables[position] = tuple(table)
    return replace(schedule, tables=tuple(tables))


@pytest.mark.timeout(900 if FULL else 120)
@settings(max_examples=800 if FULL else 80)
@given(st.sampled_from(CASES), st.data())
def test_what_stands_still_in_the_engine_is_refused(case: Case, data: st.DataObject) -> None:
    shape = shape_of(data, 7)
    cutting = whole(channels=data.draw(st.sampled_from([1, 2])), chunk_bytes=CHUNK_BYTES, slots=2, window=2)
    if not case.serves(shape, cutting):
        return
    schedule = case.build(shape, cutting)
    for _ in range(data.draw(st.integers(1, 3), "changes")):
        schedule = changed_entry(schedule, data)
    op_bytes = data.draw(st.integers(1, 6), "chunks") * CHUNK_BYTES * shape.size
    try:
        validate(schedule, op_bytes, contents=False)
    except PlanError:
        return
    assert outcome(schedule, op_bytes) == ""
