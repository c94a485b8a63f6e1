"""A udp port with several queues: which thread has which ranks, that traffic is the same over one and over many, and the
counters of a port whatever its threads."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etloop.contract.base.errors import ConfigError
from etloop.contract.model.assignment import HostThreads, Path, PortBackend
from etloop.contract.model.engine import EnginePhase
from etloop.contract.model.records import PORT_RECORD
from etloop.controller.inputs.rig import parse_rig
from etloop.traffic import _native
from etloop.traffic.capture import CaptureTarget
from etloop.traffic.collectives.selection import CollectiveName
from etloop.traffic.engine import Engine
from etloop.traffic.simulation import SimulationSettings, simulate
from etloop.traffic.threads.port_queues import gather_counters, spread_queues
from tests.support.traffic.assignments_by_hand import TRANSPORT, HandOp, assignment

if TYPE_CHECKING:
    from pathlib import Path as FilePath

    from etloop.contract.model.assignment import Assignment

AR, A2A = CollectiveName.ALL_REDUCE, CollectiveName.ALL_TO_ALL
LIMIT_S: Final = 30
COUNTS: Final = (
    "wire_tx_bytes",
    "wire_rx_bytes",
    "local_tx_bytes",
    "local_rx_bytes",
    "tx_messages",
    "rx_messages",
)


def on_ports(per_port: tuple[int, ...], *ops: HandOp, network: str, queues: int, path: Path) -> Assignment:
    """Ports with so many ranks each; what stays on a port takes `path`, the rest the wire."""
    size = sum(per_port)
    addresses = tuple(f"{network}.{rank + 1}" for rank in range(size))
    patient = replace(TRANSPORT, window_packets=0, timeout_ns=20_000_000)
    job = assignment((ops,) * size, addresses=addresses, transport=patient)
    port_of = np.repeat(np.arange(len(per_port)), per_port)
    first = np.concatenate([[0], np.cumsum(per_port)]).tolist()
    block = job.ports[0].qpn_count
    ports = tuple(
        replace(
            job.ports[first[port]],
            name=f"p{port}",
            addresses=addresses[first[port] : first[port + 1]],
            qpn_count=block * count,
            queues=queues,
        )
        for port, count in enumerate(per_port)
    )
    ranks = tuple(
        replace(rank, port=int(port_of[rank.rank]), address=rank.rank - first[port_of[rank.rank]])
        for rank in job.ranks
    )
    columns = job.connections
    stays = port_of[columns.src_rank] == port_of[columns.dst_rank]
    paths = np.where(stays, np.uint8(path), np.uint8(Path.WIRE)).astype(np.uint8)
    return replace(
        job,
        ports=ports,
        ranks=ranks,
        connections=replace(columns, path=paths),
        threads=HostThreads(0, len(ports)),
    )


@given(addresses=st.integers(2, 40), data=st.data())
def test_every_address_is_in_one_queue_and_none_has_two_more_than_another(
    addresses: int, data: st.DataObject
) -> None:
    """Blocks in order, none empty; a rank keeps its address whichever queue has it."""
    queues = data.draw(st.integers(1, addresses))
    job = on_ports((addresses,), HandOp(AR, 4), network="10.1.1", queues=queues, path=Path.SCALE_UP)
    spread = spread_queues(job)
    made = spread.assignment.ports
    assert [each for port in made for each in port.addresses] == list(job.ports[0].addresses)
    sizes = [len(port.addresses) for port in made]
    assert len(made) == min(addresses, queues) == len(spread.port_of)
    assert max(sizes) - min(sizes) <= 1
    assert {port.queues for port in made} == {len(made)}
    for before, after in zip(job.ranks, spread.assignment.ranks, strict=True):
        assert made[after.port].addresses[after.address] == job.ports[0].addresses[before.address]


@given(addresses=st.integers(2, 12), more=st.integers(0, 20))
def test_queues_beyond_addresses_have_all_of_them(addresses: int, more: int) -> None:
    """Every queue has the whole port; ranks are on as many of them as can be, and in order."""
    queues = addresses + 1 + more
    job = on_ports((addresses,), HandOp(AR, 4), network="10.1.1", queues=queues, path=Path.SCALE_UP)
    spread = spread_queues(job)
    made = spread.assignment.ports
    assert [port.queue for port in made] == list(range(queues))
    assert {(port.queues, port.addresses) for port in made} == {(queues, job.ports[0].addresses)}
    assert spread.port_of == (0,) * queues
    homes = [rank.port for rank in spread.assignment.ranks]
    assert homes == sorted(set(homes)), "one rank a queue"
    assert [rank.address for rank in spread.assignment.ranks] == list(range(addresses))
    gaps = np.diff([*homes, queues])
    assert gaps.max() - gaps.min() <= 1


def test_ports_that_write_frames_share_their_addresses_however_many() -> None:
    """Their card or kernel sorts packets by queue pair or source port, not by address; a card's port is one thread."""
    job = on_ports((4, 4, 4), HandOp(AR, 4), network="10.1.1", queues=4, path=Path.SCALE_UP)
    kinds = (PortBackend.XDP, PortBackend.UDP, PortBackend.VERBS)
    ports = tuple(replace(port, backend=kind) for port, kind in zip(job.ports, kinds, strict=True))
    spread = spread_queues(replace(job, ports=ports))
    assert spread.port_of == (0,) * 4 + (1,) * 4 + (2,)
    made = spread.assignment.ports
    assert [port.queue for port in made] == [0, 1, 2, 3, -1, -1, -1, -1, -1]
    assert [len(port.addresses) for port in made] == [4] * 4 + [1] * 4 + [4]
    assert [rank.port for rank in spread.assignment.ranks] == [0, 1, 2, 3, 4, 5, 6, 7, 8, 8, 8, 8]


