"""`bench scale` and turnarounds under load: their arithmetic, and short runs for real.

Nothing here asserts how fast anything is.
"""

from __future__ import annotations

import numpy as np
import pytest

from etloop.bench.engine import scale
from etloop.bench.engine.load import BenchLoad, PingPong, Shape
from etloop.bench.engine.measure import engine_run
from etloop.bench.engine.network import loopback_place
from etloop.bench.engine.workers import bench_workers
from etloop.workload.trace.trace import CollectiveKind


def test_a_load_beside_a_ping_pong_goes_on_until_it_is_over() -> None:
    """Two more ranks throw large messages at each other; the run waits for the ball alone, and counts it alone."""
    load = PingPong(4096, 10, 3, 100_000)
    with bench_workers(place := loopback_place("this is a test")) as workers:
        run = engine_run(place, workers, load)
    assert run.wire_bytes == 4096 * 2 * 10 * 3
    assert [len(received) for received in run.received_ns] == [30, 30]
    assert len(run.slip_ns) == load.ops
    assert (np.diff(run.slip_ns) >= 0).all()
    assert run.background_bytes % 100_000 == 0


def test_one_rank_over_two_queues_costs_the_processor_something() -> None:
    load = BenchLoad(CollectiveKind.BROADCAST, 2, 5_000_000, 2)
    with bench_workers(place := loopback_place("this is a test")) as workers:
        run = engine_run(place, workers, load, shape=Shape(queue_pairs=8, queues=2, sleeps=True))
    assert run.wire_bytes == 2 * 5_000_000
    assert len(run.processor_ns) == 2
    assert min(run.processor_ns) > 0


def test_queues_are_measured_as_far_as_there_are_cores() -> None:
    assert scale.queue_counts(1) == scale.queue_counts(2) == scale.queue_counts(3) == (1, 2)
    assert scale.queue_counts(8) == (1, 2, 4, 8)
    assert scale.queue_counts(300) == (1, 2, 4, 8, 16)


def test_cores_that_a_link_takes_follow_from_what_a_packet_costs() -> None:
    """400 Gb/s of packets that take 4178 bytes on the link are 11.97 million a second."""
    assert scale.cores_for(400_000_000_000, 1000) == pytest.approx(11.967, abs=0.001)
    assert scale.cores_for(100_000_000_000, 500) == pytest.approx(1.496, abs=0.001)
