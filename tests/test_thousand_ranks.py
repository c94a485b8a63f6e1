"""Every algorithm at 1,024 positions: tables of some positions, as an agent would be sent them, held against closed forms."""

from __future__ import annotations

from typing import Final

import pytest

from tests.algorithm_cases import CASES, Case, Moved, Shape, least_channels, whole
from traffic._native import StepTables
from traffic.collectives.columns import to_columns
from traffic.collectives.table import Schedule

SIZE: Final = 1024
OP_BYTES: Final = 1 << 24
SAMPLE: Final = (0, 1, 7, 8, 511, 512, 777, 1023)
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
    positions = set(SAMPLE)
    for position in SAMPLE:
        to = [lane.send_to for lane in schedule.tables[position] if lane.send_to >= 0]
        positions |= {to[at] for at in (0, len(to) // 2, -1) if to}
    return sorted(positions)


@pytest.mark.parametrize("case", AT_1024, ids=lambda case: case.name)
def test_sampled_positions_move_what_the_closed_form_says(case: Case) -> None:
    shape = shape_of(case)
    schedule = case.build(shape, whole(channels=least_channels(case)))
    total = case.total(shape, OP_BYTES)
    if case.algorithm in UNEVEN_LOADS:
        everybody = moved_by(schedule, list(range(SIZE)))
        assert sum(everybody.sent_by(SIZE)) == sum(everybody.received_by(SIZE)) == total
        return
    sent, received = (
        of(SIZE) for some in (moved_by(schedule, list(SAMPLE)),) for of in (some.sent_by, some.received_by)
    )
    assert total % SIZE == 0
    assert {sent[position] for position in SAMPLE} == {total // SIZE}
    assert {received[position] for position in SAMPLE} == {total // SIZE}


@pytest.mark.parametrize("case", AT_1024, ids=lambda case: case.name)
def test_both_ends_of_sampled_connections_agree(case: Case) -> None:
    schedule = case.build(shape_of(case), whole(channels=least_channels(case)))
    positions = with_some_peers(schedule)
    some = moved_by(schedule, positions)
    sent = {pair: moved for pair, moved in some.sent_between().items() if pair[1] in positions}
    received = {pair: moved for pair, moved in some.received_between().items() if pair[0] in positions}
    assert sent == received
    assert len(sent) >= len(SAMPLE) - 1, "there are such connections"