def test_counters_of_queues_are_those_of_their_port() -> None:
    """Totals; but a receive buffer is that of one socket."""
    rows = np.zeros(3, PORT_RECORD)
    rows["tx_datagrams"] = 1, 10, 100
    rows["blocked_ns"] = 5, 6, 7
    rows["receive_buffer_bytes"] = 9, 4, 8
    port = gather_counters(rows, (0, 1, 1))
    assert port["tx_datagrams"].tolist() == [1, 110]
    assert port["blocked_ns"].tolist() == [5, 13]
    assert port["receive_buffer_bytes"].tolist() == [9, 4]
    assert gather_counters(rows, (0, 1, 2)) is rows


@pytest.mark.parametrize(
    ("queues", "path", "network"),
    [
        pytest.param(2, Path.SCALE_UP, "127.83.1", id="ranks of one host in two queues"),
        pytest.param(3, Path.HAIRPIN, "127.83.2", id="ranks of different hosts on one port, in three queues"),
    ],
)
def test_traffic_is_that_of_one_queue(queues: int, path: Path, network: str) -> None:
    """Byte for byte and message for message, over real sockets."""
    ops = (HandOp(A2A, 6 << 20), HandOp(AR, 999, (0,)))
    job = on_ports((3, 3), *ops, network=network, queues=queues, path=path)
    engine = Engine.open(job)
    try:
        engine.start(time.monotonic_ns())
        _wait_for(engine, EnginePhase.DONE)
        done = np.sort(engine.take_records(), order=("rank", "op"))
        ports, flows = engine.ports(), engine.flows()
    finally:
        engine.close()
    virtual = replace(job, ports=tuple(replace(port, queues=1) for port in job.ports))
    expected = np.sort(simulate(virtual, SimulationSettings()).ops, order=("rank", "op"))
    for name in COUNTS:
        assert done[name].tolist() == expected[name].tolist(), name
    assert len(ports) == 2, "a row a port, not a thread"
    assert ports["foreign_datagrams"].sum() == 0, "every packet came to the thread that has its queue pair"
    assert ports["tx_datagrams"].sum() >= flows["tx_packets"].sum()
    assert ports["stamped_messages"].min() > 0


def test_queues_beyond_cores_are_told() -> None:
    cores = len(_native.usable_processors())
    job = on_ports((cores + 1,), HandOp(AR, 4), network="127.83.3", queues=cores + 2, path=Path.SCALE_UP)
    engine = Engine.open(job)
    try:
        reported = engine.degraded
    finally:
        engine.close()
    assert (
        f"port p0: {cores + 2} queues on {cores} cores share time; write queues: {cores} or less" in reported
    )


def test_every_queue_has_a_capture_of_its_own(tmp_path: FilePath) -> None:
    job = on_ports((2, 1), HandOp(AR, 4), network="10.1.1", queues=2, path=Path.SCALE_UP)
    paths = CaptureTarget(tmp_path).paths(spread_queues(job).assignment)
    assert [path.name for path in paths] == [
        "run-by-hand-a-p0-q0.pcapng",
        "run-by-hand-a-p0-q1.pcapng",
        "run-by-hand-a-p1-q0.pcapng",
        "run-by-hand-a-p1-q1.pcapng",
    ]


@pytest.mark.parametrize(
    ("port", "mistake"),
    [
        (
            "addresses: 10.0.0.1-10.0.0.8, queues: 3, backend: verbs, device: mlx5_0",
            "and one thread polls its completions; remove it, or write another backend",
        ),
        ("addresses: 10.0.0.1-10.0.0.8, queues: 0", "queues"),
    ],
)
def test_a_rig_with_queues_that_cannot_be(port: str, mistake: str, tmp_path: FilePath) -> None:
    text = f"agents: [{{name: a, ports: [{{name: p0, link: 1Gbps, {port}}}]}}]"
    with pytest.raises(ConfigError) as caught:
        parse_rig(text.encode(), "rig.yaml", tmp_path)
    assert mistake in str(caught.value)


def _wait_for(engine: Engine, state: EnginePhase) -> None:
    deadline = time.monotonic() + LIMIT_S
    pause = threading.Event()  # never set: the engine has nothing to wait on
    while engine.status().phase is not state:
        assert engine.status().failure == ""
        assert time.monotonic() < deadline, f"not {state.name} within {LIMIT_S} s"
        pause.wait(0.002)
