"""Requests without end are answered below Python: over a real cable, a card with a window gets them all acknowledged."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from ipaddress import IPv4Address

import pytest

from etloop.experiments.nic.link.frames import Addresses, arrival_of, frame_of
from etloop.experiments.nic.link.wire import Departure
from etloop.traffic import _native

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="packet sockets are for root")
OURS = Addresses(b"\2\0\0\0\0\1", b"\2\0\0\0\0\2", IPv4Address("198.18.9.1"), IPv4Address("198.18.9.2"))
CARD = Addresses(OURS.their_mac, OURS.our_mac, OURS.their_ip, OURS.our_ip)
OUR_QPN, CARD_QPN = 0x4001, 0x77
WRITE_MIDDLE, ACK, SO_TIMESTAMPNS = 0x07, 0x11, 35
MS = 1_000_000
WINDOW = 32


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Sockets of frames at both ends of a cable: ours with stamps, the card's."""
    name = f"ea{os.getpid() % 100_000}"
    subprocess.run(f"ip link add {name}a type veth peer name {name}b".split(), check=True)
    try:
        sockets = []
        for end in (f"{name}a", f"{name}b"):
            subprocess.run(f"ip link set {end} up".split(), check=True)
            one = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
            one.bind((end, 3))
            sockets.append(one)
        ours, card = sockets
        ours.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        card.settimeout(5)
        yield ours, card
        ours.close()
        card.close()
    finally:
        subprocess.run(f"ip link del {name}a".split(), check=True)


def request(psn: int, qpn: int = OUR_QPN, sender: Addresses = CARD) -> bytes:
    packet = _native.WirePacket(WRITE_MIDDLE)
    packet.dest_qpn, packet.psn, packet.payload_bytes = qpn, psn, 256
    flow = _native.IpFlow(str(sender.our_ip), str(sender.their_ip), 0xD000)
    return frame_of(Departure(_native.encode(packet, flow), source_port=0xD000), sender)


def acknowledgement() -> bytes:
    packet = _native.WirePacket(ACK)
    packet.dest_qpn, packet.syndrome = CARD_QPN, 0x1F
    flow = _native.IpFlow(str(OURS.our_ip), str(OURS.their_ip), 0xC123)
    return frame_of(Departure(_native.encode(packet, flow)), OURS)


def acknowledged(card: socket.socket) -> int:
    """The next number that is acknowledged; the frame is whole, and its ICRC is right."""
    while True:
        frame = card.recv(4096)
        arrival = arrival_of(frame, 0, CARD)
        if arrival is not None and arrival.packet.opcode == ACK and arrival.packet.dest_qpn == CARD_QPN:
            return arrival.packet.psn


def write_without_end(card: socket.socket, count: int, first: int, seen: list[int]) -> None:
    sent = answered = 0
    while answered < count:
        while sent < count and sent - answered < WINDOW:
            card.send(request((first + sent) % (1 << 24)))
            sent += 1
        psn = acknowledged(card)
        seen.append(psn)
        answered = (psn - first) % (1 << 24) + 1


def test_a_window_goes_on_and_all_requests_have_their_times(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ours, card = ends
    count, first, seen = 3_000, (1 << 24) - 1_000, list[int]()
    writer = threading.Thread(target=write_without_end, args=(card, count, first, seen))
    begun_ns = time.clock_gettime_ns(time.CLOCK_REALTIME)
    writer.start()
    times_ns, sizes, heads, left = _native.answer_requests(
        ours.fileno(), acknowledgement(), OUR_QPN, count, time.monotonic_ns() + 20_000 * MS, 0
    )
    writer.join()
    assert len(times_ns) == len(sizes) == count
    assert times_ns == sorted(times_ns)
    assert begun_ns <= times_ns[0] <= times_ns[-1] <= time.clock_gettime_ns(time.CLOCK_REALTIME)
    assert set(sizes) == {len(request(0))}
    step = _native.NOTED_BYTES
    numbers = [struct.unpack_from("!I", heads, at + 50)[0] & 0xFFFFFF for at in range(0, len(heads), step)]
    assert numbers == [(first + number) % (1 << 24) for number in range(count)]
    assert 0 < len(seen) <= left <= count
    assert seen[-1] == numbers[-1]


def test_what_is_not_for_this_queue_pair_is_not_answered(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, card = ends
    other = Addresses(CARD.our_mac, CARD.their_mac, IPv4Address("198.18.9.3"), CARD.their_ip)
    for frame in (request(1, qpn=OUR_QPN + 1), request(2, sender=other), request(3)[:50], b"\0" * 14):
        card.send(frame)
    card.send(request(4))
    found = _native.answer_requests(ours.fileno(), acknowledgement(), OUR_QPN, 1, -1, 2_000 * MS)
    assert len(found[0]) == 1
    assert acknowledged(card) == 4


@pytest.mark.parametrize(
    ("sentence", "until_ns", "patience_ns"),
    [("a time that is over", 0, 0), ("nothing comes for a millisecond", -1, MS)],
)
def test_it_ends(
    ends: tuple[socket.socket, socket.socket], sentence: str, until_ns: int, patience_ns: int
) -> None:
    assert _native.answer_requests(
        ends[0].fileno(), acknowledgement(), OUR_QPN, 10, until_ns, patience_ns
    ) == ([], [], b"", 0), sentence


def test_what_cannot_be_used_is_refused(ends: tuple[socket.socket, socket.socket]) -> None:
    with pytest.raises(OSError, match="Invalid argument"):
        _native.answer_requests(ends[0].fileno(), b"short", OUR_QPN, 1, 0, 0)
    with pytest.raises(OSError, match="Bad file descriptor"):
        _native.answer_requests(-1, acknowledgement(), OUR_QPN, 1, 0, 0)
