"""Ctrl-C while a job is worked out in virtual time: it ends soon, as a KeyboardInterrupt, and leaves the process usable."""

from __future__ import annotations

import gc
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from etloop.traffic.collectives.selection import CollectiveName
from etloop.traffic.flow_level import flow_level, ideal_network
from etloop.traffic.twin import TwinSettings
from tests.support.traffic.assignments_by_hand import HandOp, assignment
from tests.support.traffic.twin_by_hand import UNCONTROLLED, incast, star, through

if TYPE_CHECKING:
    from etloop.contract.model.assignment import Assignment

YEAR_NS = 365 * 24 * 3600 * 10**9
PATIENCE_S = 0.2


@contextmanager
def interrupted_soon() -> Iterator[None]:
    """Sends this thread Ctrl-C after a while; the work under it would take minutes."""
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(PATIENCE_S, signal.pthread_kill, (main, signal.SIGINT))
    timer.start()
    try:
        yield
    finally:
        timer.join()


def endless() -> Assignment:
    """All-reduces of 1 GiB one after another: hundreds of millions of packets, millions of messages."""
    ops = tuple(
        HandOp(CollectiveName.ALL_REDUCE, 1 << 30, (index - 1,) if index else ()) for index in range(2000)
    )
    return assignment((ops,) * 4, transport=UNCONTROLLED)


def in_the_twin(job: Assignment) -> None:
    through(job, star(4), TwinSettings(limit_ns=YEAR_NS))


def at_flow_level(job: Assignment) -> None:
    flow_level(job, ideal_network(job, 0))


@pytest.mark.parametrize("work", [in_the_twin, at_flow_level])
def test_work_in_virtual_time_hears_ctrl_c_and_the_next_is_none_the_worse(
    work: Callable[[Assignment], None],
) -> None:
    job = endless()
    gc.collect()  # What it sweeps away has callbacks, in which Python drops exceptions.
    with pytest.raises(KeyboardInterrupt), interrupted_soon():
        work(job)
    assert through(incast(2, 1 << 16), star(3)).failure == ""


def test_a_handler_that_does_not_raise_changes_nothing() -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: heard.append(number))
    try:
        job = incast(4, 256 << 20)
        with interrupted_soon():
            outcome = through(job, star(5))
    finally:
        signal.signal(signal.SIGINT, before)
    assert heard == [signal.SIGINT]
    assert outcome.failure == ""
