"""Ethernet, IPv4 and UDP around RoCEv2, as an experiment sends them and reads them. Pure.

Decides which frames are the card's: UDP to port 4791 from its address, whole, with a header that says so.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from etloop.experiments.nic.link.wire import Arrival, Departure
from etloop.traffic import _native

if TYPE_CHECKING:
    from ipaddress import IPv4Address

ROCE_PORT: Final = 4791
_IPV4: Final = 0x0800
_UDP: Final = 17
_DO_NOT_FRAGMENT: Final = 0x4000
TTL: Final = 64


@dataclass(frozen=True, slots=True)
class Addresses:
    """Both ends of a link."""

    our_mac: bytes
    their_mac: bytes
    our_ip: IPv4Address
    their_ip: IPv4Address


def frame_of(departure: Departure, addresses: Addresses) -> bytes:
    """Return the frame of a datagram, without FCS: identification 0, DF, and no UDP checksum, as the ICRC counts on."""
    udp_bytes = len(departure.datagram) + 8
    traffic_class = departure.dscp << 2 | departure.ecn
    head = struct.pack(
        "!BBHHHBBH4s4s",
        0x45, traffic_class, udp_bytes + 20, 0, _DO_NOT_FRAGMENT, TTL, _UDP, 0,
        addresses.our_ip.packed, addresses.their_ip.packed,
    )  # fmt: skip
    head = head[:10] + struct.pack("!H", _checksum(head)) + head[12:]
    udp = struct.pack("!HHHH", departure.source_port, ROCE_PORT, udp_bytes, 0)
    ethernet = addresses.their_mac + addresses.our_mac + struct.pack("!H", _IPV4)
    return ethernet + head + udp + departure.datagram


def arrival_of(frame: bytes, at_ns: int, addresses: Addresses) -> Arrival | None:
    """Return what a frame of the card's carries; None for anybody else's, and for what is no RoCEv2 packet of ours."""
    if len(frame) < 58 or frame[12:14] != b"\x08\x00" or frame[14] != 0x45 or frame[23] != _UDP:
        return None
    if frame[26:30] != addresses.their_ip.packed or frame[30:34] != addresses.our_ip.packed:
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
    whole = frame[: 34 + udp_bytes]
    (ip_id,) = struct.unpack_from("!H", frame, 18)
    return Arrival(
        at_ns, packet, len(payload), frame[15] >> 2, frame[15] & 3, frame[22], ip_id, source_port, whole
    )


def _checksum(head: bytes) -> int:
    total: int = sum(struct.unpack("!10H", head))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
