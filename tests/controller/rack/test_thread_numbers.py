"""Threads of runs side by side: no number twice, holes are filled, agents of one machine share its numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etloop.controller.rack.thread_numbers import lowest_free, number_threads

ONE_MACHINE = {"a": "m", "b": "m", "c": "n"}


def test_agents_of_a_machine_count_through_one_list() -> None:
    busy, taken = number_threads({"a": 2, "b": 1, "c": 1}, ONE_MACHINE, [])
    assert (busy, taken) == ({"a": 0, "b": 0, "c": 0}, {"m": range(3), "n": range(1)})
    busy, taken = number_threads({"b": 1}, ONE_MACHINE, [taken])
    assert (busy, taken) == ({"b": 3}, {"m": range(3, 4)}), "whatever agents the others are of"


@pytest.mark.parametrize(
    ("sentence", "taken", "count", "first"),
    [
        ("nothing runs", [], 2, 0),
        ("the first run ended, and its numbers are available again", [range(2, 4)], 2, 0),
        ("a hole that is too small stays one", [range(1, 3)], 2, 3),
        ("between two", [range(1), range(3, 4)], 2, 1),
    ],
)
def test_the_lowest_free_numbers_are_taken(sentence: str, taken: list[range], count: int, first: int) -> None:
    assert lowest_free(taken, count) == range(first, first + count), sentence


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 5)), max_size=30))
def test_no_number_is_ever_taken_twice(steps: list[tuple[int, int]]) -> None:
    """Runs of so many threads begin; before each, the one at that place ends, if there is one."""
    runs: list[range] = []
    for count, ending in steps:
        if ending < len(runs):
            del runs[ending]
        runs.append(lowest_free(runs, count))
        numbers = [number for run in runs for number in run]
        assert len(numbers) == len(set(numbers))
