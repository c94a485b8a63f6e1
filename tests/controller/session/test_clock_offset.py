"""The clock map under made-up delays: the bound must always hold, and the best sample must win."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etloop.contract.base.clock import NS_PER_MS, NS_PER_S, seconds_text
from etloop.controller.session.clock_map import ClockMap, ClockOffset, ClockSample


def sample(sent_ns: int, offset_ns: int, out_ns: int, back_ns: int, inside_ns: int = 0) -> ClockSample:
    """What a ping shows when the ways take `out_ns` and `back_ns` and the agent answers after `inside_ns`."""
    receive_ns = sent_ns + out_ns + offset_ns
    send_ns = receive_ns + inside_ns
    return ClockSample(sent_ns, receive_ns, send_ns, sent_ns + out_ns + inside_ns + back_ns)


def test_without_samples_nothing_is_known() -> None:
    assert ClockMap().offset(0) is None


def test_equal_ways_give_the_offset_exactly() -> None:
    clock = ClockMap()
    assert clock.add(sample(1000, 5_000_000, 100, 100, inside_ns=700))
    assert clock.offset(1900) == ClockOffset(5_000_000, 100)


def test_the_least_round_trip_wins() -> None:
    clock = ClockMap()
    clock.add(sample(0, 777, 100, 90_000))
    clock.add(sample(100_000, 777, 100, 102))
    clock.add(sample(200_000, 777, 50_000, 100))
    offset = clock.offset(250_100)
    assert offset is not None
    assert abs(offset.offset_ns - 777) <= 1


def test_a_fresh_sample_beats_a_better_one_of_an_hour_ago() -> None:
    clock = ClockMap()
    clock.add(sample(0, 0, 10, 10))
    clock.add(sample(3600 * NS_PER_S, 180_000_000, 500, 500))
    offset = clock.offset(3600 * NS_PER_S + 1000)
    assert offset == ClockOffset(180_000_000, 500)


WAYS = st.integers(0, 10 * NS_PER_MS)


@given(
    offset_ns=st.integers(-(1 << 60), 1 << 60),
    ways=st.lists(st.tuples(WAYS, WAYS, WAYS), min_size=1, max_size=100),
)
def test_the_bound_holds_whatever_the_network_does(offset_ns: int, ways: list[tuple[int, int, int]]) -> None:
    clock, now_ns = ClockMap(), 0
    for out_ns, back_ns, inside_ns in ways:
        taken = sample(now_ns, offset_ns, out_ns, back_ns, inside_ns)
        assert clock.add(taken)
        now_ns = taken.returned_ns
    found = clock.offset(now_ns)
    assert found is not None
    assert abs(found.offset_ns - offset_ns) <= found.error_ns + 1  # the middle is rounded down
    assert found.to_agent(123) == 123 + found.offset_ns


IMPOSSIBLE = {
    "it answered before it was asked": ClockSample(0, 10, 5, 20),
    "the answer came before the question left": ClockSample(20, 5, 6, 10),
    "it thought longer than the whole trip": ClockSample(0, 0, 50, 20),
}


@pytest.mark.parametrize("impossible", IMPOSSIBLE.values(), ids=IMPOSSIBLE.keys())
def test_impossible_times_are_not_believed(impossible: ClockSample) -> None:
    clock = ClockMap()
    assert not clock.add(impossible)
    assert len(clock) == 0


def test_seconds_are_told_with_one_decimal() -> None:
    assert seconds_text(3_090_000_000) == "3.0 s"
    assert seconds_text(90 * NS_PER_MS) == "0.0 s"
