"""Our bytes against scapy's, packet by packet: an implementation that shares nothing with ours."""

from __future__ import annotations

import struct
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from hypothesis import given
from hypothesis import strategies as st
from scapy.contrib.roce import AETH, BTH, CNPPadding
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.packet import Packet, Raw

from etloop.traffic import _native

U16: Final = st.integers(0, 0xFFFF)
U24: Final = st.integers(0, 0xFFFFFF)
U32: Final = st.integers(0, 0xFFFFFFFF)
U64: Final = st.integers(0, 0xFFFFFFFFFFFFFFFF)
IPV4: Final = st.integers(0x01000000, 0xDFFFFFFF).map(lambda number: str(IPv4Address(number)))
IPV6: Final = st.integers(1 << 125, (1 << 127) - 1).map(lambda number: str(IPv6Address(number)))
ENDS: Final = st.tuples(IPV4, IPV4) | st.tuples(IPV6, IPV6)
"""Source and destination address, of one family."""
WITH_RETH: Final = {0x06, 0x0A, 0x0B, 0x0C}
WITH_IMM: Final = {0x03, 0x05, 0x09, 0x0B}
WITH_INVALIDATE: Final = {0x16, 0x17}
WITH_AETH: Final = {0x0D, 0x0F, 0x10, 0x12}
ATOMICS: Final = {0x13, 0x14}
ATOMIC_ACKNOWLEDGE: Final = 0x12
EMPTY: Final = {0x0C, 0x11, 0x12, 0x13, 0x14, 0x81}
WHOLE: Final = {0x00, 0x01, 0x06, 0x07, 0x0D, 0x0E}
ACKNOWLEDGE: Final = 0x11
UD_SEND_ONLY: Final = 0x64
CNP: Final = 0x81


def by_scapy(ends: tuple[str, str], src_port: int, ip_id: int, bth: Packet) -> bytes:
    """BTH to ICRC as scapy puts it on the wire."""
    src, dst = ends
    udp = UDP(sport=src_port, dport=4791) / bth
    if ":" in src:
        return bytes(IPv6(src=src, dst=dst, tc=0x6A, fl=0x12345) / udp)[48:]
    return bytes(IP(src=src, dst=dst, id=ip_id, flags="DF", tos=0x6A) / udp)[28:]


@st.composite
def packets(draw: st.DrawFn) -> tuple[_native.WirePacket, bytes, bytes]:
    """A packet of ours, its payload, and its extension headers put together by hand."""
    opcode = draw(st.sampled_from((*range(0x15), 0x16, 0x17, UD_SEND_ONLY, CNP)))
    packet = _native.WirePacket(opcode)
    packet.ack_req = draw(st.booleans())
    packet.becn = draw(st.booleans())
    packet.dest_qpn, packet.psn = draw(U24), draw(U24)
    extensions = b""
    if opcode in WITH_RETH:
        packet.va, packet.rkey, packet.dma_bytes = draw(st.integers(0, 2**64 - 1)), draw(U32), draw(U32)
        extensions += struct.pack(">QII", packet.va, packet.rkey, packet.dma_bytes)
    if opcode in ATOMICS:
        packet.va, packet.rkey = draw(U64), draw(U32)
        packet.swap_add, packet.compare = draw(U64), draw(U64)
        extensions += struct.pack(">QIQQ", packet.va, packet.rkey, packet.swap_add, packet.compare)
    if opcode in WITH_INVALIDATE:
        packet.rkey = draw(U32)
        extensions += struct.pack(">I", packet.rkey)
    if opcode in WITH_AETH:
        packet.syndrome, packet.msn = draw(st.integers(0, 255)), draw(U24)
        extensions += struct.pack(">I", packet.syndrome << 24 | packet.msn)
    if opcode == ATOMIC_ACKNOWLEDGE:
        packet.original = draw(U64)
        extensions += struct.pack(">Q", packet.original)
    if opcode in WITH_IMM:
        packet.imm = draw(U32)
        extensions += struct.pack(">I", packet.imm)
    if opcode == ACKNOWLEDGE:
        packet.syndrome, packet.msn = draw(st.integers(0, 255)), draw(U24)
    if opcode == UD_SEND_ONLY:
        packet.qkey, packet.src_qpn = draw(U32), draw(U24)
        extensions += struct.pack(">II", packet.qkey, packet.src_qpn)
    if opcode in EMPTY:
        payload = b""
    elif opcode in WHOLE:
        payload = draw(st.binary(min_size=4, max_size=4)) * draw(st.sampled_from((1, 64, 256, 1024)))
    else:
        payload = draw(st.binary(min_size=1, max_size=70))
    return packet, payload, extensions


@given(packets(), ENDS, U16, U16)
def test_our_bytes_are_scapys(
    case: tuple[_native.WirePacket, bytes, bytes], ends: tuple[str, str], src_port: int, ip_id: int
) -> None:
    packet, payload, extensions = case
    pad = -len(payload) % 4
    bth: Packet = BTH(
        opcode=packet.opcode,
        migreq=packet.opcode != CNP,
        padcount=pad,
        becn=packet.becn,
        dqpn=packet.dest_qpn,
        ackreq=packet.ack_req,
        psn=packet.psn,
    )
    if packet.opcode == ACKNOWLEDGE:
        bth /= AETH(syndrome=packet.syndrome, msn=packet.msn)
    elif packet.opcode == CNP:
        bth /= CNPPadding()
    else:
        bth /= Raw(extensions + payload + bytes(pad))
    ours = _native.encode(packet, _native.IpFlow(*ends, src_port), ip_id, payload)
    assert ours.hex() == by_scapy(ends, src_port, ip_id, bth).hex()

    decoded, same_payload = _native.decode(ours)
    assert same_payload == payload
    assert _native.encode(decoded, _native.IpFlow(*ends, src_port), ip_id, payload) == ours


@given(ENDS, U16, U24, U24, st.integers(1, 15), st.sampled_from((0, 1, 3, 4, 64)))
def test_every_packet_of_a_patched_run_is_scapys(
    ends: tuple[str, str], src_port: int, qpn: int, first_psn: int, count: int, ack_every: int
) -> None:
    head = _native.WirePacket(0x07)
    head.dest_qpn, head.psn, head.payload_bytes = qpn, first_psn, 1024
    run = _native.encode_middles(_native.IpFlow(*ends, src_port), head, count, ack_every)
    assert len(run) == count * 1040
    for i in range(count):
        psn = (first_psn + i) % 2**24
        ack_req = ack_every != 0 and (psn + 1) % 2**24 % ack_every == 0
        bth = BTH(opcode=0x07, migreq=1, dqpn=qpn, ackreq=ack_req, psn=psn) / Raw(b"\xa5" * 1024)
        assert run[i * 1040 :][:1040] == by_scapy(ends, src_port, i, bth), i
