"""Expert traffic from a seed: every token arrives, popularity is what was asked for, and what came is what returns."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etloop.traffic.collectives.proof.validate import validate
from etloop.workload.graph.moe import combine_splits, dispatch_splits, token_histogram
from tests.support.traffic.one_channel_schedules import schedule_for_splits


@given(
    ranks=st.integers(1, 8),
    each=st.integers(1, 4),
    tokens=st.integers(0, 5000),
    top_k=st.integers(1, 8),
    skew=st.floats(0, 4),
    seed=st.integers(0, 99),
)
def test_every_token_goes_to_different_experts(
    ranks: int, each: int, tokens: int, top_k: int, skew: float, seed: int
) -> None:
    experts = ranks * each
    histogram = token_histogram(ranks, experts, tokens, min(top_k, experts), skew, random.Random(seed))
    for row in histogram:
        assert sum(row) == tokens * min(top_k, experts)
        assert all(0 <= entry <= tokens for entry in row)
    dispatch = dispatch_splits(histogram, 16)
    assert [sum(row) for row in dispatch] == [16 * sum(row) for row in histogram]
    assert combine_splits(combine_splits(dispatch)) == dispatch


def test_without_skew_all_experts_get_the_same() -> None:
    histogram = token_histogram(4, 8, 1024, 2, 0.0, random.Random(1))
    assert {entry for row in histogram for entry in row} == {256}
    assert dispatch_splits(histogram, 2) == ((1024,) * 4,) * 4


def test_skew_makes_one_expert_hot_on_all_ranks() -> None:
    histogram = token_histogram(8, 8, 10_000, 1, 1.5, random.Random(3))
    hottest = {row.index(max(row)) for row in histogram}
    assert len(hottest) == 1
    loads = [sum(column) for column in zip(*histogram, strict=True)]
    assert max(loads) > 3 * sum(loads) / len(loads)


def test_a_seed_says_it_all() -> None:
    first, again, other = (token_histogram(4, 16, 999, 2, 1.0, random.Random(seed)) for seed in (7, 7, 8))
    assert first == again != other


@pytest.mark.parametrize(
    ("histogram", "splits"),
    [
        # Two experts a rank; what stays on its rank is part of the matrix too.
        (((1, 2, 3, 4), (0, 0, 5, 5)), ((30, 70), (0, 100))),
        (((0, 0), (0, 0)), ((0, 0), (0, 0))),
    ],
)
def test_bytes_go_to_the_rank_of_the_expert(
    histogram: tuple[tuple[int, ...], ...], splits: tuple[tuple[int, ...], ...]
) -> None:
    assert dispatch_splits(histogram, 10) == splits


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 16), st.floats(0, 3), st.integers(0, 1000))
def test_both_ways_are_schedules_that_do_what_they_promise(ranks: int, skew: float, seed: int) -> None:
    histogram = token_histogram(ranks, 2 * ranks, 50, 2, skew, random.Random(seed))
    dispatch = dispatch_splits(histogram, 4096)
    for splits in (dispatch, combine_splits(dispatch)):
        validate(schedule_for_splits(splits, ranks_per_host=4), 0)
