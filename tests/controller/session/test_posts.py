"""Messages that begin while a run lasts: what the source hears in which order, and what agents are ordered."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from etloop.contract.base.errors import ProtocolError
from etloop.contract.model.assignment import Assignment
from etloop.contract.model.records import OP_RECORD
from etloop.controller.session.posts import Posts
from tests.support.control_plane.control_plane_by_hand import ring_assignments

START_NS = 1_000_000


class Script:
    """A source that starts message 0 at 100 ns, a message on every arrival, and acts on a timer at 500 ns."""

    pairs = ((0, 4, 1, 7),)
    first_ns = 100

    def __init__(self) -> None:
        self.calls: list[tuple[int, tuple[tuple[int, int], ...]]] = []
        self.over = False

    def act(
        self, now_ns: int, arrived: Sequence[tuple[int, int]]
    ) -> tuple[Sequence[tuple[int, int, int]], int | None]:
        self.calls.append((now_ns, tuple(arrived)))
        timer_ns = 500 if now_ns < 500 else None
        if now_ns == 100:
            return [(0, 64, 0)], timer_ns
        if arrived:
            number = arrived[0][0] + 1
            self.over = number == 2
            return ([] if self.over else [(0, 32, number)]), None if self.over else timer_ns
        return [], timer_ns


def posts_of(script: Script) -> Posts:
    assignments: dict[str, Assignment] = ring_assignments("a", "b")
    assert [rank.rank for rank in assignments["a"].ranks] == [0]
    return Posts(script, assignments)


def op_record(rank: int, op: int, number: int, at_ns: int) -> NDArray[np.void]:
    ops = np.zeros(1, OP_RECORD)
    ops["rank"], ops["op"], ops["iteration"] = rank, op, number
    ops["issued_ns"] = ops["completed_ns"] = START_NS + at_ns
    return ops


def arrival(number: int, at_ns: int) -> NDArray[np.void]:
    return op_record(1, 7, number, at_ns)


def test_timers_and_arrivals_reach_the_source_in_the_order_of_their_times() -> None:
    script = Script()
    posts = posts_of(script)
    assert posts.act(99) == {}
    assert posts.next_ns == 100
    # 40 ns late, but the message was to begin at 100.
    assert posts.act(140) == {"b": [(1, 7, 64, 0)], "a": [(0, 4, 64, 0)]}
    assert posts.waits
    posts.take(op_record(0, 4, 0, 145), START_NS)
    assert list(posts.late_ns) == [45]
    # A report of 600 brings an arrival of 300, before the timer of 500.
    posts.take(arrival(0, 300), START_NS)
    assert not posts.waits
    assert posts.act(600) == {"b": [(1, 7, 32, 1)], "a": [(0, 4, 32, 1)]}
    assert script.calls == [(100, ()), (300, ((0, 300),)), (500, ())]
    # An arrival of 450 whose report comes after the timer counts from then: nothing that was decided is taken back.
    posts.take(arrival(1, 450), START_NS)
    assert posts.act(700) == {}
    assert script.calls[-1] == (500, ((1, 500),))
    assert posts.over
    assert posts.next_ns is None


def test_an_arrival_that_nothing_sent_is_a_breach() -> None:
    posts = posts_of(Script())
    posts.act(100)
    with pytest.raises(ProtocolError, match="message 5 was sent by rank 0"):
        posts.take(op_record(0, 4, 5, 200), START_NS)
    with pytest.raises(ProtocolError, match="message 5 arrived at rank 1"):
        posts.take(arrival(5, 200), START_NS)
