"""What the frames of a lab are: whole ones with the checksums of network cards, and corrupted ones that no socket gets."""

from __future__ import annotations

import socket
import struct
from dataclasses import replace

import pytest

from etloop.contract.model.topology import SwitchFault
from tests.lab.test_lab_truths import (
    FRAME_BYTES,
    NO_NAMESPACES,
    PORT,
    around,
    bench,
    namespaces_are_allowed,
    received,
    star,
)

pytestmark = pytest.mark.skipif(not namespaces_are_allowed(), reason=NO_NAMESPACES)


def taken(tap: socket.socket) -> list[bytes]:
    """Every frame that came in, in order."""
    out: list[bytes] = []
    while True:
        try:
            frame, sender = tap.recvfrom(1 << 16)
        except BlockingIOError:
            return out
        if sender[2] != socket.PACKET_OUTGOING:
            out.append(frame)


def udp_checksum(frame: bytes) -> int:
    """The checksum of a UDP datagram over IPv4 without options (RFC 768), by numbers of any size instead of folding."""
    udp = frame[34:40] + b"\0\0" + frame[42:]
    covered = frame[26:34] + bytes((0, 17)) + len(udp).to_bytes(2, "big") + udp
    total = sum(struct.unpack(f">{(len(covered) + 1) // 2}H", covered + b"\0" * (len(covered) % 2)))
    return 0xFFFF - (total % 0xFFFF or 0xFFFF) or 0xFFFF


def test_a_corrupted_packet_is_handed_over_and_no_socket_gets_it() -> None:
    """Its checksum is no longer left for the host's kernel to work out."""
    settings = replace(star(2, lossless=True), faults=(SwitchFault(every=3, corrupt=True),))
    with bench(around(settings)) as lab, lab.sink(0) as sink:
        lab.burst(1, 0, 30)
        snapshot = lab.settled(30)
        came = received(sink)
    assert int(snapshot.ports["tx_frames"][0]) == 30
    assert snapshot.switch_ports[0]["fault_corrupted_packets"].tolist() == [0, 10]
    assert len(came) == 20


@pytest.mark.parametrize("port", [PORT, 9000])
def test_captures_show_the_udp_checksums_that_a_network_card_would_have_sent(port: int) -> None:
    """RoCEv2 has none; everything else has the right one, joined by its host or not."""
    with bench(around(star(2, lossless=True))) as lab, lab.frames(0) as tap:
        lab.burst(1, 0, 7, to_port=port)
        lab.settled(7)
        frames = [frame for frame in taken(tap) if frame[12:14] == b"\x08\x00"]
    assert [len(frame) for frame in frames] == [FRAME_BYTES - 4] * 7
    assert {int.from_bytes(frame[36:38], "big") for frame in frames} == {port}
    checksums = [int.from_bytes(frame[40:42], "big") for frame in frames]
    assert checksums == [0 if port == PORT else udp_checksum(frame) for frame in frames]
