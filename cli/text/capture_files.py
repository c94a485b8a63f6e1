"""Capture files -> packets: classic pcap and pcapng, plain or gzip-compressed. Pure.

Decides the format by the first bytes of a file, and reports where a file is damaged. Sources: draft-ietf-opsawg-pcap,
draft-ietf-opsawg-pcapng, link types www.tcpdump.org/linktypes.html. Link layers without an Ethernet header get one of zeros.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Final

from etloop.cli.text.link_layers import LinkLayer, link_layer
from etloop.contract.base.clock import NS_PER_S
from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.late_dataclass import dataclass

MOST_UNPACKED_BYTES: Final = 2 << 30
_SECTION: Final = 0x0A0D0D0A
_INTERFACE, _OLD_PACKET, _SIMPLE_PACKET, _STATISTICS, _PACKET = 1, 2, 3, 5, 6
_BYTE_ORDER: Final = 0x1A2B3C4D
_ORDERS: Final = ("<", ">")
_END_OPTION, _FLAGS, _RESOLUTION, _OFFSET, _INTERFACE_DROPS, _SYSTEM_DROPS = 0, 2, 9, 14, 5, 7
_PCAP_UNITS_NS: Final = {0xA1B2C3D4: 1000, 0xA1B23C4D: 1}
_PCAP_HEAD_BYTES: Final = 24
_RECORD_BYTES: Final = 16
_HAS_FCS_LENGTH: Final = 1 << 26
_GZIP: Final = b"\x1f\x8b"
_UNSUPPORTED: Final = {
    b"\x28\xb5\x2f\xfd": ("compressed by zstd", "unpack it first (zstd -d)"),
    b"\x04\x22\x4d\x18": ("compressed by lz4", "unpack it first (lz4 -d)"),
    b"\xfd7zX": ("compressed by xz", "unpack it first (xz -d)"),
    b"BZh": ("compressed by bzip2", "unpack it first (bzip2 -d)"),
    b"PK\x03\x04": ("a ZIP archive", "unpack it first (unzip)"),
    b"\xa1\xb2\xcd\x34": ("pcap of a patched libpcap", "convert it (editcap -F pcapng)"),
    b"\x34\xcd\xb2\xa1": ("pcap of a patched libpcap", "convert it (editcap -F pcapng)"),
    b"snoop": ("a snoop file", "convert it (editcap -F pcapng)"),
}


@dataclass(frozen=True, slots=True)
class CapturedFrame:
    """A frame without FCS, whole or cut to the snap length."""

    time_ns: int
    """Time since 1970."""
    outbound: bool | None
    """Direction; None if the file has none."""
    content: bytes
    """Starts with an Ethernet header, which is zeros if the link layer has none."""
    frame_bytes: int
    """Size of the whole frame, including an added Ethernet header."""
    added_bytes: int = 0
    """Size of the added Ethernet header."""


@dataclass(slots=True)
class _Interface:
    """One interface of a section."""

    link: LinkLayer
    units_per_s: int = 1_000_000
    offset_s: int = 0
    snap_bytes: int = 0
    lost: int = 0


def read_frames(content: bytes, source: str) -> tuple[tuple[CapturedFrame, ...], int]:
    """Return the frames of a capture file, and the number of frames that the capture dropped; `source` is its name in errors.

    Raise `ConfigError` with the offset in the file if it is damaged, ends too early or has another format.
    """
    if content.startswith(_GZIP):
        content, source = _gunzip(content, source), f"{source}, unpacked"
    for order in _ORDERS:
        if len(content) >= 4 and struct.unpack_from(f"{order}I", content)[0] in _PCAP_UNITS_NS:
            return tuple(_pcap_frames(content, source, order)), 0
    if len(content) < 12 or struct.unpack_from("<I", content)[0] != _SECTION:
        raise _unsupported_error(content, source)
    return _Sections(source).read(content)


def _unsupported_error(content: bytes, source: str) -> ConfigError:
    for head, (format_name, remedy) in _UNSUPPORTED.items():
        if content.startswith(head):
            return ConfigError(Problem(f"{source}: byte 0", f"it is {format_name}", remedy))
    start_text = f"it begins with {content[:4].hex(' ')}" if content else "it is empty"
    return _refusal(
        source, 0, f"{start_text}, expected pcapng (0a 0d 0d 0a) or pcap (d4 c3 b2 a1 or a relative)"
    )


def _gunzip(content: bytes, source: str) -> bytes:
    """Return the content of a gzip file. Raise `ConfigError` if it is damaged, or larger than MOST_UNPACKED_BYTES."""
    parts: list[bytes] = []
    left, total = content, 0
    while left:
        member = zlib.decompressobj(wbits=31)
        try:
            part = member.decompress(left, MOST_UNPACKED_BYTES + 1 - total)
        except zlib.error as error:
            raise _refusal(source, len(content) - len(left), f"gzip does not unpack it: {error}") from None
        parts.append(part)
        total += len(part)
        if total > MOST_UNPACKED_BYTES:
            raise _refusal(source, 0, f"it unpacks to more than {MOST_UNPACKED_BYTES >> 30} GiB")
        if not member.eof:
            raise _refusal(source, len(content), "the file ends inside its compressed data")
        left = member.unused_data
    return b"".join(parts)


def _pcap_frames(content: bytes, source: str, order: str) -> Iterator[CapturedFrame]:
    if len(content) < _PCAP_HEAD_BYTES:
        problem = f"the file ends inside its head: {len(content)} of {_PCAP_HEAD_BYTES} bytes"
        raise _refusal(source, 0, problem)
    magic, major, minor, _, _, _, network = struct.unpack_from(f"{order}IHHiIII", content)
    if (major, minor) != (2, 4):
        raise _refusal(source, 4, f"it is pcap {major}.{minor}, expected 2.4")
    unit_ns = _PCAP_UNITS_NS[magic]
    link = _link_of(network & 0xFFFF, source, 20)
    fcs_bytes = (network >> 28) * 2 if network & _HAS_FCS_LENGTH else 0
    at, number = _PCAP_HEAD_BYTES, 1
    while at < len(content):
        if at + _RECORD_BYTES > len(content):
            raise _refusal(source, at, f"the file ends inside the head of packet {number}")
        seconds, parts, kept, whole = struct.unpack_from(f"{order}IIII", content, at)
        start = at + _RECORD_BYTES
        if start + kept > len(content):
            problem = f"the file ends inside packet {number}: {len(content) - start} of {kept} bytes"
            raise _refusal(source, at, problem)
        if kept > whole:
            raise _refusal(source, at, f"packet {number} keeps {kept} bytes of {whole}")
        if parts * unit_ns >= NS_PER_S:
            raise _refusal(source, at, f"the time of packet {number} has {parts} parts of a second")
        # Frames are returned without their FCS, even if the capture has a part of it.
        whole -= min(fcs_bytes, whole)
        frame = content[start : start + min(kept, whole)]
        yield _make_frame(link, seconds * NS_PER_S + parts * unit_ns, None, frame, whole)
        at, number = start + kept, number + 1


def _link_of(number: int, source: str, at: int) -> LinkLayer:
    link = link_layer(number)
    if link is None:
        problem = (
            f"link type {number} is not read, expected Ethernet (1), raw IP (101) or Linux cooked (113, 276)"
        )
        raise _refusal(source, at, problem)
    return link


def _make_frame(
    link: LinkLayer, time_ns: int, outbound: bool | None, frame: bytes, whole_bytes: int
) -> CapturedFrame:
    content, added_bytes, link_outbound = link(frame)
    outbound = link_outbound if outbound is None else outbound
    whole_bytes += len(content) - len(frame)
    return CapturedFrame(time_ns, outbound, content, max(whole_bytes, len(content)), added_bytes)


class _Sections:
    """Reads pcapng: sections, each with its own byte order and interfaces."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._order = "<"
        self._interfaces: list[_Interface] = []
        self._frames: list[CapturedFrame] = []
        self._lost = 0

    def read(self, content: bytes) -> tuple[tuple[CapturedFrame, ...], int]:
        """Return all frames, and the number of dropped ones."""
        at = 0
        while at < len(content):
            at += self._block(content, at)
        return tuple(self._frames), self._lost + sum(interface.lost for interface in self._interfaces)

    def _block(self, content: bytes, at: int) -> int:
        """Read a block; return its length."""
        left = len(content) - at
        if left < 12:
            raise self._refusal(at, f"the file ends inside a block: {left} bytes")
        if struct.unpack_from("<I", content, at)[0] == _SECTION:
            self._begin_section(content, at)
        kind, length = struct.unpack_from(f"{self._order}II", content, at)
        if length < 12 or length % 4:
            raise self._refusal(at, f"a block has an invalid length: {length}")
        if length > left:
            raise self._refusal(at, f"the file ends inside a block: {left} of {length} bytes")
        if struct.unpack_from(f"{self._order}I", content, at + length - 4)[0] != length:
            raise self._refusal(at, "the lengths at the start and end of a block differ")
        body = content[at + 8 : at + length - 4]
        if kind == _INTERFACE:
            self._add_interface(body, at)
        elif kind in (_PACKET, _OLD_PACKET):
            self._add_packet(body, at, is_old=kind == _OLD_PACKET)
        elif kind == _SIMPLE_PACKET:
            self._add_simple_packet(body, at)
        elif kind == _STATISTICS:
            self._add_statistics(body, at)
        return int(length)

    def _begin_section(self, content: bytes, at: int) -> None:
        for order in _ORDERS:
            if struct.unpack_from(f"{order}I", content, at + 8)[0] == _BYTE_ORDER:
                self._order = order
                break
        else:
            raise self._refusal(at, "a section has no byte-order magic")
        self._lost += sum(interface.lost for interface in self._interfaces)
        self._interfaces = []

    def _add_interface(self, body: bytes, at: int) -> None:
        if len(body) < 8:
            raise self._refusal(at, "an interface is cut short")
        network, _, snap_bytes = struct.unpack_from(f"{self._order}HHI", body)
        interface = _Interface(_link_of(network, self._source, at), snap_bytes=snap_bytes)
        for code, value in self._options(body, 8, at):
            if code == _RESOLUTION and value:
                exponent = value[0] & 0x7F
                interface.units_per_s = 2**exponent if value[0] & 0x80 else 10**exponent
            if code == _OFFSET and len(value) == 8:
                interface.offset_s = struct.unpack(f"{self._order}q", value)[0]
        self._interfaces.append(interface)

    def _add_packet(self, body: bytes, at: int, *, is_old: bool) -> None:
        if len(body) < 20:
            raise self._refusal(at, "a packet is cut short")
        number, high, low, kept, whole = struct.unpack_from(f"{self._order}IIIII", body)
        if is_old:
            number = struct.unpack_from(f"{self._order}H", body)[0]
        interface = self._interface(number, at)
        if 20 + kept > len(body) or kept > whole:
            raise self._refusal(at, "a packet is longer than its block")
        outbound = None
        for code, value in self._options(body, 20 + (kept + 3) // 4 * 4, at):
            if code == _FLAGS and len(value) == 4:
                direction = struct.unpack(f"{self._order}I", value)[0] & 3
                outbound = {1: False, 2: True}.get(direction)
        ticks = high << 32 | low
        time_ns = interface.offset_s * NS_PER_S + ticks * NS_PER_S // interface.units_per_s
        self._frames.append(_make_frame(interface.link, time_ns, outbound, body[20 : 20 + kept], whole))

    def _add_simple_packet(self, body: bytes, at: int) -> None:
        interface = self._interface(0, at)
        if len(body) < 4:
            raise self._refusal(at, "a packet is cut short")
        whole = struct.unpack_from(f"{self._order}I", body)[0]
        kept = min(whole, interface.snap_bytes or whole)
        if 4 + kept > len(body):
            raise self._refusal(at, "a packet is longer than its block")
        # Simple packets have no time stamp; they get that of the previous packet.
        time_ns = self._frames[-1].time_ns if self._frames else 0
        self._frames.append(_make_frame(interface.link, time_ns, None, body[4 : 4 + kept], whole))

    def _add_statistics(self, body: bytes, at: int) -> None:
        if len(body) < 12:
            raise self._refusal(at, "statistics are cut short")
        interface = self._interface(struct.unpack_from(f"{self._order}I", body)[0], at)
        dropped = {
            code: int(struct.unpack(f"{self._order}Q", value)[0])
            for code, value in self._options(body, 12, at)
            if code in (_INTERFACE_DROPS, _SYSTEM_DROPS) and len(value) == 8
        }
        # Totals since the start of the capture: the last block of an interface replaces earlier ones.
        interface.lost = sum(dropped.values())

    def _interface(self, number: int, at: int) -> _Interface:
        if number >= len(self._interfaces):
            problem = f"a packet names interface {number}, but only {len(self._interfaces)} are described"
            raise self._refusal(at, problem)
        return self._interfaces[number]

    def _options(self, body: bytes, at: int, block: int) -> Iterator[tuple[int, bytes]]:
        while at + 4 <= len(body):
            code, length = struct.unpack_from(f"{self._order}HH", body, at)
            if code == _END_OPTION:
                return
            if at + 4 + length > len(body):
                raise self._refusal(block, "an option is longer than its block")
            yield code, body[at + 4 : at + 4 + length]
            at += 4 + (length + 3) // 4 * 4

    def _refusal(self, at: int, problem: str) -> ConfigError:
        return _refusal(self._source, at, problem)


def _refusal(source: str, at: int, problem: str) -> ConfigError:
    remedy = (
        "name a capture of `etloop-agent run --capture`, tcpdump or Wireshark (pcapng, pcap, either also .gz)"
    )
    return ConfigError(Problem(f"{source}: byte {at}", problem, remedy))
