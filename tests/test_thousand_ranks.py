"""Every algorithm at 1,024 positions: tables of some positions, as an agent would be sent them, held against closed forms."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import pytest

from tests.algorithm_cases import CASES, Case, Moved, Shape, least_channels, whole
from traffic._native import StepTables
from traffic.collectives.columns import to_columns
from traffic.collectives.table import Schedule

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
