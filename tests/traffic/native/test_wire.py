"""Our bytes against golden frames, a frame captured from a real NIC, and the ICRC as its definition reads."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etloop.traffic import _native
from tests.support.places import ROOT

GOLDEN: Final = ROOT / "tests" / "data" / "golden.pcap"
BAD_ICRC: Final = 8  # golden frame 0 with a flipped bit in its ICRC
IPV6: Final = 9
CAPTURED_CNP: Final = bytes.fromhex(
    "e41d2dab2bc27cfe90643b32080045c2003c718c4000401191610a0011010a00120100"
    "0012b7002800008100ffff40000118" + "00" * 20 + "82fd002a"
)
"""ConnectX-4 Lx: DSCP 48, ECN 10, UDP source port 0, IPv4 identification 0x718c."""

HEADERS_BYTES: Final = 14 + 20 + 8  # Ethernet, IPv4, UDP


def frames(pcap: bytes) -> list[bytes]:
    """The frames of a little-endian pcap file."""
    assert pcap[:4] == b"\xd4\xc3\xb2\xa1"
    found, at = [], 24
    while at < len(pcap):
        (captured_bytes,) = struct.unpack_from("<I", pcap, at + 8)
        found.append(pcap[at + 16 : at + 16 + captured_bytes])
        at += 16 + captured_bytes
    return found


GOLDEN_FRAMES: Final = frames(GOLDEN.read_bytes())


def icrc_by_definition(ipv4: bytes) -> bytes:
    """The ICRC of an IPv4 packet that stands without it: one CRC-32 over the masked bytes."""
    masked = bytearray(ipv4)
    udp = (masked[0] & 15) * 4
    for at in (1, 8, 10, 11, udp + 6, udp + 7, udp + 12):
        masked[at] = 0xFF
    return struct.pack("<I", zlib.crc32(b"\xff" * 8 + bytes(masked)))


def frame_of(flow: tuple[int, int, int], ip_id: int, datagram: bytes, options: bytes = b"") -> bytes:
    """An Ethernet frame around a datagram that ends with its ICRC; checksums are left 0, they are not covered."""
    src_ip, dst_ip, src_port = flow
    header_length = 20 + len(options)
    total_length = header_length + 8 + len(datagram)
    ip = struct.pack(
        ">BBHHHBBHII", 0x40 | header_length // 4, 0x6A, total_length, ip_id, 0x4000, 64, 17, 0, src_ip, dst_ip
    )
    udp = struct.pack(">HHHH", src_port, 4791, 8 + len(datagram), 0)
    return bytes(12) + b"\x08\x00" + ip + options + udp + datagram


def packet(opcode: int, fields: Mapping[str, int]) -> _native.WirePacket:
    made = _native.WirePacket(opcode)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


@dataclass(frozen=True, slots=True)
class Golden:
    """A golden frame as the values it was made from."""

    index: int
    why: str
    src_port: int
    opcode: int
    fields: Mapping[str, int]
    payload: bytes = b""


CTS_RETH: Final = {"va": 0x7F0000001000, "rkey": 0x1234}
DATA_RETH: Final = {"va": 0x7F1000000000, "rkey": 0x5678}
CTS: Final = {"ack_req": True, "dest_qpn": 0x11, **CTS_RETH}
DATA: Final = {"dest_qpn": 0x12}
ANSWER: Final = {"dest_qpn": 0x13}
ROWS: Final = (
    Golden(0, "a receiver's clear-to-send", 0xC123, 0x0A, {**CTS, "dma_bytes": 64}, bytes(range(64))),
    Golden(
        1, "4096 bytes of a message", 0xC124, 0x06, {**DATA, **DATA_RETH, "dma_bytes": 4100}, b"\xaa" * 4096
    ),
    Golden(2, "its last four", 0xC124, 0x09, {**DATA, "ack_req": True, "psn": 1, "imm": 4100}, b"\xbb" * 4),
    Golden(3, "an empty message", 0xC124, 0x0B, {**DATA, **DATA_RETH, "ack_req": True, "psn": 2}),
    Golden(4, "an acknowledgement", 0xC124, 0x11, {**ANSWER, "psn": 2, "syndrome": 0x1F, "msn": 2}),
    Golden(5, "a sequence error", 0xC124, 0x11, {**ANSWER, "psn": 3, "syndrome": 0x60, "msn": 2}),
    Golden(6, "receiver not ready", 0xC124, 0x11, {**ANSWER, "psn": 3, "syndrome": 0x2C, "msn": 2}),
    Golden(7, "a congestion notification", 0xC124, 0x81, {**ANSWER, "becn": True}),
    Golden(10, "one byte and three of pad", 0xC123, 0x0A, {**CTS, "psn": 2, "dma_bytes": 1}, b"Z"),
)


FIELDS: Final = (
    *("ack_req", "becn", "dest_qpn", "psn", "va", "rkey"),
    *("dma_bytes", "imm", "syndrome", "msn", "qkey", "src_qpn"),
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.why)
def test_golden_values_become_the_golden_bytes(row: Golden) -> None:
    flow = _native.IpFlow("10.0.0.1", "10.0.0.2", row.src_port)
    golden = GOLDEN_FRAMES[row.index][HEADERS_BYTES:]
    assert _native.encode(packet(row.opcode, row.fields), flow, payload=row.payload).hex() == golden.hex()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.why)
def test_golden_bytes_become_the_golden_values(row: Golden) -> None:
    decoded, payload = _native.decode(GOLDEN_FRAMES[row.index][HEADERS_BYTES:])
    assert payload == row.payload
    assert decoded.opcode == row.opcode
    for name in FIELDS:
        assert getattr(decoded, name) == row.fields.get(name, 0), name


@pytest.mark.parametrize("index", range(11))
def test_every_golden_frame_but_the_spoilt_one_is_good(index: int) -> None:
    assert len(GOLDEN_FRAMES) == 11
    expected = "bad_icrc" if index == BAD_ICRC else "good"
    assert _native.check_frame(GOLDEN_FRAMES[index]) == expected


def test_a_real_nic_computes_the_same_icrc() -> None:
    assert _native.check_frame(CAPTURED_CNP) == "good"
    decoded, payload = _native.decode(CAPTURED_CNP[HEADERS_BYTES:])
    assert (decoded.opcode, decoded.becn, decoded.dest_qpn, payload) == (0x81, True, 0x118, b"")


@pytest.mark.parametrize("index", [index for index in range(11) if index != BAD_ICRC])
def test_a_flipped_bit_is_found_wherever_it_is_covered(index: int) -> None:
    frame = GOLDEN_FRAMES[index]
    bth = 14 + (40 if index == IPV6 else 20) + 8
    for at in (bth, bth + 7, bth + 11, len(frame) - 5, len(frame) - 1):
        spoilt = bytearray(frame)
        spoilt[at] ^= 0x10
        assert _native.check_frame(bytes(spoilt)) == "bad_icrc", at


def test_what_routers_change_is_not_covered() -> None:
    changed = bytearray(GOLDEN_FRAMES[1])
    changed[15] = 0x03  # traffic class: congestion experienced
    changed[22] -= 1  # time to live
    changed[24:26] = b"\x12\x34"  # header checksum
    changed[40:42] = b"\x56\x78"  # UDP checksum
    changed[46] = 0x80  # FECN
    assert _native.check_frame(bytes(changed)) == "good"


ETHERNET: Final = GOLDEN_FRAMES[4]
FRAMES_BY_VERDICT: Final = (
    ("good", "a VLAN tag", ETHERNET[:12] + b"\x81\x00\x60\x05" + ETHERNET[12:]),
    ("good", "two VLAN tags", ETHERNET[:12] + b"\x88\xa8\x00\x01\x81\x00\x60\x05" + ETHERNET[12:]),
    ("good", "Ethernet padding behind the packet", ETHERNET + bytes(6)),
    ("not_roce", "three VLAN tags", ETHERNET[:12] + b"\x81\x00\x00\x01" * 3 + ETHERNET[12:]),
    ("not_roce", "ARP", ETHERNET[:12] + b"\x08\x06" + ETHERNET[14:]),
    ("not_roce", "TCP", ETHERNET[:23] + b"\x06" + ETHERNET[24:]),
    ("not_roce", "another UDP port", ETHERNET[:36] + b"\x12\xb8" + ETHERNET[38:]),
    ("not_roce", "a fragment", ETHERNET[:20] + b"\x20\x00" + ETHERNET[22:]),
    ("not_roce", "an IPv6 extension header", GOLDEN_FRAMES[9][:20] + b"\x2c" + GOLDEN_FRAMES[9][21:]),
    ("malformed", "an empty frame", b""),
    ("malformed", "no IP header", ETHERNET[:20]),
    ("malformed", "cut off before the ICRC", ETHERNET[:-1]),
    ("malformed", "IPv4 header length 4", ETHERNET[:14] + b"\x41" + ETHERNET[15:]),
    ("malformed", "IPv6 where the EtherType says IPv4", ETHERNET[:14] + b"\x65" + ETHERNET[15:]),
    ("malformed", "a UDP length that differs from IP's", ETHERNET[:38] + b"\x00\x1b" + ETHERNET[40:]),
    ("malformed", "no room for a BTH", frame_of((1, 2, 3), 0, bytes(12))),
)


@pytest.mark.parametrize(
    ("verdict", "why", "frame"), FRAMES_BY_VERDICT, ids=[row[1] for row in FRAMES_BY_VERDICT]
)
def test_frames_are_told_apart(verdict: str, why: str, frame: bytes) -> None:
    assert _native.check_frame(frame) == verdict, why


def test_ipv4_options_shift_what_is_masked() -> None:
    datagram = GOLDEN_FRAMES[4][HEADERS_BYTES:-4]
    options = bytes.fromhex("94040000" + "01010100")
    ip = frame_of((0x0A000001, 0x0A000002, 0xC124), 0, datagram + bytes(4), options)[14:-4]
    frame = frame_of((0x0A000001, 0x0A000002, 0xC124), 0, datagram + icrc_by_definition(ip), options)
    assert _native.check_frame(frame) == "good"


REASONS: Final = (
    "too short",
    "transport version is not 0",
    "unknown opcode",
    "more pad than payload",
    "length does not fit the opcode",
)


def decoded_or_reason(datagram: bytes) -> bytes | str:
    """The payload, or why there is none."""
    try:
        return _native.decode(datagram)[1]
    except ValueError as refused:
        return str(refused)


@given(st.binary(max_size=200))
def test_any_bytes_decode_or_are_refused_with_a_reason(datagram: bytes) -> None:
    outcome = decoded_or_reason(datagram)
    if isinstance(outcome, bytes):
        assert len(outcome) <= len(datagram) - 16
    else:
        assert outcome in REASONS


@given(st.integers(0, 10), st.binary(max_size=8), st.integers(0, 200))
def test_a_damaged_frame_never_passes(index: int, noise: bytes, at: int) -> None:
    frame = GOLDEN_FRAMES[index]
    at = at % len(frame)
    damaged = frame[:at] + noise + frame[at + len(noise) :]
    bth = 14 + (40 if index == IPV6 else 20) + 8
    if _native.check_frame(damaged) == "good" and index != BAD_ICRC:
        uncovered = {*range(14), 15, 22, 24, 25, 40, 41, bth + 4}
        if index == IPV6:
            uncovered = {*range(14), 14, 15, 16, 17, 21, 60, 61, bth + 4}
        changed = {i for i, (a, b) in enumerate(zip(frame, damaged, strict=True)) if a != b}
        assert changed <= uncovered


def test_numbers_too_wide_for_their_fields_are_refused() -> None:
    flow = _native.IpFlow("0.0.0.1", "0.0.0.2", 3)
    with pytest.raises(ValueError, match="have 24 bits"):
        _native.encode(packet(0x11, {"psn": 1 << 24}), flow)
    with pytest.raises(ValueError, match="opcode 21 is not supported"):
        _native.WirePacket(0x15)
