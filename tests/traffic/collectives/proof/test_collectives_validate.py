"""Schedules are proved before they are trusted: ours pass at any byte count, and a broken one is named by its step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etloop.contract.base.errors import PlanError
from etloop.traffic.collectives.core.table import Entry, EntryKind, Lane, Schedule
from etloop.traffic.collectives.proof.validate import MAX_PROBLEMS, validate
from etloop.traffic.collectives.selection import CollectiveName
from tests.support.traffic.one_channel_schedules import SEND_RECV, schedule_for

BYTES = st.one_of(
    st.integers(0, 300),
    st.integers(0, 200_000),
    st.integers(0, 3 << 20),
    st.builds(lambda chunks, more: max(0, (chunks << 20) + more), st.integers(0, 8), st.integers(-3, 3)),
)


@settings(max_examples=60)
@given(st.sampled_from(CollectiveName), st.integers(2, 64), BYTES, st.sampled_from([1, 2, 4, 8]))
def test_our_schedules_do_their_collective(
    name: CollectiveName, size: int, op_bytes: int, ranks_per_host: int
) -> None:
    validate(schedule_for(name, size, ranks_per_host=ranks_per_host), op_bytes)


@pytest.mark.parametrize("name", CollectiveName)
@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("op_bytes", [0, 1, 2, 40 << 20])
def test_the_smallest_groups_do_their_collective(name: CollectiveName, size: int, op_bytes: int) -> None:
    validate(schedule_for(name, size), op_bytes)


@given(BYTES)
def test_a_send_arrives(op_bytes: int) -> None:
    validate(SEND_RECV, op_bytes)


@settings(max_examples=40)
@given(st.sampled_from(CollectiveName), st.integers(2, 12), st.integers(1, 1 << 22))
def test_room_for_a_chunk_and_one_message_more_is_enough_for_progress(
    name: CollectiveName, size: int, op_bytes: int
) -> None:
    # A ring fills `slices` slots before it first receives, and then needs one to pass on what it received.
    schedule = schedule_for(name, size)
    validate(replace(schedule, slots=schedule.slices + 1), op_bytes)


def refused(schedule: Schedule, op_bytes: int = 1 << 16) -> list[str]:
    """The lines of the error that `validate` raises."""
    with pytest.raises(PlanError) as error:
        validate(schedule, op_bytes)
    return str(error.value).splitlines()


def with_lane(schedule: Schedule, position: int, lane: int, change: Callable[[Lane], Lane]) -> Schedule:
    """A schedule with one lane changed."""
    table = list(schedule.tables[position])
    table[lane] = change(table[lane])
    tables = list(schedule.tables)
    tables[position] = tuple(table)
    return replace(schedule, tables=tuple(tables))


def with_entry(schedule: Schedule, position: int, entry: int, change: Callable[[Entry], Entry]) -> Schedule:
    """A schedule with one entry of the first lane of a position changed."""

    def changed(lane: Lane) -> Lane:
        entries = list(lane.entries)
        entries[entry] = change(entries[entry])
        return replace(lane, entries=tuple(entries))

    return with_lane(schedule, position, 0, changed)


RING = schedule_for(CollectiveName.ALL_REDUCE, 4)
GATHER = schedule_for(CollectiveName.ALL_GATHER, 4)
EXCHANGE = schedule_for(CollectiveName.ALL_TO_ALL, 4)
CHAIN = schedule_for(CollectiveName.BROADCAST, 3)


def without(kind: EntryKind) -> Callable[[Entry], Entry]:
    """Takes a flag out of an entry."""
    return lambda entry: replace(entry, kind=entry.kind & ~kind)


@pytest.mark.parametrize(
    ("mutant", "line"),
    [
        (
            # A position that forgets to add its own input.
            with_entry(RING, 2, 1, without(EntryKind.REDUCE)),
            (
                "ring all-reduce of 4: position 0, lane 0, entry 3: block 0 ends without the contribution of position 2; "
                "make every input reach every result exactly once"
            ),
        ),
        (
            # A position that adds where it should keep what is already complete.
            with_entry(RING, 1, 4, lambda e: replace(e, kind=e.kind | EntryKind.REDUCE)),
            (
                "ring all-reduce of 4: position 1, lane 0, entry 4: adds block 0 from position 1 a second time; "
                "make every input reach every result exactly once"
            ),
        ),
        (
            # A result that is received and thrown away.
            with_entry(RING, 3, 6, without(EntryKind.COPY)),
            (
                "ring all-reduce of 4: position 3: its result has 49152 bytes instead of 65536; "
                "make every input reach every result exactly once"
            ),
        ),
        (
            # Two sends in the wrong order.
            with_lane(
                RING, 0, 0, lambda lane: replace(lane, entries=(*lane.entries[1::-1], *lane.entries[2:]))
            ),
            (
                "ring all-reduce of 4: position 0, lane 0, entry 0: sends 16384 bytes of block 2 (loop 0, slice 0) "
                "to position 1, which expects 16384 bytes of block 3 (loop 0, slice 0) "
                "(position 1, lane 0, entry 1); give every send its receive, in the same order and size"
            ),
        ),
        (
            # A send left out.
            with_lane(GATHER, 1, 0, lambda lane: replace(lane, entries=lane.entries[1:])),
            (
                "ring all-gather of 4: position 1, lane 0, entry 0: sends 32768 bytes of block 0 (loop 0, slice 0) "
                "to position 2, which expects 32768 bytes of block 1 (loop 0, slice 0) "
                "(position 2, lane 0, entry 1); give every send its receive, in the same order and size"
            ),
        ),
        (
            # A receive left out at the end.
            with_lane(GATHER, 2, 0, lambda lane: replace(lane, entries=lane.entries[:-1])),
            (
                "ring all-gather of 4: position 1, lane 0, entry 2: sends 32768 bytes of block 3 (loop 0, slice 0) "
                "to position 2, which does not receive it; give every send its receive, in the same order and size"
            ),
        ),
        (
            # A block of another size.
            with_lane(EXCHANGE, 0, 0, lambda lane: replace(lane, parts=5)),
            (
                "p2p all-to-all of 4: position 0, lane 0, entry 0: sends 13107 bytes of block 1 (loop 0, slice 0) "
                "to position 1, which expects 16384 bytes of block 1 (loop 0, slice 0) "
                "(position 1, lane 1, entry 0); give every send its receive, in the same order and size"
            ),
        ),
        (
            # A peer left out on one side.
            replace(EXCHANGE, tables=(*EXCHANGE.tables[:3], EXCHANGE.tables[3][1:])),
            (
                "p2p all-to-all of 4: position 0, lane 1, entry 0: receives 16384 bytes of block 12 (loop 0, slice 0) "
                "from position 3, which does not send it; give every send its receive, in the same order and size"
            ),
        ),
        (
            # The right size, but nothing to send yet: the middle of a chain that does not wait.
            replace(
                CHAIN,
                tables=(
                    CHAIN.tables[0],
                    (
                        Lane(0, 2, -1, 0, 1, (Entry(EntryKind.SEND, 0, 0),)),
                        Lane(1, -1, 0, 0, 1, (Entry(EntryKind.RECV | EntryKind.COPY, 0, 0),)),
                    ),
                    CHAIN.tables[2],
                ),
            ),
            (
                "chain broadcast of 3: position 1, lane 0, entry 0: sends block 0, of which it has no data; "
                "make every input reach every result exactly once"
            ),
        ),
        (
            # Two slices to send before the first receive, but room for one.
            replace(RING, slots=1),
            (
                "ring all-reduce of 4: position 0, lane 0, entry 0: waits for one of 1 slots towards position 1; "
                "order the entries so that some lane can always move"
            ),
        ),
    ],
)
def test_a_broken_schedule_is_refused_by_its_step(mutant: Schedule, line: str) -> None:
    assert line in refused(mutant)


def test_a_circle_of_waiting_lanes_is_told_lane_by_lane() -> None:
    relay = EntryKind.RECV | EntryKind.COPY | EntryKind.SEND
    table = tuple((Lane(0, 1 - p, 1 - p, 0, 1, (Entry(relay, 0, 0),)),) for p in range(2))
    circle = replace(schedule_for(CollectiveName.ALL_GATHER, 2), tables=table, algorithm="circle")
    assert refused(circle) == [
        f"circle all-gather of 2: position {p}, lane 0, entry 0: waits for a message from position {1 - p}; "
        "order the entries so that some lane can always move"
        for p in range(2)
    ]


def test_a_batch_that_waits_for_an_earlier_one_says_so() -> None:
    late = with_lane(EXCHANGE, 0, 0, lambda lane: replace(lane, batch=1))
    late = with_lane(late, 1, 1, lambda lane: replace(lane, batch=1))
    validate(late, 1 << 16)
    crossed = SEND_RECV
    send, recv = (crossed.tables[p][0] for p in range(2))
    both = (
        (replace(send, batch=1), replace(recv, recv_from=1)),
        (replace(recv, batch=0), replace(send, send_to=0, batch=1)),
    )
    lines = refused(replace(crossed, tables=both))
    assert (
        "p2p point-to-point of 2: position 0, lane 0, entry 0: waits for batch 0 of channel 0 of its position"
        in lines[0]
    )
    assert len(lines) == 4


@pytest.mark.parametrize(
    ("mutant", "where_and_what"),
    [
        (replace(RING, collective="gossip"), "collective: 'gossip' is not one of all-gather, all-reduce, "),
        (replace(RING, size=5), "tables: there are 4, one for each of 5 positions is needed"),
        (replace(RING, slots=0), "cut: slots is 0, at least 1 is needed"),
        (replace(RING, chunk_bytes=0), "cut: chunk_bytes is 0, at least 1 is needed"),
        (
            replace(RING, slice_align_bytes=2 << 30),
            "cut: slice_align_bytes is 2147483648, at most 1073741824",
        ),
        (with_lane(RING, 1, 0, lambda lane: replace(lane, send_to=1)), "position 1, lane 0: sends to itself"),
        (
            with_lane(RING, 1, 0, lambda lane: replace(lane, recv_from=7)),
            "position 1, lane 0: receives from position 7, outside 0 to 3",
        ),
        (
            with_lane(RING, 1, 0, lambda lane: replace(lane, part=1)),
            "position 1, lane 0: part 1 is not one of 1",
        ),
        (
            with_lane(RING, 1, 0, lambda lane: replace(lane, batch=-1)),
            "position 1, lane 0: batch -1 is negative",
        ),
        (with_lane(RING, 1, 0, lambda lane: replace(lane, entries=())), "position 1, lane 0: has no entries"),
        (
            with_lane(EXCHANGE, 0, 2, lambda lane: replace(lane, send_to=1)),
            "position 0, lane 2: another lane sends to position 1 too",
        ),
        (
            with_lane(EXCHANGE, 0, 3, lambda lane: replace(lane, recv_from=3)),
            "position 0, lane 3: another lane receives from position 3 too",
        ),
        (
            with_entry(RING, 2, 0, lambda e: replace(e, chunk=4)),
            "position 2, lane 0, entry 0: chunk 4 is not one of the 4 of a loop",
        ),
        (
            with_entry(RING, 2, 0, lambda e: replace(e, kind=EntryKind.COPY)),
            "position 2, lane 0, entry 0: neither sends nor receives",
        ),
        (
            with_entry(RING, 2, 0, lambda e: replace(e, kind=EntryKind.SEND | EntryKind.REDUCE)),
            "position 2, lane 0, entry 0: reduces or copies without receiving",
        ),
        (
            with_entry(CHAIN, 0, 0, lambda e: replace(e, kind=EntryKind.SEND | EntryKind.RECV)),
            "position 0, lane 0, entry 0: receives, but its lane has no peer to receive from",
        ),
        (
            with_entry(CHAIN, 2, 0, lambda e: replace(e, kind=EntryKind.SEND | EntryKind.RECV)),
            "position 2, lane 0, entry 0: sends, but its lane has no peer to send to",
        ),
    ],
)
def test_indices_that_name_nothing_are_refused(mutant: Schedule, where_and_what: str) -> None:
    assert any(where_and_what in line for line in refused(mutant))


def test_a_thoroughly_broken_table_is_told_in_a_bounded_number_of_lines() -> None:
    broken = schedule_for(CollectiveName.ALL_TO_ALL, 16)
    for position in range(16):
        broken = with_lane(broken, position, 0, lambda lane: replace(lane, batch=-1))
        broken = with_lane(broken, position, 1, lambda lane: replace(lane, part=-1))
    lines = refused(broken)
    assert len(lines) == MAX_PROBLEMS + 1
    assert lines[-1] == "p2p all-to-all of 16: 12 more problems of this kind; fix the table's indices"


@settings(max_examples=150)
@given(st.data())
def test_no_flipped_flag_of_a_ring_passes(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from([CollectiveName.ALL_REDUCE, CollectiveName.REDUCE_SCATTER]))
    size = data.draw(st.integers(3, 6))
    schedule = schedule_for(name, size)
    position = data.draw(st.integers(0, size - 1))
    entry = data.draw(st.integers(0, len(schedule.tables[0][0].entries) - 1))
    # IN_TURN says when, not what: a ring receives in turn whether it says so or not.
    flag = data.draw(st.sampled_from([kind for kind in EntryKind if kind is not EntryKind.IN_TURN]))
    mutant = with_entry(schedule, position, entry, lambda e: replace(e, kind=e.kind ^ flag))
    assert refused(mutant)
