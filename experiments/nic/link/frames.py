"""Encodes and decodes Ethernet, IPv4 and UDP around RoCEv2 for experiments. Pure.

Decides which frames are the card's: complete UDP packets to port 4791 from its address, with a valid header.
"""

from __future__ import annotations

import struct
import zlib
from ipaddress import IPv4Address
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.experiments.nic.link.wire import Arrival, Departure
from etloop.traffic import _native

ROCE_PORT: Final = 4791
_IPV4: Final = 0x0800
_UDP: Final = 17
_DO_NOT_FRAGMENT: Final = 0x4000
TTL: Final = 64
BTH: Final = 42
"""Offset of the BTH in a frame."""
_ICRC_BYTES: Final = 4
_NOT_COVERED: Final = (15, 22, 24, 25, 40, 41, BTH + 4)
"""Bytes that switches may change, all ones to the ICRC: traffic class, TTL, checksums, and the BTH's FECN, BECN and reserved."""
_PAUSED: Final = bytes.fromhex("0180c2000001")
_MAC_CONTROL: Final = b"\x88\x08"
_PRIORITY_FLOW_CONTROL: Final = b"\x01\x01"
_LEAST_FRAME_BYTES: Final = 60


@dataclass(frozen=True, slots=True)
class Addresses:
    """Both ends of a link."""

    our_mac: bytes
    their_mac: bytes
    our_ip: IPv4Address
    their_ip: IPv4Address
    our_other_ip: IPv4Address | None = None
    """Second local address, of the same interface."""

    @property
    def our_ips(self) -> tuple[IPv4Address, ...]:
        """Return all local addresses, the usual one first."""
        return (self.our_ip,) if self.our_other_ip is None else (self.our_ip, self.our_other_ip)


def frame_of(departure: Departure, addresses: Addresses) -> bytes:
    """Return the frame of a datagram, without FCS: identification 0, DF, and no UDP checksum, as the ICRC assumes."""
    udp_bytes = len(departure.datagram) + 8
    traffic_class = departure.dscp << 2 | departure.ecn
    head = struct.pack(
        "!BBHHHBBH4s4s",
        0x45, traffic_class, udp_bytes + 20, 0, _DO_NOT_FRAGMENT, TTL, _UDP, 0,
        addresses.our_ips[departure.address].packed, addresses.their_ip.packed,
    )  # fmt: skip
    head = head[:10] + struct.pack("!H", _checksum(head)) + head[12:]
    udp = struct.pack("!HHHH", departure.source_port, ROCE_PORT, udp_bytes, 0)
    ethernet = addresses.their_mac + addresses.our_mac + struct.pack("!H", _IPV4)
    return ethernet + head + udp + departure.datagram


def arrival_of(frame: bytes, at_ns: int, addresses: Addresses) -> Arrival | None:
    """Decode a frame of the card; None for a frame of another sender or destination, or an invalid RoCEv2 packet."""
    if len(frame) < 58 or frame[12:14] != b"\x08\x00" or frame[14] != 0x45 or frame[23] != _UDP:
        return None
    if frame[26:30] != addresses.their_ip.packed or IPv4Address(frame[30:34]) not in addresses.our_ips:
        return None
    source_port, to_port, udp_bytes = struct.unpack_from("!HHH", frame, 34)
    if to_port != ROCE_PORT or not 24 <= udp_bytes <= len(frame) - 34:
        return None
    if _native.check_frame(frame[: 34 + udp_bytes]) != "good":
        return None
    try:
        packet, payload = _native.decode(frame[42 : 34 + udp_bytes])
    except ValueError:
        return None
    unpadded = frame[: 34 + udp_bytes]
    (ip_id,) = struct.unpack_from("!H", frame, 18)
    return Arrival(
        at_ns,
        packet,
        len(payload),
        frame[15] >> 2,
        frame[15] & 3,
        frame[22],
        ip_id,
        source_port,
        unpadded,
    )


def with_icrc(frame: bytes) -> bytes:
    """Return a RoCEv2 frame with the ICRC of its content (IBTA 1.4, annex A17.3)."""
    covered = bytearray(frame[14:-_ICRC_BYTES])
    for offset in _NOT_COVERED:
        covered[offset - 14] = 0xFF
    return frame[:-_ICRC_BYTES] + struct.pack("<I", zlib.crc32(b"\xff" * 8 + covered))


def trim(frame: bytes, keep_bytes: int, dscp: int, *, says_so: bool) -> bytes:
    """Return a frame trimmed by a switch; `says_so`: with corrected lengths, which not all switches write."""
    shortened = bytearray(frame[:keep_bytes])
    shortened[15] = dscp << 2 | shortened[15] & 3
    if says_so:
        struct.pack_into("!H", shortened, 16, len(shortened) - 14)
        struct.pack_into("!H", shortened, 38, len(shortened) - 34)
    shortened[24:26] = b"\0\0"
    struct.pack_into("!H", shortened, 24, _checksum(bytes(shortened[14:34])))
    return bytes(shortened)


def pause_frame(our_mac: bytes, quanta: int) -> bytes:
    """Return a priority flow control frame that stops all eight priorities for `quanta` times 512 bits (IEEE 802.1Qbb)."""
    body = _PRIORITY_FLOW_CONTROL + b"\x00\xff" + struct.pack("!H", quanta) * 8
    return (_PAUSED + our_mac + _MAC_CONTROL + body).ljust(_LEAST_FRAME_BYTES, b"\0")


def quanta_of(frame: bytes) -> int | None:
    """Return the quanta for which a frame pauses its receiver; None if it is not a priority flow control frame."""
    if frame[12:16] != _MAC_CONTROL + _PRIORITY_FLOW_CONTROL:
        return None
    (quanta,) = struct.unpack_from("!H", frame, 18)
    return int(quanta)


def _checksum(head: bytes) -> int:
    total: int = sum(struct.unpack("!10H", head))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
