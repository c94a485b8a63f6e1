"""Captured packets -> one line of text each. Pure; `capture_files` reads the packets.

Traffic that is not RoCEv2, MRC or UET gets a line with its protocol.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from etloop.cli.text.capture_files import CapturedFrame
from etloop.cli.text.mrc_lines import FULL as MRC_FULL
from etloop.cli.text.mrc_lines import WRITE_HEADER_BYTES, is_mrc, mrc_text
from etloop.cli.text.uet_lines import UET_UDP_PORT, cut_from, uet_text
from etloop.contract.base.ip_address import NO_ADDRESS, ip_text
from etloop.traffic import _native

_ROCE_UDP_PORT: Final = 4791
_UDP: Final = 17
_FRAGMENT_MASK: Final = 0x1FFF
_IPV4, _IPV6 = b"\x08\x00", b"\x86\xdd"
_NS_PER_US: Final = 1000
_MAPPED: Final = bytes(10) + b"\xff\xff"
_WRITE_RETH: Final = (0x06, 0x0A, 0x0B)
_FULL: Final = (0x00, 0x01, 0x06, 0x07, 0x0E)
"""First and middle packets of a message are one path MTU long."""
_WITH_IMM: Final = (0x03, 0x05, 0x09, 0x0B)
_NAMES: Final = {
    0x00: "SEND_FIRST",
    0x01: "SEND_MIDDLE",
    0x02: "SEND_LAST",
    0x03: "SEND_LAST_IMM",
    0x04: "SEND_ONLY",
    0x05: "SEND_ONLY_IMM",
    0x06: "WRITE_FIRST",
    0x07: "WRITE_MIDDLE",
    0x08: "WRITE_LAST",
    0x09: "WRITE_LAST_IMM",
    0x0A: "WRITE_ONLY",
    0x0B: "WRITE_ONLY_IMM",
    0x0C: "READ_REQUEST",
    0x0D: "READ_RESPONSE_FIRST",
    0x0E: "READ_RESPONSE_MIDDLE",
    0x0F: "READ_RESPONSE_LAST",
    0x10: "READ_RESPONSE_ONLY",
    0x11: "ACK",
    0x12: "ATOMIC_ACK",
    0x13: "CMP_SWAP",
    0x14: "FETCH_ADD",
    0x16: "SEND_LAST_INV",
    0x17: "SEND_ONLY_INV",
    0x64: "UD_SEND",
    0x81: "CNP",
    0xF1: "SELECTIVE_NAK",
    0xF2: "TRIMMED_NAK",
}
_IPV6_INSIDE: Final = 41
_ECN: Final = ("", " ect1", " ect0", " CE")


def capture_lines(frames: tuple[CapturedFrame, ...]) -> Iterator[str]:
    """Yield a line for each frame: microseconds since the first frame, direction ("-" if the file has none), content."""
    for frame in frames:
        time_us = (frame.time_ns - frames[0].time_ns) / _NS_PER_US
        direction = "-" if frame.outbound is None else ">" if frame.outbound else "<"
        yield f"{time_us:12.3f} {direction} {_frame_text(frame)}"


def _frame_text(frame: CapturedFrame) -> str:
    content = frame.content
    at, kind = 12, content[12:14]
    if kind == b"\x81\x00":
        tag = int.from_bytes(content[14:16])
        at, kind, tagged = 16, content[16:18], f" vlan {tag & 0xFFF} pcp {tag >> 13}"
    else:
        tagged = ""
    if kind == b"\x88\x08":
        return _pause(content)
    whole, captured_bytes = len(content) == frame.frame_bytes, frame.frame_bytes - frame.added_bytes
    content, route_text = _strip_outer_header(content, at + 2, kind)
    src, dst, traffic_class, udp = _addresses(content, at + 2, kind)
    if protocol_text := _other_protocol(content, at + 2, kind):
        return f"{captured_bytes} bytes{tagged}, {protocol_text}"
    bth = content[udp + 8 : udp + 20]
    if len(bth) < 12:
        return f"{captured_bytes} bytes, cut before the transport header"
    port, udp_port = int.from_bytes(content[udp : udp + 2]), int.from_bytes(content[udp + 2 : udp + 4])
    datagram, udp_payload_bytes = content[udp + 8 :], max(int.from_bytes(content[udp + 4 : udp + 6]) - 8, 0)
    fields = [f"{ip_text(src)}:{port} > {ip_text(dst)}{route_text}"]
    sizes = f"{captured_bytes} B dscp {traffic_class >> 2}{_ECN[traffic_class & 3]}{tagged}"
    if not _is_known_transport(bth[0], udp_port, content if whole else b""):
        return "  ".join((*fields, f"UDP to port {udp_port}", sizes))
    if udp_port == UET_UDP_PORT:
        fields += [uet_text(datagram, udp_payload_bytes), sizes]
        cut = whole and (udp_payload_bytes > len(datagram) or cut_from(datagram, udp_payload_bytes))
        return "  ".join((*fields, "trimmed" if cut else "no check" if whole else "cut by the capture"))
    text = mrc_text(datagram, udp_payload_bytes) if is_mrc(bth[0]) else _transport(datagram, bth)
    fields += [text, sizes]
    if whole and (was_bytes := _untrimmed_size(content[udp:])):
        return "  ".join((*fields, f"trimmed, {len(content) - udp} of {was_bytes} B of UDP"))
    fields.append(
        "icrc " + (_native.check_frame(content, udp_port).replace("_icrc", "") if whole else "not kept")
    )
    return "  ".join(fields)


def _other_protocol(content: bytes, ip: int, kind: bytes) -> str:
    """Return the protocol of a frame without UDP; "" if it has UDP or is too short to decide."""
    if kind == _IPV4 and len(content) >= ip + 20:
        if int.from_bytes(content[ip + 6 : ip + 8]) & _FRAGMENT_MASK:
            return "a later fragment of an IPv4 packet"
        protocol = content[ip + 9]
    elif kind == _IPV6 and len(content) >= ip + 40:
        protocol = content[ip + 6]
    elif kind in (_IPV4, _IPV6) or len(kind) < 2:
        return ""
    else:
        return f"no IP packet: EtherType 0x{kind.hex()}"
    return "" if protocol == _UDP else f"no UDP datagram: IP protocol {protocol}"


def _is_known_transport(opcode: int, udp_port: int, content: bytes) -> bool:
    """Return whether a UDP datagram belongs to RoCEv2, UET or MRC, by its port or its content.

    MRC has a configurable port. `content` is the whole frame, or empty if the capture truncated it.
    """
    if udp_port in (_ROCE_UDP_PORT, UET_UDP_PORT) or is_mrc(opcode):
        return True
    return bool(content) and _native.check_frame(content, udp_port) == "good"


def _addresses(content: bytes, ip: int, kind: bytes) -> tuple[bytes, bytes, int, int]:
    """Return source and destination address (16 bytes each), traffic class, and the offset of the UDP header."""
    if kind == _IPV4 and len(content) >= ip + 20:
        src, dst = _MAPPED + content[ip + 12 : ip + 16], _MAPPED + content[ip + 16 : ip + 20]
        return src, dst, content[ip + 1], ip + (content[ip] & 15) * 4
    if kind == _IPV6 and len(content) >= ip + 40:
        return (
            content[ip + 8 : ip + 24],
            content[ip + 24 : ip + 40],
            int.from_bytes(content[ip : ip + 2]) >> 4 & 0xFF,
            ip + 40,
        )
    return NO_ADDRESS, NO_ADDRESS, 0, len(content)


def _strip_outer_header(content: bytes, ip: int, kind: bytes) -> tuple[bytes, str]:
    """Return a frame without its outer IPv6 header, but with that header's traffic class, and its segments as text."""
    outer = content[ip : ip + 40]
    if kind != _IPV6 or len(outer) < 40 or outer[6] != _IPV6_INSIDE or len(content) < ip + 42:
        return content, ""
    # The ICRC covers neither traffic class nor flow label.
    inner = outer[:2] + content[ip + 42 :]
    return content[:ip] + inner, f" via {_segments_text(outer[24:])}"


