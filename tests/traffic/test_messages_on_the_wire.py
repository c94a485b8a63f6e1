"""What lanes become on the wire: writes and a closing atomic without grants, and messages split over queue pairs.

Two engines over loopback, each with a capture; frames are read from the formats alone (Ethernet, IPv4, UDP, BTH, RETH,
AtomicETH, immediate), and once more by Wireshark.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pytest

from etloop.cli.text.capture_files import read_frames
from etloop.contract.model.engine import EnginePhase
from etloop.contract.model.transport import RecoverySettings
from etloop.traffic.capture import CaptureTarget
from etloop.traffic.collectives.algorithms.deepep import low_latency_dispatch
from etloop.traffic.collectives.core.table import Schedule
from etloop.traffic.collectives.selection import CollectiveName
from etloop.traffic.engine import Engine
from tests.support.first_light.packet_socket import icrc_holds
from tests.support.traffic.assignments_by_hand import TRANSPORT, HandOp, assignment
from tests.support.traffic.one_channel_schedules import schedule_for

ADDRESSES: Final = ("127.81.0.1", "127.81.0.2")
PATIENCE_S: Final = 60
BTH: Final = 42
"""Where it begins: behind Ethernet, IPv4 without options, and UDP."""
FIRST, MIDDLE, LAST, LAST_IMM, ONLY, ONLY_IMM = 6, 7, 8, 9, 10, 11
ATOMIC_ACK: Final = 18
FETCH_ADD: Final = 20
TOKEN_BYTES: Final = 7_408
COUNTS: Final = ((3, 0, 5, 1), (2, 4, 2, 2))
"""Tokens of each of two ranks for each of four experts, two on a rank."""
LONG_NS: Final = 10_000_000_000
"""On a busy machine nothing shall be sent twice for waiting long."""


@dataclass(frozen=True, slots=True)
class Request:
    """One whole request of a queue pair, from its packets."""

    opcode: int
    """FETCH_ADD, WRITE_LAST (a write) or WRITE_LAST_IMM (one with immediate)."""
    va: int
    size_bytes: int
    value: int
    """The addend or the immediate."""


def captured(directory: Path, schedule: Schedule, op_bytes: int, *, qps: int, split: bool) -> list[Path]:
    """Two ops, one behind the other, by two engines; their captures."""
    recovery = RecoverySettings(adaptive_timeout=False)
    transport = replace(TRANSPORT, split_data_on_qps=split, timeout_ns=LONG_NS, recovery=recovery)
    ops = (HandOp(CollectiveName.ALL_TO_ALL, op_bytes), HandOp(CollectiveName.ALL_TO_ALL, op_bytes, (0,)))
    engines: list[Engine] = []
    paths: list[Path] = []
    try:
        for rank in (0, 1):
            target = CaptureTarget(directory / str(rank), 1 << 18, 1 << 30)
            target.directory.mkdir()
            job = assignment(
                (ops, ops),
                only_ranks=(rank,),
                addresses=ADDRESSES,
                transport=transport,
                instead=schedule,
                qps_each=qps,
            )
            paths += target.paths(job)
            engines.append(Engine.open(job, target))
        for engine in engines:
            engine.start_probe()
        until(lambda: all(engine.probe_outcomes() is not None for engine in engines))
        for engine in engines:
            engine.start(time.monotonic_ns())
        until(
            lambda: all(engine.status().phase in (EnginePhase.DONE, EnginePhase.FAILED) for engine in engines)
        )
        assert [engine.status().failure for engine in engines] == ["", ""]
    finally:
        for engine in engines:
            engine.close()
    return paths


def until(done: Callable[[], bool]) -> None:
    deadline, pause = time.monotonic() + PATIENCE_S, threading.Event()
    while not done():
        assert time.monotonic() < deadline
        pause.wait(0.002)


def sent_frames(paths: list[Path]) -> list[bytes]:
    frames = []
    for path in paths:
        found, lost = read_frames(path.read_bytes(), path.name)
        assert lost == 0
        frames += [frame.content for frame in found if frame.outbound]
    assert all(icrc_holds(frame) for frame in frames)
    return frames


def requests_of(frames: list[bytes]) -> dict[int, list[Request]]:
    """Destination queue pair -> its requests in the order of their sequence numbers."""
    by_qp: dict[int, dict[int, bytes]] = defaultdict(dict)
    for frame in frames:
        if frame[BTH] in (FIRST, MIDDLE, LAST, LAST_IMM, ONLY, ONLY_IMM, FETCH_ADD):
            by_qp[int.from_bytes(frame[BTH + 5 : BTH + 8])][int.from_bytes(frame[BTH + 9 : BTH + 12])] = frame
    return {qpn: list(_whole([frames[psn] for psn in sorted(frames)])) for qpn, frames in by_qp.items()}


def _whole(packets: list[bytes]) -> list[Request]:
    found: list[Request] = []
    va = size = 0
    for frame in packets:
        opcode, extension = frame[BTH], frame[BTH + 12 :]
        if opcode == FETCH_ADD:
            va, _, addend, _ = struct.unpack_from(">QIQQ", extension)
            found.append(Request(FETCH_ADD, va, 8, addend))
            continue
        if opcode in (FIRST, ONLY, ONLY_IMM):
            va, _, size = struct.unpack_from(">QII", extension)
            extension = extension[16:]
        if opcode in (LAST, ONLY):
            found.append(Request(LAST, va, size, 0))
        if opcode in (LAST_IMM, ONLY_IMM):
            found.append(Request(LAST_IMM, va, size, int.from_bytes(extension[:4])))
    return found


def tag(va: int) -> int:
    """The op that an address of ours speaks of."""
    return va >> 24 & 0xFFFFFFFF


@pytest.fixture(scope="module")
def one_sided(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    schedule = low_latency_dispatch(COUNTS, TOKEN_BYTES)
    return captured(tmp_path_factory.mktemp("one-sided"), schedule, 0, qps=2, split=False)


def test_a_one_sided_lane_is_writes_and_an_atomic_behind_the_last(one_sided: list[Path]) -> None:
    frames = sent_frames(one_sided)
    closings: list[tuple[int, int]] = []
    for requests in requests_of(frames).values():
        of_op: dict[int, list[Request]] = defaultdict(list)
        for request in requests:
            of_op[tag(request.va)].append(request)
        for those in of_op.values():
            *writes, closing = those
            assert {(write.opcode, write.size_bytes) for write in writes} == {(LAST, TOKEN_BYTES)}
            assert [write.va & 0x7FFFFF for write in writes] == list(range(len(writes)))
            assert closing.opcode == FETCH_ADD
            assert closing.va % 8 == 0
            assert closing.va & 0x7FFFFF > writes[-1].va & 0x7FFFFF
            closings.append((len(writes), closing.value))
    # What DeepEP adds: minus the number of tokens and one more, for each expert of the other rank; in both ops.
    tokens = sorted((*COUNTS[0][2:], *COUNTS[1][:2]) * 2)
    assert sorted(closings) == [(count, (1 << 64) - count - 1) for count in tokens]
    assert sum(frame[BTH] == ATOMIC_ACK for frame in frames) == len(tokens)


def test_wireshark_reads_the_atomics_and_their_answers(one_sided: list[Path]) -> None:
    tshark = shutil.which("tshark")
    if tshark is None:
        pytest.skip("tshark is not installed (Debian package tshark)")
    names = ("bth.opcode", "atomiceth.swapdt", "atomicacketh.origremdt")
    columns = [option for name in names for option in ("-e", f"infiniband.{name}")]
    seen: dict[int, list[list[str]]] = defaultdict(list)
    for path in one_sided:
        command = [tshark, "-n", "-r", str(path), "-T", "fields", "-e", "_ws.malformed", *columns]
        reported = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
        for line in reported.splitlines():
            malformed, opcode, *values = line.split("\t")
            assert not malformed, line
            seen[int(opcode)].append(values)
    atomics, answers = seen[FETCH_ADD], seen[ATOMIC_ACK]
    # Every frame is in both captures: sent and received.
    assert len(atomics) == len(answers) == 2 * 2 * 4
    assert {int(addend, 0) for addend, _ in atomics} == {(1 << 64) - n - 1 for n in (5, 1, 2, 4)}
    assert all(original and not addend for addend, original in answers)


@pytest.mark.parametrize(("qps", "op_bytes"), [(3, 400_000), (4, 200)])
def test_a_split_message_has_a_part_on_every_queue_pair(qps: int, op_bytes: int, tmp_path: Path) -> None:
    """Equal parts of whole 128 bytes, the last ones shorter or empty, each with the size of the whole as its immediate."""
    schedule = schedule_for(CollectiveName.ALL_GATHER, 2)
    frames = sent_frames(captured(tmp_path, schedule, op_bytes, qps=qps, split=True))
    parts: dict[int, list[list[Request]]] = defaultdict(list)
    for qpn, requests in sorted(requests_of(frames).items()):
        data = [request for request in requests if request.opcode == LAST_IMM]
        if data:
            parts[qpn // 4096].append(data)  # queue pair numbers of a rank are neighbours
    assert len(parts) == 2
    for of_rank in parts.values():
        assert len(of_rank) == qps
        assert len({len(data) for data in of_rank}) == 1
        for message in zip(*of_rank, strict=True):
            (size,) = {part.value for part in message}
            assert sum(part.size_bytes for part in message) == size
            assert [part.va - message[0].va for part in message] == [
                sum(part.size_bytes for part in message[:i]) for i in range(qps)
            ]
            assert all(
                part.size_bytes % 128 == 0
                for part in message
                if part.size_bytes == message[0].size_bytes > 128
            )
        assert sum(part.size_bytes for data in of_rank for part in data) == 2 * op_bytes
