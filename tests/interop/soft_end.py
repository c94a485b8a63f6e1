"""Our end of a queue pair, joined over a real network to one of the machine's Soft-RoCE device.

The queue pair is the engine's own; this carries its datagrams: sent through a plain UDP socket, received as whole frames
so that the ICRC of every one of them is checked. `tamper` may change what is sent, `lose` what is taken.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import numpy as np

from etloop.contract.model.records import FLOW_RECORD
from etloop.contract.model.transport import RecoverySettings, TransportSettings
from etloop.traffic import _native
from tests.interop.machine import (
    GUEST_ADDRESS_6,
    GUEST_ADDRESSES,
    HOST_ADDRESS_6,
    HOST_ADDRESSES,
    Machine,
    Program,
)

ROCE_PORT: Final = 4791
SOURCE_PORT: Final = 0xC123
REGION_BYTES: Final = 1 << 20
SECONDS: Final = 20.0
_SHORT_WAIT: Final = 0.005
_ETH_ALL: Final = 3
_OUTGOING: Final = 4
_IP_MTU_DISCOVER: Final = 10
_IP_PMTUDISC_DO: Final = 2
_IPV6_MTU_DISCOVER: Final = 23
_SOL_UDP_NO_CHECK6_RX: Final = 102


@dataclass(frozen=True, slots=True)
class Setting:
    """What a pair of ends agrees on."""

    path_mtu: int = 1024
    ipv6: bool = False
    psn: int = 0
    ack_every: int = 0
    timeout_ns: int = 200_000_000
    rnr_retry: int = 7
    min_rnr_timer: int = 12


@dataclass(slots=True)
class RxePeer:
    """The machine's end: a queue pair of the Soft-RoCE device behind the peer program."""

    program: Program
    qpn: int = 0
    rkey: int = 0
    va: int = 0

    def open(self) -> None:
        """Makes the queue pair."""
        self.qpn, self.rkey, self.va = (int(word) for word in self.command_peer("qp 64").split())

    def command_peer(self, line: str) -> str:
        """Has a command carried out; fails the test if it was not."""
        answer = self.program.ask(line)
        assert not answer.startswith("error"), f"{line}: {answer}"
        return answer

    def do(self, what: str, *arguments: int) -> None:
        """A command of this queue pair."""
        assert self.command_peer(" ".join((what, str(self.qpn), *map(str, arguments)))) == "ok"

    def peek(self, offset: int, count: int) -> bytes:
        """Bytes of its region."""
        return bytes.fromhex(self.command_peer(f"peek {offset} {count}"))

    def fill(self, offset: int, count: int, seed: int) -> bytes:
        """Puts recognisable bytes into its region, and returns them."""
        assert self.command_peer(f"fill {offset} {count} {seed}") == "ok"
        return pattern(count, seed)

    def state(self) -> str:
        """State of its queue pair, such as RTS."""
        return self.command_peer(f"state {self.qpn}")


