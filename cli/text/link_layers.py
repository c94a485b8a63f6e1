"""Link layers of capture files, turned into Ethernet frames. Pure.

Numbers: www.tcpdump.org/linktypes.html. A link layer is a function from the bytes of a packet to those from an Ethernet
header on, how many of them were added, and the direction if the layer states it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

LinkLayer = Callable[[bytes], tuple[bytes, int, bool | None]]
ETHERNET: Final = 1
_HEADER_BYTES: Final = 14
_MACS: Final = bytes(12)
_IPV4, _IPV6 = b"\x08\x00", b"\x86\xdd"
_OUTGOING: Final = 4
"""PACKET_OUTGOING, of Linux cooked captures (tcpdump -i any)."""
_COOKED_BYTES: Final = 16
_COOKED_2_BYTES: Final = 20


def link_layer(number: int) -> LinkLayer | None:
    """Return how packets of a link type become Ethernet frames; None for a type that is not read."""
    return _LAYERS.get(number)


def _pass_ethernet(packet: bytes) -> tuple[bytes, int, bool | None]:
    return packet, 0, None


def _convert_raw(packet: bytes) -> tuple[bytes, int, bool | None]:
    """Convert raw IP, whose version field distinguishes IPv4 and IPv6."""
    kind = _IPV6 if packet[:1] and packet[0] >> 4 == 6 else _IPV4
    return _MACS + kind + packet, _HEADER_BYTES, None


def _convert_cooked(packet: bytes) -> tuple[bytes, int, bool | None]:
    """Convert Linux cooked v1: packet type, ARPHRD, address, EtherType."""
    if len(packet) < _COOKED_BYTES:
        return packet[:0], 0, None
    content = _MACS + packet[14:16] + packet[_COOKED_BYTES:]
    return content, _HEADER_BYTES, int.from_bytes(packet[:2]) == _OUTGOING


def _convert_cooked_2(packet: bytes) -> tuple[bytes, int, bool | None]:
    """Convert Linux cooked v2: EtherType, interface, ARPHRD, packet type, address."""
    if len(packet) < _COOKED_2_BYTES:
        return packet[:0], 0, None
    content = _MACS + packet[:2] + packet[_COOKED_2_BYTES:]
    return content, _HEADER_BYTES, packet[10] == _OUTGOING


_LAYERS: Final[dict[int, LinkLayer]] = {
    ETHERNET: _pass_ethernet,
    12: _convert_raw,
    14: _convert_raw,
    101: _convert_raw,
    113: _convert_cooked,
    228: _convert_raw,
    229: _convert_raw,
    276: _convert_cooked_2,
}
"""12 and 14 are raw IP on some systems; 228 and 229 are raw IPv4 and raw IPv6."""
