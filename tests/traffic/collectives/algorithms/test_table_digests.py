"""The tables of every algorithm are those that were recorded: however they come to be made, not one entry is another.

A digest that changes on purpose is written down anew, with the reason in the commit.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import pytest

from etloop.traffic.collectives.core.table import Lane
from tests.support.traffic.algorithm_cases import CASES, Case, least_channels, shapes_of, whole

SIZES: Final = (2, 3, 5, 8, 12, 16)
RECORDED: Final = {
    "ring-all-reduce": "5c455d92655618f8",
    "ring-all-gather": "d2402e1c53ce9e9c",
    "ring-reduce-scatter": "9f7bc25377ad3298",
    "bidirectional_ring-all-reduce": "678426d95b4ef725",
    "bidirectional_ring-all-gather": "a4a53c7ce975669e",
    "bidirectional_ring-reduce-scatter": "c0cef6f7bc33e937",
    "tree-all-reduce": "ec8430e35fd79480",
    "halving_doubling-all-reduce": "857cb8a67b74ab7a",
    "halving_doubling-reduce-scatter": "daefe1da9d3292d9",
    "recursive_doubling-all-reduce": "6e102b7367b246e6",
    "recursive_doubling-all-gather": "3d328570405acad7",
    "pat-all-gather": "88e29dd299db5564",
    "pat-reduce-scatter": "3025a03be206b234",
    "direct-all-reduce": "e6ea55fe526a345e",
    "direct-all-gather": "c934df8a7ad08bcd",
    "direct-reduce-scatter": "cc91799765d2296b",
    "direct-all-to-all": "d4d2034d76128752",
    "bruck-all-gather": "b0b463ebabb434ea",
    "bruck-all-to-all": "5d5e19febd57b93a",
    "pairwise-reduce-scatter": "1edc532aa17151b0",
    "pairwise-all-to-all": "1788a24020fe81a0",
    "scattered-all-to-all": "40cffca2939eda41",
    "p2p-all-to-all": "ce9ba519c7fc0380",
    "deepep-all-to-all": "6ce30988a4a7bda9",
    "gloo_ring-all-reduce": "c191e4480df205ea",
    "chain-broadcast": "ebaa1c011a31abdb",
    "chain-reduce": "1c5aa831eb6da889",
    "binomial-broadcast": "7552c4990a545351",
    "binomial-reduce": "383510535bbb21b7",
    "binomial-gather": "514cf1f949444289",
    "binomial-scatter": "11548eaaab906431",
    "linear-gather": "f40b82ee95e81570",
    "linear-scatter": "7ee65fdc993230f8",
    "hierarchical-all-reduce": "008a74d64bc522d7",
    "hierarchical-all-to-all": "297f0879267210b4",
    "pxn-all-to-all": "486a3f9ae88acf9a",
    "rail_ring-all-gather": "88ad5d9441adbf69",
    "ce_direct-all-gather": "8503022a44e857ed",
    "ce_ring-all-gather": "f2c21d50176521bd",
    "ce_direct-all-to-all": "6d64b38a840bc28f",
    "rail_a2a-reduce-scatter": "d5717d8f3af542ab",
}


def row(lane: Lane) -> tuple[Any, ...]:
    """All that a lane is."""
    entries = [(int(e.kind), e.chunk, e.block, e.after_lane, e.after_entry) for e in lane.entries]
    whose = (lane.batch, lane.send_to, lane.recv_from, lane.part, lane.parts, lane.lane_bytes)
    return (*whose, lane.channel, lane.span, lane.share, lane.shares, entries)


def digest(case: Case) -> str:
    """Of the tables of all positions, over several groups on one channel and on two."""
    rows = []
    for shape in (shape for size in SIZES for shape in shapes_of(case, size)):
        cuttings = [whole(channels=least_channels(case))]
        several = whole(channels=2, aggregation=2, window=3)
        if case.algorithm != "gloo_ring" and case.serves(shape, several):
            cuttings.append(several)
        for cutting in cuttings:
            schedule = case.build(shape, cutting)
            lanes = [[row(lane) for lane in table] for table in schedule.tables]
            rows.append((shape.size, shape.ranks_per_host, schedule.chunks_per_loop, lanes))
    return hashlib.sha256(repr(rows).encode()).hexdigest()[:16]


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.name in RECORDED], ids=lambda case: case.name
)
def test_tables_are_those_that_were_recorded(case: Case) -> None:
    assert digest(case) == RECORDED[case.name]


def test_every_algorithm_is_recorded() -> None:
    # A barrier is an all-reduce.
    assert set(RECORDED) == {case.name for case in CASES if case.collective != "barrier"}
