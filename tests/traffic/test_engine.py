"""The engine over real loopback sockets, two of them in this process: probes, runs, waits, and giving everything back."""

from __future__ import annotations

import os
import socket
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from etloop.contract.base.errors import RigError
from etloop.contract.model.engine import EnginePhase
from etloop.contract.model.fault_rules import FaultAction, FaultDirection, FaultPackets, FaultRule
from etloop.contract.model.records import POST_RECORD, WaitKind
from etloop.traffic.collectives.selection import CollectiveName
from etloop.traffic.engine import Engine
from tests.support.traffic.assignments_by_hand import TRANSPORT, HandOp, assignment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from etloop.contract.model.assignment import Assignment
    from etloop.contract.model.transport import TransportSettings

AR = CollectiveName.ALL_REDUCE
ADDRESSES = ("127.79.0.1", "127.79.0.2")
PATIENT = replace(
    TRANSPORT,
    window_packets=0,
    timeout_ns=640_000_000,
    recovery=replace(TRANSPORT.recovery, timeout_floor_ns=400_000_000),
)
"""What is sent again was lost, however long the machine does something else."""
LIMIT_S = 30


def halves(
    *ops: HandOp, transport: TransportSettings = PATIENT, iterations: int = 1
) -> tuple[Assignment, Assignment]:
    programs = (ops, ops)
    first, second = (
        assignment(
            programs, only_ranks=(rank,), addresses=ADDRESSES, transport=transport, iterations=iterations
        )
        for rank in (0, 1)
    )
    return first, second


@pytest.fixture
def opened() -> Iterator[list[Engine]]:
    engines: list[Engine] = []
    yield engines
    for engine in engines:
        engine.close()


def until(what: str, done: Callable[[], object]) -> None:
    """Asks `done` again and again until it is true; fails naming `what` after LIMIT_S."""
    deadline = time.monotonic() + LIMIT_S
    pause = threading.Event()  # never set: the engine has nothing to wait on
    while not done():
        assert time.monotonic() < deadline, f"{what} did not happen within {LIMIT_S} s"
        pause.wait(0.002)


def open_and_probe(engines: list[Engine], jobs: tuple[Assignment, Assignment]) -> None:
    engines.extend(Engine.open(job) for job in jobs)
    for engine in engines:
        engine.start_probe()
    until("the probes' end", lambda: all(engine.probe_outcomes() is not None for engine in engines))
    for engine in engines:
        assert [probe.problem for probe in engine.probe_outcomes() or ()] == ["" for _ in range(1)]


@pytest.mark.parametrize("drop_per_million", [0, 10_000])
def test_a_run_over_sockets_is_exact(opened: list[Engine], drop_per_million: int) -> None:
    jobs = halves(
        HandOp(AR, 3 << 20),
        HandOp("delay", 2_000_000, (0,)),
        HandOp(CollectiveName.ALL_TO_ALL, 70_000, (1,)),
        transport=replace(PATIENT, drop_per_million=drop_per_million),
        iterations=3,
    )
    open_and_probe(opened, jobs)
    for engine in opened:
        engine.start(time.monotonic_ns() + 10_000_000)
    until("the run's end", lambda: all(engine.status().phase is EnginePhase.DONE for engine in opened))
    ops = np.concatenate([engine.take_records() for engine in opened])
    assert len(ops) == 3 * 2 * 2
    expected = 3 * (2 * (3 << 20) + 70_000)
    assert ops["wire_tx_bytes"].sum() == ops["wire_rx_bytes"].sum() == expected
    assert (ops["intended_ns"] <= ops["issued_ns"]).all()
    assert (ops["issued_ns"] <= ops["first_tx_ns"]).all()
    assert (ops["first_tx_ns"] <= ops["completed_ns"]).all()
    flows = np.concatenate([engine.flows() for engine in opened])
    assert flows["rx_payload_bytes"].sum() == flows["tx_payload_bytes"].sum() == expected
    assert (flows["retransmitted_packets"].sum() > 0) == (drop_per_million > 0)
    drops = sum(int(engine.ports()["injected_drops"][0]) for engine in opened)
    assert (drops > 0) == (drop_per_million > 0)


