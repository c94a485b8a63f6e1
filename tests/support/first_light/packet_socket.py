"""Frames as they are on an interface, taken by a packet socket (for root), and what stands in them.

The parsing is written from the formats alone: Ethernet, IPv4, UDP, the base transport header of InfiniBand and its ICRC.
"""

from __future__ import annotations

import contextlib
import ctypes
import socket
import struct
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from typing import Final

ROCE_PORT: Final = 4791
EVERY_PROTOCOL: Final = 3
SO_RCVBUFFORCE: Final = 33
SO_ATTACH_FILTER: Final = 26
SO_RXQ_BYTES: Final = 512 << 20
"""Room for every frame of a run, so that the socket is read only once the run is over."""
SOL_PACKET: Final = 263
PACKET_STATISTICS: Final = 6
INSTRUCTION_BYTES: Final = 8
JUMP_TO_REJECT: Final = 255
PACKET_OUTGOING: Final = 4
LARGEST_FRAME_BYTES: Final = 70_000
WITH_IMMEDIATE: Final = frozenset({9, 11})
RETH_BYTES: Final = {6: 16, 10: 16, 11: 16}
"""Of RDMA WRITE FIRST, ONLY and ONLY WITH IMMEDIATE; the others of 6 to 11 have none."""
WRITES: Final = range(6, 12)


@dataclass(slots=True)
class Capture:
    """RoCEv2 frames in the order of the interface."""

    frames: list[bytes] = field(default_factory=list)
    lost: int = 0
    """Frames that the kernel had no room for."""


@contextlib.contextmanager
def capture(interface: str, network: str) -> Iterator[Capture]:
    """Takes what passes `interface` to UDP port 4791 of addresses that begin with `network`; complete after the block.

    On loopback every frame passes twice, out and in; it is taken coming in. The kernel filters: frames of other tests
    on the same interface would fill the queue otherwise.
    """
    taken = Capture()
    program = network_filter(network, incoming_only=interface == "lo")
    instructions = ctypes.create_string_buffer(program, len(program))
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(EVERY_PROTOCOL)) as tap:
        tap.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, SO_RXQ_BYTES)
        tap.setsockopt(
            socket.SOL_SOCKET,
            SO_ATTACH_FILTER,
            struct.pack("HL", len(program) // INSTRUCTION_BYTES, ctypes.addressof(instructions)),
        )
        tap.bind((interface, EVERY_PROTOCOL))
        yield taken
        tap.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                frame, (_, _, direction, *_) = tap.recvfrom(LARGEST_FRAME_BYTES)
                if (interface == "lo" and direction == PACKET_OUTGOING) or not is_ours(frame, network):
                    continue
                taken.frames.append(frame)
        _, taken.lost = struct.unpack("II", tap.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))


def network_filter(network: str, *, incoming_only: bool) -> bytes:
    """Return a classic BPF program that accepts UDP to the RoCE port of IPv4 addresses beginning with `network`."""
    parts = network.split(".")
    prefix = int.from_bytes(bytes(map(int, parts)).ljust(4, b"\0"))
    mask = (0xFFFFFFFF << (32 - 8 * len(parts))) & 0xFFFFFFFF
    load_word, load_half, load_byte, equal, and_, accept = 0x20, 0x28, 0x30, 0x15, 0x54, 0x06
    packet_type = 0xFFFFF000 + 4  # SKF_AD_OFF + SKF_AD_PKTTYPE
    tests = [(load_half, 12, 0x0800), (load_byte, 23, socket.IPPROTO_UDP), (load_half, 36, ROCE_PORT)]
    program: list[tuple[int, int, int, int]] = []
    if incoming_only:
        program += [(load_word, 0, 0, packet_type), (equal, JUMP_TO_REJECT, 0, PACKET_OUTGOING)]
    for load, offset, value in tests:
        program += [(load, 0, 0, offset), (equal, 0, JUMP_TO_REJECT, value)]
    program += [(load_word, 0, 0, 30), (and_, 0, 0, mask), (equal, 0, JUMP_TO_REJECT, prefix)]
    program += [(accept, 0, 0, 0xFFFFFFFF), (accept, 0, 0, 0)]
    reject = len(program) - 1
    return b"".join(
        struct.pack(
            "HBBI", code, *(reject - at - 1 if jump == JUMP_TO_REJECT else jump for jump in jumps), value
        )
        for at, (code, *jumps, value) in enumerate(program)
    )


def is_ours(frame: bytes, network: str) -> bool:
    """Whether a frame is UDP over IPv4 without options to the RoCE port of such an address."""
    if len(frame) < 42 or frame[12:15] != b"\x08\x00\x45" or frame[23] != socket.IPPROTO_UDP:
        return False
    (port,) = struct.unpack_from(">H", frame, 36)
    return port == ROCE_PORT and str(IPv4Address(frame[30:34])).startswith(f"{network}.")


def icrc_holds(frame: bytes) -> bool:
    """The ICRC as InfiniBand's annex 17 defines it: CRC-32 over the packet with the fields that change on the way masked."""
    masked = bytearray(frame[14:-4])
    for at in (1, 8, 10, 11, 26, 27, 32):  # TOS, TTL, header checksum, UDP checksum, FECN/BECN/resv8a
        masked[at] = 0xFF
    return struct.pack("<I", zlib.crc32(b"\xff" * 8 + bytes(masked))) == frame[-4:]


@dataclass(frozen=True, slots=True)
class Packet:
    """What a test needs of one RoCEv2 packet."""

    opcode: int
    destination_qpn: int
    psn: int
    payload_bytes: int
    dscp: int


def packet(frame: bytes) -> Packet:
    """The packet in a frame of ours."""
    opcode, flags = frame[42], frame[43]
    destination_qpn, psn = (int.from_bytes(frame[at : at + 3]) for at in (47, 51))
    headers_bytes = 12 + RETH_BYTES.get(opcode, 0) + (4 if opcode in WITH_IMMEDIATE else 0)
    (udp_bytes,) = struct.unpack_from(">H", frame, 38)
    assert len(frame) == 34 + udp_bytes, "the frame holds one datagram"
    payload_bytes = udp_bytes - 8 - headers_bytes - 4 - (flags >> 4 & 3)
    return Packet(opcode, destination_qpn, psn, payload_bytes, frame[15] >> 2)


def written_bytes(packets: Iterable[Packet]) -> dict[int, int]:
    """Destination queue pair -> payload of its RDMA WRITE packets, each counted once however often it was sent."""
    once: dict[int, dict[int, int]] = defaultdict(dict)
    for found in packets:
        if found.opcode in WRITES:
            once[found.destination_qpn][found.psn] = found.payload_bytes
    return {qpn: sum(by_psn.values()) for qpn, by_psn in once.items()}


def pcap(frames: Iterable[bytes]) -> bytes:
    """A capture file of Ethernet frames."""
    header = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 1 << 18, 1)
    return header + b"".join(struct.pack("<IIII", 0, 0, len(frame), len(frame)) + frame for frame in frames)
