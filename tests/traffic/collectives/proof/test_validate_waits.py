"""Waits across lanes, gathered messages and channels: what `validate` makes of tables that get them wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest

from etloop.contract.base.errors import PlanError
from etloop.traffic.collectives.core.table import Entry, EntryKind, Handshake, Lane, Schedule
from etloop.traffic.collectives.proof.validate import validate
from etloop.traffic.collectives.selection import CollectiveName
from tests.support.traffic.algorithm_cases import CASES, Shape, nccl_ring, whole
from tests.support.traffic.one_channel_schedules import schedule_for

SEND, RECV, COPY, MORE = EntryKind.SEND, EntryKind.RECV, EntryKind.COPY, EntryKind.MORE
KEEP = RECV | COPY


def relay(*entries: Entry, batch: int = 0) -> Schedule:
    """0 sends 100,000 bytes to 1, which passes them on to 2 by a lane of its own with these entries."""
    middle = (Lane(0, -1, 0, 0, 1, (Entry(KEEP, 0, 0),)), Lane(batch, 2, -1, 0, 1, entries))
    tables = (
        (Lane(0, 1, -1, 0, 1, (Entry(SEND, 0, 0),)),),
        middle,
        (Lane(0, -1, 1, 0, 1, (Entry(KEEP, 0, 0),)),),
    )
    return replace(
        schedule_for(CollectiveName.BROADCAST, 3),
        algorithm="relay",
        tables=tables,
        chunk_bytes=10_000,
        slots=2,
    )


def refused(schedule: Schedule) -> str:
    with pytest.raises(PlanError) as error:
        validate(schedule, 100_000)
    return str(error.value)


@pytest.mark.parametrize("entry", [0, -1])
def test_a_lane_that_waits_for_what_it_passes_on_is_right(entry: int) -> None:
    validate(relay(Entry(SEND, 0, 0, after_lane=0, after_entry=entry)), 100_000)


@pytest.mark.parametrize(
    ("entries", "text"),
    [
        # Sends before anything has come.
        ((Entry(SEND, 0, 0),), "position 1, lane 1, entry 0: sends block 0, of which it has no data"),
        ((Entry(SEND, 0, 0, after_lane=2),), "entry 0: waits for lane 2, outside 0 to 1"),
        ((Entry(SEND, 0, 0, after_lane=1),), "entry 0: waits for its own lane"),
        (
            (Entry(SEND, 0, 0, after_lane=0, after_entry=1),),
            "entry 0: waits for entry 1 of lane 0, which has 1",
        ),
        ((Entry(SEND, 0, 0, after_entry=0),), "entry 0: waits for entry 0 without a lane"),
        ((Entry(EntryKind(0), 0, 0),), "entry 0: neither sends nor receives nor waits"),
        ((Entry(SEND | MORE, 0, 0),), "entry 0: its message goes on, but it is the last entry of its lane"),
        (
            (Entry(SEND | MORE, 0, 0), Entry(EntryKind(0), 0, 0, after_lane=0)),
            "entry 0: its message goes on with an entry of another direction",
        ),
        (
            (Entry(SEND | MORE, 0, 0), Entry(SEND, 0, 0, after_lane=0)),
            "entry 0: its message goes on with an entry that waits for another lane",
        ),
        (
            (Entry(SEND | MORE, 0, 0, after_lane=0), Entry(SEND, 0, 0)),
            "sends 20000 bytes of block 0 (loop 0, slice 0) to position 2, which expects 10000 bytes of block 0",
        ),
    ],
)
def test_a_wrong_wait_or_message_is_told_by_its_entry(entries: tuple[Entry, ...], text: str) -> None:
    assert text in refused(relay(*entries))


def test_lanes_do_not_wait_for_later_batches() -> None:
    schedule = relay(Entry(SEND, 0, 0), batch=1)
    table = schedule.tables[1]
    early = replace(table[0], entries=(Entry(KEEP, 0, 0, after_lane=1),))
    tables = (schedule.tables[0], (early, table[1]), schedule.tables[2])
    text = "position 1, lane 0, entry 0: waits for lane 1, which is in a later batch"
    assert text in refused(replace(schedule, tables=tables))


def test_two_lanes_that_wait_for_each_other_are_told() -> None:
    schedule = relay(Entry(SEND, 0, 0, after_lane=0, after_entry=0))
    table = schedule.tables[1]
    circle = replace(table[0], entries=(Entry(KEEP, 0, 0, after_lane=1, after_entry=0),))
    text = refused(replace(schedule, tables=(schedule.tables[0], (circle, table[1]), schedule.tables[2])))
    assert "position 1, lane 0, entry 0: waits for entry 0 of lane 1" in text
    assert "position 1, lane 1, entry 0: waits for entry 0 of lane 0" in text
    assert "position 0, lane 0, entry 0: waits for one of 2 slots towards position 1" in text


def test_a_sender_waits_for_a_receiver_that_begins_too_late() -> None:
    """Batch by batch each sends first; neither batch ends, because nobody takes in what was sent."""
    send, keep = (Entry(SEND, 0, 0),), (Entry(KEEP, 0, 1),)
    other = (Entry(SEND, 0, 1),), (Entry(KEEP, 0, 0),)
    tables = (
        (Lane(0, 1, -1, 0, 1, send), Lane(1, -1, 1, 0, 1, keep)),
        (Lane(0, 0, -1, 0, 1, other[0]), Lane(1, -1, 0, 0, 1, other[1])),
    )
    crossed = replace(schedule_for(CollectiveName.ALL_GATHER, 2), algorithm="crossed", tables=tables)
    text = refused(crossed)
    assert "position 0, lane 0, entry 0: has sent all, but position 1 has not begun to receive it" in text
    # Who writes without being asked needs no receiver.
    validate(replace(crossed, handshake=Handshake.ONE_SIDED), 100_000)


def test_channels_are_told_apart_and_named() -> None:
    case = next(case for case in CASES if case.name == "ring-all-reduce")
    schedule = case.build(Shape(3), nccl_ring(2))
    validate(schedule, 1 << 20)
    first, second = schedule.tables[0]
    tables = (*[(first, replace(second, channel=0))], *schedule.tables[1:])
    text = refused(replace(schedule, tables=tables))
    assert "position 0, lane 1: another lane sends to position 1 too on channel 0" in text
    outside = ((first, replace(second, channel=2)), *schedule.tables[1:])
    assert "position 0, lane 1: channel 2 is not one of 2" in refused(replace(schedule, tables=outside))
    short = ((first, replace(second, share=0)), *schedule.tables[1:])
    assert "position 0, lane 1, entry 0: sends" in refused(replace(schedule, tables=short))
    none = ((first, replace(second, shares=1)), *schedule.tables[1:])
    assert "position 0, lane 1: share 1 is not one of 1" in refused(replace(schedule, tables=none))


def test_a_relay_that_drops_what_it_passes_on_is_found() -> None:
    """In Bruck's all-to-all a block travels by way of others; one that is not passed on is missing at its end."""
    case = next(case for case in CASES if case.name == "bruck-all-to-all")
    schedule = case.build(Shape(4), whole())
    lanes = list(schedule.tables[1])
    dropped = [
        entry for lane in lanes for entry in lane.entries if entry.kind & SEND and entry.block // 4 != 1
    ]
    assert dropped
    without = tuple(
        replace(lane, entries=tuple(entry for entry in lane.entries if entry not in dropped))
        for lane in lanes
    )
    tables = (schedule.tables[0], without, *schedule.tables[2:])
    assert "position 1, lane" in refused(replace(schedule, tables=tables))


@pytest.mark.parametrize(
    "name", ["ring-all-reduce", "tree-all-reduce", "bruck-all-to-all", "pat-reduce-scatter"]
)
def test_the_proof_of_sixty_four_positions_is_quick_enough_to_be_made(name: str) -> None:
    case = next(case for case in CASES if case.name == name)
    validate(case.build(Shape(64, 8), whole()), 64 * 4096 + 13)
