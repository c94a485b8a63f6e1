"""Ethernet frames of raw flows, laid out from the fields of their headers. Pure.

Lengths, types and checksums without a value are computed. Behind the headers is the signature of `FrameStream`, then zeros.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from enum import Enum
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.frame_streams import FCS_BYTES, MARK, SIGNATURE_BYTES

_TCP_PROTOCOL: Final = 6
_UDP_PROTOCOL: Final = 17
_ANY_PROTOCOL: Final = 61
"""Any host internal protocol (IANA), of packets without a TCP or UDP header."""
_NO_TYPE: Final = 0xFFFF
"""EtherType of frames without an IP header."""


class HeaderKind(Enum):
    """Header that a frame can have. Values as OTG writes them."""

    ETHERNET = "ethernet"
    VLAN = "vlan"
    IPV4 = "ipv4"
    IPV6 = "ipv6"
    UDP = "udp"
    TCP = "tcp"


@dataclass(frozen=True, slots=True)
class FieldValues:
    """One field of a header, in the order of the wire."""

    key: str
    bits: int
    """0: a value for the header before."""
    values: tuple[int, ...]
    """Values of consecutive frames, over and over; (): computed."""


@dataclass(frozen=True, slots=True)
class Header:
    """One header of all frames of a flow."""

    kind: HeaderKind
    fields: tuple[FieldValues, ...]

    @property
    def size_bytes(self) -> int:
        """Return its length."""
        return sum(field.bits for field in self.fields) // 8

    def offset_bytes(self, key: str) -> int:
        """Return the offset of a field that begins at a byte."""
        return (
            sum(field.bits for field in self.fields[: [field.key for field in self.fields].index(key)]) // 8
        )


def cycle_frames(headers: Sequence[Header], sizes: Sequence[int]) -> int:
    """Return after how many frames the fields and sizes repeat."""
    lengths = [len(field.values) for header in headers for field in header.fields if field.values]
    return math.lcm(len(sizes), *lengths)


def headers_bytes(headers: Sequence[Header]) -> int:
    """Return the length of all headers: the offset of the signature."""
    return sum(header.size_bytes for header in headers)


def build_frame(headers: Sequence[Header], index: int, size_bytes: int, number: int) -> bytes:
    """Return frame `index` of a flow, without FCS; `size_bytes` counts the FCS, and `number` is that of its signature."""
    frame = bytearray(size_bytes - FCS_BYTES)
    offset, offsets = 0, []
    for position, header in enumerate(headers):
        value = 0
        for field in header.fields:
            if not field.bits:
                continue
            entry = (
                field.values[index % len(field.values)]
                if field.values
                else _compute_value(headers, position, field.key, len(frame) - offset)
            )
            value = value << field.bits | entry
        frame[offset : offset + header.size_bytes] = value.to_bytes(header.size_bytes, "big")
        offsets.append(offset)
        offset += header.size_bytes
    # The time of sending and its complement sum up to 0xFFFF, which a ones' complement sum takes for 0.
    struct.pack_into(f">{len(MARK)}sIQH", frame, offset, MARK, number, 0, 0xFFFF)
    for position in reversed(range(len(headers))):
        _fill_checksum(frame, headers, offsets, position)
    return bytes(frame)


def _compute_value(headers: Sequence[Header], position: int, key: str, rest_bytes: int) -> int:
    """Return the value of a field without one; `rest_bytes` is the length of the frame from its header on."""
    following = headers[position + 1].kind if position + 1 < len(headers) else None
    match key:
        case "ether_type" if following is HeaderKind.VLAN:
            tag = next(field for field in headers[position + 1].fields if field.key == "tpid")
            return tag.values[0]
        case "ether_type":
            types = {HeaderKind.IPV4: 0x0800, HeaderKind.IPV6: 0x86DD}
            return types.get(following, _NO_TYPE) if following is not None else _NO_TYPE
        case "protocol" | "next_header":
            protocols = {HeaderKind.TCP: _TCP_PROTOCOL, HeaderKind.UDP: _UDP_PROTOCOL}
            return protocols.get(following, _ANY_PROTOCOL) if following is not None else _ANY_PROTOCOL
        case "total_length" | "length":
            return rest_bytes
        case "payload_length":
            return rest_bytes - headers[position].size_bytes
        case "header_checksum" | "checksum":
            return 0
    raise AssertionError(f"{key} is not computed")


def _fill_checksum(
    frame: bytearray, headers: Sequence[Header], offsets: Sequence[int], position: int
) -> None:
    """Write the checksum of a header, if it is computed."""
    header, offset = headers[position], offsets[position]
    key = "header_checksum" if header.kind is HeaderKind.IPV4 else "checksum"
    if all(field.key != key or field.values for field in header.fields):
        return
    covered = bytes(frame[offset : offset + header.size_bytes])
    if header.kind is not HeaderKind.IPV4:
        covered = _pseudo_header(frame, headers, offsets, position) + bytes(frame[offset:])
    checksum = 0xFFFF - ones_complement_sum(covered)
    if header.kind is HeaderKind.UDP and checksum == 0:
        checksum = 0xFFFF
    struct.pack_into(">H", frame, offset + header.offset_bytes(key), checksum)


def _pseudo_header(
    frame: bytearray, headers: Sequence[Header], offsets: Sequence[int], position: int
) -> bytes:
    """Return the part of the IP header that a TCP or UDP checksum covers (RFC 793, RFC 8200); b"" without IP."""
    length = len(frame) - offsets[position]
    protocol = _TCP_PROTOCOL if headers[position].kind is HeaderKind.TCP else _UDP_PROTOCOL
    ip, offset = headers[position - 1], offsets[position - 1]
    addresses = bytes(frame[offset + ip.offset_bytes("src") : offset + ip.size_bytes])
    if ip.kind is HeaderKind.IPV4:
        return addresses + struct.pack(">HH", protocol, length)
    return addresses + struct.pack(">II", length, protocol)


def ones_complement_sum(data: bytes) -> int:
    """Return the ones' complement sum of 16-bit words (RFC 1071); an odd byte is followed by 0."""
    padded = data + b"\0" * (len(data) % 2)
    total: int = sum(struct.unpack(f">{len(padded) // 2}H", padded))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def least_size_bytes(headers: Sequence[Header]) -> int:
    """Return the least frame size, with FCS, that has room for headers and signature."""
    return headers_bytes(headers) + SIGNATURE_BYTES + FCS_BYTES
