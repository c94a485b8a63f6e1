"""Prints a capture with one line per packet, for display. Pure: bytes in, lines out.

Reads the pcapng files that agents write (traffic/native/port/capture): one section, one Ethernet interface, nanoseconds. Other
pcapng files are for Wireshark; invalid content is refused with its byte position in the file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from etloop.cli.text.mrc_lines import FULL as MRC_FULL
from etloop.cli.text.mrc_lines import WRITE_HEADER_BYTES, is_mrc, mrc_text
from etloop.cli.text.uet_lines import UET_UDP_PORT, cut_from, uet_text
from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.ip_address import NO_ADDRESS, ip_text
from etloop.contract.base.late_dataclass import dataclass
from etloop.traffic import _native

_SECTION, _INTERFACE, _STATISTICS, _PACKET = 0x0A0D0D0A, 1, 5, 6
_BYTE_ORDER: Final = 0x1A2B3C4D
_ETHERNET: Final = 1
_HEAD: Final = struct.Struct("<II")
_PACKET_HEAD: Final = struct.Struct("<IIIII")
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


@dataclass(frozen=True, slots=True)
class CapturedFrame:
    """A frame without FCS, complete or cut to the snap length."""

    time_ns: int
    """Since 1970."""
    outbound: bool
    content: bytes
    frame_bytes: int
    """Of the complete frame."""


def frames_of(content: bytes, source: str) -> tuple[tuple[CapturedFrame, ...], int]:
    """Return the frames of a pcapng file, and how many the capture lost. Raise `ConfigError` with the position of invalid
    content."""
    frames: list[CapturedFrame] = []
    lost_frames = 0
    for offset, kind, body in _blocks(content, source):
        if kind == _SECTION and (len(body) < 4 or struct.unpack_from("<I", body)[0] != _BYTE_ORDER):
            raise _refusal(source, offset, "the section is in another byte order")
        if kind == _INTERFACE and (len(body) < 8 or struct.unpack_from("<H", body)[0] != _ETHERNET):
            raise _refusal(source, offset, "the interface is not Ethernet")
        if kind == _PACKET:
            frames.append(_frame(body, source, offset))
        if kind == _STATISTICS and len(body) >= 24:
            lost_frames = int(struct.unpack_from("<Q", body, 16)[0])
    return tuple(frames), lost_frames


def _blocks(content: bytes, source: str) -> Iterator[tuple[int, int, bytes]]:
    if len(content) < 12 or _HEAD.unpack_from(content)[0] != _SECTION:
        raise _refusal(source, 0, "it does not begin with a section header")
    offset = 0
    while offset < len(content):
        length = _HEAD.unpack_from(content, offset)[1] if offset + _HEAD.size <= len(content) else 0
        if length < 12 or length % 4 or offset + length > len(content):
            raise _refusal(source, offset, "a block is cut short or has no sound length")
        yield (
            offset,
            _HEAD.unpack_from(content, offset)[0],
            content[offset + _HEAD.size : offset + length - 4],
        )
        offset += length


def _frame(body: bytes, source: str, at: int) -> CapturedFrame:
    if len(body) < _PACKET_HEAD.size:
        raise _refusal(source, at, "a packet is cut short")
    _, high, low, captured_bytes, frame_bytes = _PACKET_HEAD.unpack_from(body)
    if _PACKET_HEAD.size + captured_bytes > len(body) or captured_bytes > frame_bytes:
        raise _refusal(source, at, "a packet is longer than its block")
    options = body[_PACKET_HEAD.size + (captured_bytes + 3) // 4 * 4 :]
    flags = struct.unpack_from("<HHI", options) if len(options) >= 8 else (0, 0, 0)
    outbound = flags[0] == 2 and flags[2] & 3 == 2
    frame = body[_PACKET_HEAD.size : _PACKET_HEAD.size + captured_bytes]
    return CapturedFrame(high << 32 | low, outbound, frame, frame_bytes)


def _refusal(source: str, at: int, what: str) -> ConfigError:
    remedy = "name a file that `etloop-agent run --capture` wrote; Wireshark opens others"
    return ConfigError(Problem(f"{source}: byte {at}", what, remedy))


def capture_lines(frames: tuple[CapturedFrame, ...]) -> Iterator[str]:
    """Yield one line per frame; times are microseconds since the first one."""
    for frame in frames:
        time_us = (frame.time_ns - frames[0].time_ns) / _NS_PER_US
        yield f"{time_us:12.3f} {'>' if frame.outbound else '<'} {_described(frame)}"


def _described(frame: CapturedFrame) -> str:
    content = frame.content
    offset, kind = 12, content[12:14]
    if kind == b"\x81\x00":
        tag = int.from_bytes(content[14:16])
        offset, kind, tag_text = 16, content[16:18], f" vlan {tag & 0xFFF} pcp {tag >> 13}"
    else:
        tag_text = ""
    if kind == b"\x88\x08":
        return _pause(content)
    is_complete = len(content) == frame.frame_bytes
    content, segments_text = _without_outer(content, offset + 2, kind)
    src, dst, traffic_class, udp = _addresses(content, offset + 2, kind)
    bth = content[udp + 8 : udp + 20]
    if len(bth) < 12:
        return f"{frame.frame_bytes} bytes, cut before the transport header"
    port, udp_port = int.from_bytes(content[udp : udp + 2]), int.from_bytes(content[udp + 2 : udp + 4])
    datagram, stated_bytes = content[udp + 8 :], max(int.from_bytes(content[udp + 4 : udp + 6]) - 8, 0)
    fields = [f"{ip_text(src)}:{port} > {ip_text(dst)}{segments_text}"]
    sizes = f"{frame.frame_bytes} B dscp {traffic_class >> 2}{_ECN[traffic_class & 3]}{tag_text}"
    if udp_port == UET_UDP_PORT:
        fields += [uet_text(datagram, stated_bytes), sizes]
        is_trimmed = is_complete and (stated_bytes > len(datagram) or cut_from(datagram, stated_bytes))
        return "  ".join(
            (*fields, "trimmed" if is_trimmed else "no check" if is_complete else "cut by the capture")
        )
    text = mrc_text(datagram, stated_bytes) if is_mrc(bth[0]) else _transport(datagram, bth)
    fields += [text, sizes]
    if is_complete and (was_bytes := _trimmed_from(content[udp:])):
        return "  ".join((*fields, f"trimmed, {len(content) - udp} of {was_bytes} B of UDP"))
    fields.append(
        "icrc " + (_native.check_frame(content, udp_port).replace("_icrc", "") if is_complete else "not kept")
    )
    return "  ".join(fields)


def _addresses(content: bytes, ip: int, kind: bytes) -> tuple[bytes, bytes, int, int]:
    """Return source, destination, traffic class and the offset of UDP."""
    if kind == b"\x08\x00" and len(content) >= ip + 20:
        src, dst = _MAPPED + content[ip + 12 : ip + 16], _MAPPED + content[ip + 16 : ip + 20]
        return src, dst, content[ip + 1], ip + (content[ip] & 15) * 4
    if kind == b"\x86\xdd" and len(content) >= ip + 40:
        return (
            content[ip + 8 : ip + 24],
            content[ip + 24 : ip + 40],
            int.from_bytes(content[ip : ip + 2]) >> 4 & 0xFF,
            ip + 40,
        )
    return NO_ADDRESS, NO_ADDRESS, 0, len(content)


def _without_outer(content: bytes, ip: int, kind: bytes) -> tuple[bytes, str]:
    """Return the frame without an outer IPv6 header, whose traffic class counts, and the text of its micro segments."""
    outer = content[ip : ip + 40]
    if kind != b"\x86\xdd" or len(outer) < 40 or outer[6] != _IPV6_INSIDE or len(content) < ip + 42:
        return content, ""
    # No check covers traffic class and flow label.
    inner = outer[:2] + content[ip + 42 :]
    return content[:ip] + inner, f" led by {_segments_text(outer[24:])}"


def _segments_text(carrier: bytes) -> str:
    """Return the text of an outer destination: its block and the remaining micro segments."""
    usids = [int.from_bytes(carrier[offset : offset + 2]) for offset in range(4, 16, 2)]
    while usids and usids[-1] == 0:
        usids.pop()
    block = f"{int.from_bytes(carrier[:2]):x}:{int.from_bytes(carrier[2:4]):x}"
    return f"{block} [{' '.join(f'{usid:04x}' for usid in usids)}]"


def _trimmed_from(udp: bytes) -> str:
    """Return the original length of a UDP packet that a switch trimmed; "" if it is complete, or if its lengths hide it."""
    stated_bytes, opcode = int.from_bytes(udp[4:6]), udp[8]
    if stated_bytes > len(udp):
        return str(stated_bytes)
    # Lengths may have been rewritten, but no path MTU is below 256 bytes, and only the last packet of a message is shorter.
    header_bytes = WRITE_HEADER_BYTES if is_mrc(opcode) else 12 + (16 if opcode in _WRITE_RETH else 0)
    shortest_bytes = 8 + header_bytes + 256 + 4
    is_full_size = opcode in _FULL or opcode in MRC_FULL
    return f"{shortest_bytes} or more" if is_full_size and stated_bytes < shortest_bytes else ""


def _transport(datagram: bytes, bth: bytes) -> str:
    opcode = bth[0]
    text = f"{_NAMES.get(opcode, f'opcode {opcode:#04x}')} qp {int.from_bytes(bth[5:8]):#x} psn {int.from_bytes(bth[9:12])}"
    text += " ackreq" if bth[8] & 0x80 else ""
    text += " becn" if bth[4] & 0x40 else ""
    text += " fecn" if bth[4] & 0x80 else ""
    extension = datagram[12:]
    if opcode in (0x0D, 0x0F, 0x10, 0x11, 0x12, 0xF1, 0xF2) and len(extension) >= 4:
        text += _answer(extension[0]) + f" msn {int.from_bytes(extension[1:4])}"
    if opcode in (*_WRITE_RETH, 0x0C) and len(extension) >= 16:
        va, rkey, size = struct.unpack(">QII", extension[:16])
        text += f" va {va:#x} rkey {rkey:#x} len {size}"
        extension = extension[16:]
    if opcode in _WITH_IMM and len(extension) >= 4:
        text += f" imm {int.from_bytes(extension[:4])}"
    return text


def _answer(syndrome: int) -> str:
    """Return the text of an AETH syndrome (IBTA vol. 1, 9.7.5.1.2)."""
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