def test_faults_act_on_sockets_too(opened: list[Engine]) -> None:
    """Lost, repeated and marked packets over the kernel: the run is exact, and what was provoked is counted."""
    sent, received, data = FaultDirection.SENT, FaultDirection.RECEIVED, FaultPackets.DATA
    rules = (
        FaultRule(FaultAction.DROP, sent, data, first=20, last=20),
        FaultRule(FaultAction.DUPLICATE, sent, data, first=40, every=40),
        FaultRule(FaultAction.MARK_CE, sent, data, first=10, last=12),
        FaultRule(FaultAction.DELAY, received, FaultPackets.ACK, first=1, last=2, delay_ns=100_000),
    )
    jobs = halves(HandOp(AR, 4 << 20), transport=replace(PATIENT, faults=rules))
    open_and_probe(opened, jobs)
    for engine in opened:
        engine.start(time.monotonic_ns() + 10_000_000)
    until("the run's end", lambda: all(engine.status().phase is EnginePhase.DONE for engine in opened))
    ops = np.concatenate([engine.take_records() for engine in opened])
    assert ops["wire_rx_bytes"].sum() == 2 * (4 << 20)
    flows = np.concatenate([engine.flows() for engine in opened])
    ports = np.concatenate([engine.ports() for engine in opened])
    assert ports["injected_losses"].sum() == 2
    assert ports["injected_duplicates"].sum() > 0
    assert ports["injected_marks"].sum() == 6
    assert ports["injected_delays"].sum() > 0
    provoked = sum(int(ports[name].sum()) for name in ports.dtype.names or () if name.startswith("injected_"))
    assert flows["injected_faults"].sum() == provoked
    departs = (
        "paced packets leave when the loop comes to it: faults of the scenario act on packets as they leave"
    )
    assert any(departs in reported for reported in opened[0].capabilities), (
        "not handed to the kernel ahead of their time"
    )
    assert flows["packet_seq_err"].sum() > 0
    assert flows["duplicate_request"].sum() > 0
    assert flows["np_ecn_marked_roce_packets"].sum() > 0
    assert flows["np_cnp_sent"].sum() == flows["rp_cnp_handled"].sum() + flows["rp_cnp_ignored"].sum() > 0


def test_what_a_lone_rank_waits_for_is_told(opened: list[Engine]) -> None:
    open_and_probe(opened, halves(HandOp(AR, 1 << 20)))
    opened[0].start(time.monotonic_ns())
    until("the start", lambda: opened[0].status().phase is EnginePhase.RUNNING)
    waits = None

    def reported() -> bool:
        nonlocal waits
        if waits is None:
            opened[0].request_waits()
        waits = opened[0].take_waits()
        return waits is not None and len(waits) > 0

    until("an answer", reported)
    assert waits is not None
    assert set(waits["peer_rank"]) == {1}
    assert WaitKind.DATA in set(waits["kind"])


def test_arrivals_are_signalled_at_once_and_sends_with_the_end(opened: list[Engine]) -> None:
    programs = ((HandOp("send", 1, peer=1),), (HandOp("recv", 1, peer=0),))
    sender, receiver = (
        assignment(programs, only_ranks=(rank,), addresses=ADDRESSES, transport=PATIENT) for rank in (0, 1)
    )
    opened.extend(Engine.open(job) for job in (sender, receiver))
    for engine in opened:
        engine.start_probe()
    until("the probes' end", lambda: all(engine.probe_outcomes() is not None for engine in opened))
    signals = [os.eventfd(0, os.EFD_NONBLOCK) for _ in opened]

    def signalled(end: int) -> bool:
        try:
            return os.eventfd_read(signals[end]) > 0
        except BlockingIOError:
            return False

    try:
        for engine, signal in zip(opened, signals, strict=True):
            engine.expect_posts(signal)
            engine.start(time.monotonic_ns())
        until("the start", lambda: all(engine.status().phase is EnginePhase.RUNNING for engine in opened))
        for number in range(3):
            for rank, engine in enumerate(opened):
                engine.post(np.array([(rank, 0, 5000, number)], POST_RECORD), last=False)
            until("the arrival's signal", lambda: signalled(1))
        until("the sends", lambda: opened[0].status().ops_done == 3)
        assert not signalled(0)
        for rank, engine in enumerate(opened):
            engine.post(np.array([(rank, 0, 5000, 3)], POST_RECORD), last=True)
        until("the end's signal", lambda: signalled(0))
        assert all(len(engine.take_records()) == 4 for engine in opened)
    finally:
        for signal in signals:
            os.close(signal)


def test_a_dead_peer_fails_the_run_by_name(opened: list[Engine]) -> None:
    open_and_probe(
        opened, halves(HandOp(AR, 1 << 20), transport=replace(PATIENT, timeout_ns=1_000_000, retry_limit=3))
    )
    opened.pop().close()
    opened[0].start(time.monotonic_ns())
    until("the failure", lambda: opened[0].status().phase is EnginePhase.FAILED)
    status = opened[0].status()
    assert status.failure.startswith("rank ")
    assert "no acknowledgement after the last retry" in status.failure


def test_a_taken_port_is_named() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as holder:
        holder.bind((ADDRESSES[0], 4791))
        with pytest.raises(RigError, match=r"127\.79\.0\.1.*4791") as refused:
            Engine.open(halves(HandOp(AR, 1024))[0])
    assert "end the other agent" in str(refused.value)


def test_an_address_of_another_host_is_named() -> None:
    job = assignment(((HandOp(AR, 1024),),) * 2, only_ranks=(0,), addresses=("192.0.2.1", "192.0.2.2"))
    with pytest.raises(RigError, match=r"192\.0\.2\.1"):
        Engine.open(job)


def test_closing_gives_the_addresses_back(opened: list[Engine]) -> None:
    first, _ = halves(HandOp(AR, 1024))
    for _ in range(2):
        engine = Engine.open(first)
        engine.close()
        assert engine.status().phase is EnginePhase.OPEN
    opened.append(Engine.open(first))