def _segments_text(destination: bytes) -> str:
    """Return the uSID block of an outer destination address and its remaining micro-segments (SRv6)."""
    left = [int.from_bytes(destination[at : at + 2]) for at in range(4, 16, 2)]
    while left and left[-1] == 0:
        left.pop()
    block = f"{int.from_bytes(destination[:2]):x}:{int.from_bytes(destination[2:4]):x}"
    return f"{block} [{' '.join(f'{usid:04x}' for usid in left)}]"


def _untrimmed_size(udp: bytes) -> str:
    """Return the original bytes of a UDP packet that a switch trimmed; "" if it is whole, or its lengths do not show it."""
    udp_payload_bytes, opcode = int.from_bytes(udp[4:6]), udp[8]
    if udp_payload_bytes > len(udp):
        return str(udp_payload_bytes)
    # The switch may have rewritten the lengths, but no path MTU is below 256 bytes, and only the last packet is shorter.
    header_bytes = WRITE_HEADER_BYTES if is_mrc(opcode) else 12 + (16 if opcode in _WRITE_RETH else 0)
    shortest_bytes = 8 + header_bytes + 256 + 4
    is_full = opcode in _FULL or opcode in MRC_FULL
    return f"{shortest_bytes} or more" if is_full and udp_payload_bytes < shortest_bytes else ""


def _transport(datagram: bytes, bth: bytes) -> str:
    opcode = bth[0]
    text = f"{_NAMES.get(opcode, f'opcode {opcode:#04x}')} qp {int.from_bytes(bth[5:8]):#x} psn {int.from_bytes(bth[9:12])}"
    text += " ackreq" if bth[8] & 0x80 else ""
    text += " becn" if bth[4] & 0x40 else ""
    text += " fecn" if bth[4] & 0x80 else ""
    extension = datagram[12:]
    if opcode in (0x0D, 0x0F, 0x10, 0x11, 0x12, 0xF1, 0xF2) and len(extension) >= 4:
        text += _syndrome_text(extension[0]) + f" msn {int.from_bytes(extension[1:4])}"
    if opcode in (*_WRITE_RETH, 0x0C) and len(extension) >= 16:
        va, rkey, size = struct.unpack(">QII", extension[:16])
        text += f" va {va:#x} rkey {rkey:#x} len {size}"
        extension = extension[16:]
    if opcode in _WITH_IMM and len(extension) >= 4:
        text += f" imm {int.from_bytes(extension[:4])}"
    return text


def _syndrome_text(syndrome: int) -> str:
    """Return the syndrome of an ACK as text, "" for a plain ACK (IBTA vol. 1, 9.7.5.1.2)."""
    match syndrome >> 5:
        case 0:
            return ""
        case 1:
            return f" RNR timer {syndrome & 31}"
        case 3:
            codes = ("sequence error", "invalid request", "remote access error", "remote operational error")
            code = syndrome & 31
            return f" NAK {codes[code] if code < len(codes) else code}"
        case _:
            return f" syndrome {syndrome:#04x}"


def _pause(content: bytes) -> str:
    enabled, *quanta = struct.unpack_from(">9H", content.ljust(34, b"\0"), 16)
    parts = [f"{priority}: {quanta[priority]}" for priority in range(8) if enabled >> priority & 1]
    return f"PAUSE quanta by priority {{{', '.join(parts)}}}"
