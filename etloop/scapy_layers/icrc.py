"""The invariant CRC of RoCEv2, RoCE and MRC packets: computed when a packet is built, and checked.

Source: InfiniBand Architecture Specification vol. 1, annex A17.3.3 (RoCEv2) and A16 (RoCE).
"""

from __future__ import annotations

from typing import Final
from zlib import crc32

from scapy.contrib.roce import BTH, GRH
from scapy.layers.inet import IP
from scapy.layers.inet6 import IPv6
from scapy.packet import Packet, Raw

ICRC_BYTES: Final = 4
_UDP_BYTES: Final = 8
_UDP_CHECKSUM_AT: Final = 6
_RESERVED_AT: Final = 4
"""The byte of the BTH with FECN and BECN, which a switch may change."""
_LOCAL_ROUTE_HEADER: Final = b"\xff" * 8

TRANSPORTS: Final[list[type[Packet]]] = [BTH]
"""Layers whose last field is an ICRC; etloop.scapy_layers.mrc adds its own."""


def transport_of(packet: Packet) -> Packet:
    """Return the layer of a packet that has an ICRC. Raise `ValueError` for a packet without one."""
    for transport in TRANSPORTS:
        layer: Packet | None = packet.getlayer(transport)
        if layer is not None:
            return layer
    message = f"{packet.summary()}: has no ICRC; expected a packet with a BTH or MRC layer"
    raise ValueError(message)


def icrc_of(packet: Packet) -> int:
    """Return the ICRC that a packet should have, as its field `icrc` has it. Raise `ValueError` for a packet without one."""
    transport = transport_of(packet)
    content = (
        transport.do_build()
    )  # without the padding of a short Ethernet frame, which `bytes` would append
    value = compute_icrc(transport, content[:-ICRC_BYTES])
    if value is None:
        message = f"{packet.summary()}: has no IP, IPv6 or GRH layer, which the ICRC covers"
        raise ValueError(message)
    return int.from_bytes(value, "big")


def icrc_ok(packet: Packet) -> bool:
    """Return whether a packet is whole and its ICRC is right. Raise `ValueError` for a packet without one.

    Scapy itself never checks the ICRC of a packet that it dissects, and tshark neither.
    """
    expected = icrc_of(packet)
    transport = transport_of(packet)
    icrc = transport.getfieldval("icrc")
    return _is_whole(transport) and (icrc is None or icrc == expected)


def _network_of(transport: Packet) -> Packet | None:
    """Return the IP, IPv6 or GRH layer below, through UDP and extension headers."""
    layer = transport.underlayer
    while layer is not None and not isinstance(layer, IP | IPv6 | GRH):
        layer = layer.underlayer
    return layer


def _is_whole(transport: Packet) -> bool:
    """Return whether the packet has as many bytes as its network layer states; a capture may have cut it."""
    network = _network_of(transport)
    assert network is not None
    stated = network.getfieldval({IP: "len", IPv6: "plen", GRH: "paylen"}[type(network)])
    if stated is None:
        return True
    counted_header_bytes = 4 * network.getfieldval("ihl") if isinstance(network, IP) else 0
    whole: bool = counted_header_bytes + len(network.payload.do_build()) >= stated
    return whole


def compute_icrc(transport: Packet, content: bytes) -> bytes | None:
    """Return the ICRC on the wire, of a transport layer whose bytes up to the ICRC are `content`; None without a network
    layer.
    """
    network = _network_of(transport)
    if network is None:
        return None
    copied = network.copy()
    below = copied
    while type(below.payload) is not type(transport):
        below = below.payload
    # The room of the ICRC counts in the lengths. Assigned, because `add_payload` would reset what the upper layer sets below.
    below.payload = Raw(content + bytes(ICRC_BYTES))
    packet = bytearray(bytes(copied))
    transport_at = len(packet) - len(content) - ICRC_BYTES
    del packet[-ICRC_BYTES:]
    _mask(packet, transport_at, is_roce_v1=isinstance(network, GRH))
    return crc32(_LOCAL_ROUTE_HEADER + packet).to_bytes(ICRC_BYTES, "little")


def _mask(packet: bytearray, transport_at: int, *, is_roce_v1: bool) -> None:
    """Replace what switches may change by ones: ECN and DSCP, hop limit, checksums, FECN and BECN."""
    variant = [transport_at + _RESERVED_AT]
    if packet[0] >> 4 == 4:
        variant += [1, 8, 10, 11]
    else:
        packet[0] |= 0x0F
        variant += [1, 2, 3, 7]
    if not is_roce_v1:
        checksum_at = transport_at - _UDP_BYTES + _UDP_CHECKSUM_AT
        variant += [checksum_at, checksum_at + 1]
    for position in variant:
        packet[position] = 0xFF