@dataclass(slots=True)
class SoftEnd:
    """Our end and the sockets it speaks through."""

    queue_pair: _native.QueuePair
    peer: RxePeer
    flow: _native.IpFlow
    sender: socket.socket
    frames: socket.socket
    destination: tuple[str, int]
    tamper: Callable[[list[bytes]], list[bytes]] = lambda sent: sent
    lose: Callable[[bytes], bool] = lambda _: False
    received: list[bytes] = field(default_factory=list)
    """UDP payloads that came from the device."""
    messages: list[tuple[int, int, int | None, bool]] = field(default_factory=list)
    completions: list[tuple[int, bool, bytes, int]] = field(default_factory=list)

    def turn(self, wait_s: float = _SHORT_WAIT) -> None:
        """Sends what is to be sent, takes what came, lets timers run."""
        now = time.monotonic_ns()
        deadline = self.queue_pair.deadline()
        if deadline is not None and deadline <= now:
            self.queue_pair.on_timer(now)
        for datagram in self.tamper(self.queue_pair.datagrams(self.flow, now)):
            self.sender.sendto(datagram, self.destination)
        self.frames.settimeout(wait_s)
        try:
            while True:
                frame, place = self.frames.recvfrom(65536)
                if place[2] != _OUTGOING:
                    self._take(frame)
                self.frames.settimeout(0)
        except (TimeoutError, BlockingIOError):
            pass
        self.messages += self.queue_pair.messages()
        self.completions += self.queue_pair.completions()

    def _take(self, frame: bytes) -> None:
        payload = _roce_payload(frame)
        if payload is None:
            return
        assert _native.check_frame(frame) == "good", f"a frame of the device: {frame[:80].hex()}"
        self.received.append(payload)
        if not self.lose(payload):
            self.queue_pair.on_datagram(payload, time.monotonic_ns())

    def until(self, done: Callable[[], bool], what: str) -> None:
        """Turns until `done`; fails the test if that takes too long."""
        end = time.monotonic() + SECONDS
        while not done():
            assert time.monotonic() < end, (
                f"{what}: not within {SECONDS} s; fault {self.queue_pair.fault!r}, {self.counters()}"
            )
            self.turn()

    def complete(self, mark: int) -> tuple[int, bool, bytes, int]:
        """Turns until one of our requests is over."""
        self.until(lambda: any(each[0] == mark for each in self.completions), f"request {mark}")
        return next(each for each in self.completions if each[0] == mark)

    def peer_done(self) -> str:
        """Turns until the device has a completion, which is returned."""
        answers: list[str] = []

        def polled() -> bool:
            answer = self.peer.command_peer("poll 0")
            if answer != "none":
                answers.append(answer)
            return bool(answers)

        self.until(polled, "a completion of the device")
        return answers[0]

    def settle(self, seconds: float = 0.1) -> None:
        """Turns for a while, for what comes late or twice."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.turn()

    def counters(self) -> dict[str, int]:
        """The FLOW record of our end, by name."""
        row = np.frombuffer(self.queue_pair.counters(), dtype=FLOW_RECORD)[0]
        return {name: int(row[name]) for name in FLOW_RECORD.names or ()}

    def opcodes(self) -> list[int]:
        """Of what the device sent, in order."""
        return [payload[0] for payload in self.received]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.sender.close()
        self.frames.close()


def pattern(count: int, seed: int) -> bytes:
    """What `fill` of the peer program writes."""
    at = np.arange(count, dtype=np.uint64)
    return ((at * 131 + seed * 17 + (at >> np.uint64(8))) & np.uint64(0xFF)).astype(np.uint8).tobytes()


@contextmanager
def joined(machine: Machine, program: Path, setting: Setting) -> Iterator[tuple[SoftEnd, RxePeer]]:
    """Our end and the device's, connected."""
    ours, theirs = (
        (HOST_ADDRESS_6, GUEST_ADDRESS_6) if setting.ipv6 else (HOST_ADDRESSES[0], GUEST_ADDRESSES[0])
    )
    local_qpn = 0x4321
    started = machine.running(str(program), "rxe0", theirs, str(setting.path_mtu), str(REGION_BYTES))
    with (
        started as process,
        _sender(machine, ours, setting.ipv6) as sender,
        _port_taken(machine, ours, setting.ipv6),
    ):
        assert process.line() == "ready", process.lines
        peer = RxePeer(process)
        peer.open()
        psn, retries = setting.psn, 7
        timeout = 15  # 4.096 us * 2^15 = 134 ms
        arguments = (
            peer.qpn,
            ours,
            local_qpn,
            psn,
            psn,
            timeout,
            retries,
            setting.rnr_retry,
            setting.min_rnr_timer,
        )
        assert peer.command_peer("connect " + " ".join(map(str, arguments))) == "ok"
        queue_pair = _native.QueuePair(local_qpn, peer.qpn, _settings(setting), memory_bytes=REGION_BYTES)
        with machine.beside():
            frames = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_ALL))
        frames.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        frames.bind(("tap0", _ETH_ALL))
        flow = _native.IpFlow(ours, theirs, SOURCE_PORT)
        with SoftEnd(queue_pair, peer, flow, sender, frames, (theirs, ROCE_PORT)) as end:
            yield end, peer


def _settings(setting: Setting) -> TransportSettings:
    return TransportSettings(
        path_mtu_bytes=setting.path_mtu,
        ack_every_packets=setting.ack_every,
        timeout_ns=setting.timeout_ns,
        retry_limit=7,
        window_packets=64,
        recovery=RecoverySettings(
            adaptive_timeout=False,
            rnr_retry_limit=setting.rnr_retry,
            min_rnr_timer_code=setting.min_rnr_timer,
            outstanding_reads=4,
            initial_psn=setting.psn,
        ),
    )


def _sender(machine: Machine, address: str, ipv6: bool) -> socket.socket:
    """Writes identification 0 and DF, which the ICRC counts on (docs/decisions.md, "The wire")."""
    with machine.beside():
        sender = socket.socket(socket.AF_INET6 if ipv6 else socket.AF_INET, socket.SOCK_DGRAM)
    if ipv6:
        sender.setsockopt(socket.IPPROTO_IPV6, _IPV6_MTU_DISCOVER, _IP_PMTUDISC_DO)
        sender.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, 0x6A)
    else:
        sender.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_DO)
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 0x6A)
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 << 20)
    sender.bind((address, SOURCE_PORT))
    return sender


def _port_taken(machine: Machine, address: str, ipv6: bool) -> socket.socket:
    """Keeps the kernel from answering the device's packets with "port unreachable"; nobody reads it."""
    with machine.beside():
        taken = socket.socket(socket.AF_INET6 if ipv6 else socket.AF_INET, socket.SOCK_DGRAM)
    if ipv6:
        taken.setsockopt(socket.IPPROTO_UDP, _SOL_UDP_NO_CHECK6_RX, 1)
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    taken.bind((address, ROCE_PORT))
    return taken


def _roce_payload(frame: bytes) -> bytes | None:
    """The UDP payload of a frame for the RoCE port, None for any other frame."""
    kind = int.from_bytes(frame[12:14], "big")
    if kind == 0x0800 and frame[23] == socket.IPPROTO_UDP:
        at = 14 + (frame[14] & 15) * 4
    elif kind == 0x86DD and frame[20] == socket.IPPROTO_UDP:
        at = 54
    else:
        return None
    _, destination, length = struct.unpack_from("!HHH", frame, at)
    return frame[at + 8 : at + length] if destination == ROCE_PORT else None
