"""Ranks of one host on different ports: what they exchange goes through the scale-up model, between the ports' loops."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from etloop.contract.base.errors import RigError
from etloop.contract.model.assignment import Path
from etloop.contract.model.engine import EnginePhase
from etloop.traffic.collectives.selection import CollectiveName
from etloop.traffic.engine import Engine
from etloop.traffic.simulation import SimulationSettings, simulate
from tests.support.traffic.assignments_by_hand import TRANSPORT, HandOp, assignment

if TYPE_CHECKING:
    from etloop.contract.model.assignment import Assignment

AR, A2A = CollectiveName.ALL_REDUCE, CollectiveName.ALL_TO_ALL
LOSSY = SimulationSettings(seed=5, loss_per_million=20_000)
LIMIT_S = 30
COUNTS = (
    "wire_tx_bytes",
    "wire_rx_bytes",
    "local_tx_bytes",
    "local_rx_bytes",
    "tx_messages",
    "rx_messages",
)


def railed(
    hosts: tuple[int, ...], *ops: HandOp, network: str = "127.77.0", iterations: int = 1
) -> Assignment:
    """A port for every rank; ranks with the same number in `hosts` share a host."""
    size = len(hosts)
    addresses = tuple(f"{network}.{rank + 1}" for rank in range(size))
    patient = replace(TRANSPORT, window_packets=0, timeout_ns=20_000_000)
    job = assignment((ops,) * size, addresses=addresses, transport=patient, iterations=iterations)
    host = np.array(hosts)
    columns = job.connections
    inside = host[columns.src_rank] == host[columns.dst_rank]
    path = np.where(inside, np.uint8(Path.SCALE_UP), np.uint8(Path.WIRE)).astype(np.uint8)
    return replace(job, connections=replace(columns, path=path))


@pytest.mark.parametrize("collective", [AR, A2A, CollectiveName.BROADCAST])
def test_ports_make_no_difference_inside_a_host(collective: CollectiveName) -> None:
    """All of a job inside one host: the same traffic whether its ranks share a port or have one each."""
    ops = (HandOp(collective, 3_000_000), HandOp(collective, 70_000, (0,)))
    shared = assignment((ops,) * 4, hosts=(0, 0, 0, 0), iterations=3)
    apart = railed((0, 0, 0, 0), *ops, iterations=3)
    outcomes = [simulate(replace(job, transport=TRANSPORT), LOSSY) for job in (shared, apart)]
    assert [outcome.failure for outcome in outcomes] == ["", ""]
    first, second = (np.sort(outcome.ops, order=("iteration", "rank", "op")) for outcome in outcomes)
    for name in COUNTS:
        assert first[name].tolist() == second[name].tolist(), name
    assert outcomes[1].packets == 0, "nothing crosses the device"
    if collective is AR:  # in the others messages leave a rank at the same instant, in an order that is free
        assert first.tobytes() == second.tobytes()


def test_bytes_are_counted_by_the_way_they_went() -> None:
    outcome = simulate(railed((0, 0, 1, 1), HandOp(AR, 1 << 20)), LOSSY)
    assert outcome.failure == ""
    # Two of the ring's four edges lie inside a host.
    half = 2 * 3 * (1 << 20) // 2
    assert outcome.ops["wire_tx_bytes"].sum() == outcome.ops["wire_rx_bytes"].sum() == half
    assert outcome.ops["local_tx_bytes"].sum() == outcome.ops["local_rx_bytes"].sum() == half


def test_over_real_loops_nothing_is_lost_or_repeated() -> None:
    """Five loops hand each other hundreds of messages."""
    job = railed(
        (0, 0, 0, 1, 1), HandOp(A2A, 40 << 20), HandOp(AR, 999, (0,)), network="127.82.7", iterations=3
    )
    engine = Engine.open(job)
    try:
        engine.start(time.monotonic_ns())
        _wait_for(engine, EnginePhase.DONE)
        ops = engine.take_records()
        expected = simulate(job, SimulationSettings()).ops
        order = ("iteration", "rank", "op")
        for name in COUNTS:
            assert (
                np.sort(ops, order=order)[name].tolist() == np.sort(expected, order=order)[name].tolist()
            ), name
        assert (ops["issued_ns"] <= ops["completed_ns"]).all()
    finally:
        engine.close()


def test_a_sleeping_loop_is_woken() -> None:
    """Every message finds the other loop asleep: a long delay stands before it."""
    ops = [HandOp(AR, 4)]
    for k in range(20):
        ops += [HandOp("delay", 2_000_000, (2 * k,)), HandOp(AR, 4, (2 * k + 1,))]
    engine = Engine.open(railed((0, 0), *ops, network="127.82.8"))
    try:
        engine.start(time.monotonic_ns())
        _wait_for(engine, EnginePhase.DONE)
        records = engine.take_records()
        assert len(records) == 2 * 21
    finally:
        engine.close()


def test_a_host_on_two_agents_is_refused() -> None:
    job = railed((0, 0), HandOp(AR, 1000), network="127.82.9")
    only = replace(job, ranks=job.ranks[:1], ports=job.ports[:1])
    with pytest.raises(
        RigError, match="rank 0 -> rank 1: does not cross the wire, but its ranks are on different agents"
    ):
        Engine.open(only)


def _wait_for(engine: Engine, state: EnginePhase) -> None:
    deadline = time.monotonic() + LIMIT_S
    pause = threading.Event()  # never set: the engine has nothing to wait on
    while engine.status().phase is not state:
        assert engine.status().failure == ""
        assert time.monotonic() < deadline, f"not {state.name} within {LIMIT_S} s"
        pause.wait(0.002)
