"""Batches follow each other on every channel by itself: a slow peer on one channel holds up no other channel."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from etloop.contract.base.errors import PlanError
from etloop.traffic.collectives.core.draft import KEEP, SEND, entry
from etloop.traffic.collectives.core.table import Entry, EntryKind, Lane, Schedule
from etloop.traffic.collectives.proof.validate import validate
from etloop.traffic.collectives.selection import CollectiveName
from etloop.traffic.simulation import SimulationSettings, simulate
from tests.support.traffic.algorithm_cases import CASES, Shape, moved, nccl_p2p, whole
from tests.support.traffic.assignments_by_hand import HandOp, assignment

if TYPE_CHECKING:
    from etloop.traffic.simulation import SimulationOutcome

LATE_NS = 50_000_000
OP_BYTES = 100_000
AR = CollectiveName.ALL_REDUCE


def schedule_of(*tables: tuple[Lane, ...]) -> Schedule:
    """Tables that move data of no collective in particular, on two channels."""
    case = next(case for case in CASES if case.name == "direct-all-gather")
    return replace(case.build(Shape(len(tables)), whole(channels=2)), tables=tables, channels=2)


def sends(to: int, batch: int, channel: int) -> Lane:
    return Lane(batch, to, -1, 0, 1, (entry(SEND, 0, 0),), channel=channel)


def receives(source: int, batch: int, channel: int) -> Lane:
    return Lane(batch, -1, source, 0, 1, (entry(KEEP, 0, 0),), channel=channel)


def run(schedule: Schedule, late: int = -1, settings: SimulationSettings | None = None) -> SimulationOutcome:
    """One op a rank; that of rank `late` begins long after the others."""
    programs = tuple(
        (HandOp("delay", LATE_NS), HandOp(AR, OP_BYTES, (0,))) if rank == late else (HandOp(AR, OP_BYTES),)
        for rank in range(schedule.size)
    )
    outcome = simulate(assignment(programs, instead=schedule), settings or SimulationSettings())
    assert outcome.failure == ""
    return outcome


def test_the_next_batch_of_a_channel_waits_for_that_channel_alone() -> None:
    schedule = schedule_of(
        (sends(1, 0, 0), sends(2, 0, 1), sends(2, 1, 0), sends(3, 1, 1)),
        (receives(0, 0, 0),),
        (receives(0, 0, 0), receives(0, 0, 1)),
        (receives(0, 0, 1),),
    )
    ops = run(schedule, late=1).ops
    took = {int(row["rank"]): int(row["completed_ns"] - ops["issued_ns"].min()) for row in ops}
    assert took[3] < LATE_NS, (
        "the second batch of channel 1 has nothing to do with the slow peer on channel 0"
    )
    assert took[2] >= LATE_NS, "the second batch of channel 0 has"
    assert took[0] >= LATE_NS


def crossing(channel: int) -> Schedule:
    """Position 1 answers what position 0 sends in its second batch before it serves its first."""
    after = Entry(EntryKind.SEND, 0, 0, after_lane=0, after_entry=0)
    return schedule_of(
        (receives(1, 0, 0), sends(1, 1, channel)),
        (receives(0, 0, channel), Lane(0, 0, -1, 0, 1, (after,), channel=0)),
    )


def test_channels_that_need_each_other_in_another_order_come_to_their_end() -> None:
    validate(crossing(1), OP_BYTES, contents=False)
    assert len(run(crossing(1)).ops) == 2


def test_a_batch_that_needs_a_later_one_of_its_channel_is_refused() -> None:
    with pytest.raises(PlanError) as caught:
        validate(crossing(0), OP_BYTES, contents=False)
    assert "waits for batch 0 of channel 0 of its position" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "channels", "parts"),
    [
        ("p2p-all-to-all", 2, 2),
        ("p2p-all-to-all", 1, 1),
        ("linear-gather", 2, 1),
        ("scattered-all-to-all", 2, 1),
    ],
)
def test_several_batches_a_channel_move_every_byte_once_under_loss(
    name: str, channels: int, parts: int
) -> None:
    case = next(case for case in CASES if case.name == name)
    nccl = not name.startswith("scattered")
    cutting = nccl_p2p(channels, parts) if nccl else whole(channels=channels, window=7)
    schedule = case.build(Shape(20), cutting)
    assert max(lane.batch for table in schedule.tables for lane in table) >= 1
    ops = run(schedule, settings=SimulationSettings(seed=5, loss_per_million=20_000)).ops
    totals = moved(schedule, OP_BYTES)
    sent, received = totals.sent_by(20), totals.received_by(20)
    for row in ops:
        assert row["wire_tx_bytes"] == sent[int(row["rank"])]
        assert row["wire_rx_bytes"] == received[int(row["rank"])]
