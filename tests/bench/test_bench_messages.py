"""The bench of messages: its loads, and what it counts of them. Nothing here asserts how fast anything is."""

from __future__ import annotations

import pytest

from etloop.bench.engine import messages
from etloop.bench.engine.load import BenchLoad, Messages, Shape, bench_assignments
from etloop.bench.engine.measure import bare_packets_per_s, engine_run
from etloop.bench.engine.network import loopback_place
from etloop.bench.engine.wire import MESSAGE_PACKETS
from etloop.bench.engine.workers import bench_workers
from etloop.traffic.engine import MOST_TAKEN
from etloop.workload.trace.program import OpKind
from etloop.workload.trace.trace import CollectiveKind

SECOND_NS = 1_000_000_000
ADDRESSES = (("127.18.9.1", "127.18.9.2"), ("127.18.9.3", "127.18.9.4"))


@pytest.mark.e2e
def test_messages_are_as_many_as_their_time_and_never_more_than_are_kept() -> None:
    assert messages.iterations_of(1) == 1
    assert messages.iterations_of(240_000_000) == 10
    assert messages.iterations_of(10**12) * messages.MESSAGES == messages.MOST_MESSAGES


def test_messages_wait_for_nothing() -> None:
    sender, receiver = (one.programs[0] for one in bench_assignments(Messages(64, 100, 2), ADDRESSES))
    assert sender.kind.tolist() == [OpKind.SEND] * 100
    assert receiver.kind.tolist() == [OpKind.RECV] * 100
    assert sender.dep_offsets[-1] == receiver.dep_offsets[-1] == 0
    assert Messages(64, 100, 2).ops == 400


def test_all_packets_of_both_ends_are_counted() -> None:
    """A grant and a message each way of every send, and acknowledgements of some of them."""
    load = Messages(64, 50, 2)
    with bench_workers(place := loopback_place("this is a test")) as workers:
        run = engine_run(place, workers, load, shape=Shape(queue_pairs=4))
    assert 2 * 100 <= run.packets <= 4 * 100 + 50
    assert run.wire_bytes == 64 * 100


@pytest.mark.e2e
def test_every_record_counts_where_an_engine_keeps_more_than_it_hands_over_at_once() -> None:
    load = Messages(64, 2_000, MOST_TAKEN // 2_000 + 1)
    with bench_workers(place := loopback_place("this is a test")) as workers:
        run = engine_run(place, workers, load, shape=Shape(queue_pairs=4, completion="acknowledged"))
    assert run.wire_bytes == 64 * load.iterations * 2_000


def test_bare_datagrams_go_both_ways() -> None:
    with bench_workers(place := loopback_place("this is a test")) as workers:
        assert bare_packets_per_s(place, workers, SECOND_NS // 50, 100) > 100


def test_the_bare_path_is_sent_in_the_calls_of_the_messages_that_wire_has() -> None:
    shape = Shape()
    (sender, _) = bench_assignments(
        BenchLoad(CollectiveKind.BROADCAST, 2, 1 << 30, 1), ADDRESSES, shape=shape
    )
    assert sender.schedules.schedules.chunk_bytes.tolist() == [MESSAGE_PACKETS * shape.path_mtu_bytes]
