"""Every algorithm proved by the validator: each send has its receive, every byte arrives once, nothing deadlocks."""

from __future__ import annotations

import os
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.algorithm_cases import CASES, Case, Shape, least_channels, nccl_p2p, nccl_ring, shapes_of, whole
from traffic.collectives.validate import validate

FULL: Final = os.environ.get("ETLOOP_FULL") == "1"
ODD_BYTES: Final = (1, 7, 4097, (1 << 20) + 3)


@settings(max_examples=2000 if FULL else 150)
@given(st.sampled_from(CASES), st.integers(2, 64 if FULL else 24), st.data())
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
