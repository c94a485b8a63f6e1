"""Every algorithm proved by the validator: each send has its receive, every byte arrives once, nothing deadlocks."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etloop.contract.base.errors import PlanError
from etloop.traffic.collectives.algorithms.deepep import (
    TokenShape,
    low_latency_combine,
    low_latency_dispatch,
    normal_dispatch,
)
from etloop.traffic.collectives.proof.validate import validate
from tests.support.traffic.algorithm_cases import (
    CASES,
    Case,
    Shape,
    least_channels,
    nccl_p2p,
    nccl_ring,
    shapes_of,
    whole,
)

FULL: Final = os.environ.get("ETLOOP_FULL") == "1"
ODD_BYTES: Final = (1, 7, 4097, (1 << 20) + 3)


@settings(max_examples=400 if FULL else 100)
@given(st.sampled_from(CASES), st.integers(2, 64 if FULL else 20), st.data())
def test_every_algorithm_does_its_collective(case: Case, size: int, data: st.DataObject) -> None:
    shape = Shape(size, data.draw(st.sampled_from([1, 2, 3, 4, 8]), "ranks per host"))
    channels = data.draw(st.sampled_from([1, 2, 4]), "channels")
    op_bytes = data.draw(st.one_of(st.sampled_from(ODD_BYTES), st.integers(0, 70_000)), "bytes")
    cutting = whole(
        channels=channels,
        window=data.draw(st.integers(0, 4), "window"),
        aggregation=data.draw(st.sampled_from([1, 2, 8]), "aggregation"),
        chunk_bytes=data.draw(st.sampled_from([1 << 30, 16 << 10]), "chunk bytes"),
        slots=data.draw(st.sampled_from([2, 8]), "slots"),
    )
    if case.algorithm in ("p2p", "linear"):
        cutting = data.draw(st.sampled_from([cutting, nccl_p2p(channels, min(channels, 2))]), "cutting")
    if case.algorithm == "ring":
        cutting = data.draw(st.sampled_from([cutting, nccl_ring(channels)]), "cutting")
    if case.serves(shape, cutting):
        validate(case.build(shape, cutting), op_bytes)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_smallest_groups_and_a_few_others_do_their_collective(case: Case) -> None:
    for size in (2, 3, 4, 6, 8, 9):
        for shape in shapes_of(case, size)[:2]:
            validate(case.build(shape, whole(channels=least_channels(case))), 1000)


IN_TURN = frozenset({"binomial-broadcast", "binomial-scatter"})
"""Whose roots send one after another, as blocking sends do: nothing but time depends on those waits."""


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.collective != "barrier"], ids=lambda c: c.name
)
def test_no_wait_can_be_left_out(case: Case) -> None:
    """A schedule that is right only if one of two messages happens to come first is refused."""
    shape, cutting = Shape(8, 2), whole(channels=least_channels(case), slots=8)
    schedule = case.build(shape, cutting)
    for position in (0, 3, 7):
        table = schedule.tables[position]
        for index, lane in enumerate(table):
            for number, entry in enumerate(lane.entries):
                # Waits that keep neighbours of a tree in step, or hold a lane back after others, carry no data.
                if entry.after_lane < 0 or not entry.kind or (case.name in IN_TURN and entry.after_entry < 0):
                    continue
                entries = list(lane.entries)
                entries[number] = replace(entry, after_lane=-1, after_entry=-1)
                changed = list(table)
                changed[index] = replace(lane, entries=tuple(entries))
                tables = list(schedule.tables)
                tables[position] = tuple(changed)
                with pytest.raises(
                    PlanError, match=r"without waiting for|ends without|a second time|has nothing"
                ):
                    validate(replace(schedule, tables=tuple(tables)), 8000)


def test_a_missing_wait_is_named() -> None:
    case = next(case for case in CASES if case.name == "bruck-all-to-all")
    schedule = case.build(Shape(4), whole())
    first, second = schedule.tables[2]
    racing = replace(
        second, entries=(replace(second.entries[0], after_lane=-1, after_entry=-1), *second.entries[1:])
    )
    tables = (*schedule.tables[:2], (first, racing), *schedule.tables[3:])
    with pytest.raises(PlanError) as refused:
        validate(replace(schedule, tables=tables), 400)
    assert "bruck all-to-all of 4: position 2, lane 1, entry " in str(refused.value)


def test_deepep_s_schedules_are_uneven_all_to_alls() -> None:
    counts = ((3, 0, 1, 5, 0, 2), (0, 0, 0, 0, 0, 0), (1, 1, 1, 1, 1, 1))
    validate(low_latency_dispatch(counts, 7408), 0)
    validate(low_latency_combine(counts, 14336), 0)
    rank_tokens = ((1, 3, 4, 5), (2, 0, 3, 3), (6, 1, 0, 8), (2, 2, 0, 0))
    validate(normal_dispatch(rank_tokens, ((0, 7), (0, 3), (6, 0), (2, 0)), 2, 8000, 3), 0)


def test_tokens_weigh_what_deepep_s_do() -> None:
    assert TokenShape(7168).dispatch_bytes == 16 + 7168 + 56 * 4 == 7408
    assert TokenShape(7168, fp8=False).dispatch_bytes == 14_352
    assert TokenShape(7168).combine_bytes == 14_336
    # Values, source, scales, choices, and 8 bytes up to the next multiple of 16.
    assert TokenShape(7168).normal_bytes == 7168 + 8 + 224 + 64 + 8 == 7472
