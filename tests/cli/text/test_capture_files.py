"""Capture files as others write them and as they are damaged: every byte order, links without Ethernet."""

import gzip
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Raw
from scapy.utils import PcapNgWriter, PcapWriter

from etloop.cli.text.capture import capture_lines
from etloop.cli.text.capture_files import read_frames
from etloop.contract.base.errors import ConfigError
from tests.support.places import ROOT

GOLDEN: Final = (ROOT / "tests/data/golden.pcap").read_bytes()
FRAME: Final = GOLDEN[40 : 40 + struct.unpack_from("<I", GOLDEN, 32)[0]]
"""A WRITE_ONLY of 138 bytes, IPv4."""
TIME: Final = (1_700_000_000, 123_456)


def pcap(
    order: str = "<", magic: int = 0xA1B2C3D4, link: int = 1, packet: bytes = FRAME, more: bytes = b""
) -> bytes:
    head = struct.pack(f"{order}IHHiIII", magic, 2, 4, 0, 0, 262144, link)
    return head + struct.pack(f"{order}IIII", *TIME, len(packet), len(packet)) + packet + more


def block(kind: int, body: bytes, order: str = "<") -> bytes:
    body += bytes(-len(body) % 4)
    length = struct.pack(f"{order}I", len(body) + 12)
    return struct.pack(f"{order}I", kind) + length + body + length


def section(order: str = "<") -> bytes:
    return block(0x0A0D0D0A, struct.pack(f"{order}IHHq", 0x1A2B3C4D, 1, 0, -1), order)


def interface(order: str = "<", link: int = 1, options: bytes = b"") -> bytes:
    return block(1, struct.pack(f"{order}HHI", link, 0, 0) + options, order)


def packet(
    ticks: int, order: str = "<", number: int = 0, content: bytes = FRAME, options: bytes = b""
) -> bytes:
    head = struct.pack(f"{order}IIIII", number, ticks >> 32, ticks & 0xFFFFFFFF, len(content), len(content))
    return block(6, head + content + bytes(-len(content) % 4) + options, order)


def lines(content: bytes) -> list[str]:
    return list(capture_lines(read_frames(content, "f")[0]))


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize(("magic", "unit_ns"), [(0xA1B2C3D4, 1000), (0xA1B23C4D, 1)])
def test_pcap_of_either_byte_order_and_unit_is_read(order: str, magic: int, unit_ns: int) -> None:
    (frame,), lost = read_frames(pcap(order, magic), "f")
    assert frame.time_ns == TIME[0] * 1_000_000_000 + TIME[1] * unit_ns
    assert (frame.content, frame.frame_bytes, frame.outbound, lost) == (FRAME, 138, None, 0)


def test_all_kinds_of_packets_are_told_apart() -> None:
    told = lines(GOLDEN)
    assert [line.split("  ")[-1] for line in told].count("icrc bad") == 1
    assert "- 10.0.0.1:49444 > 10.0.0.2  CNP qp 0x13 psn 0 becn  74 B dscp 48  icrc good" in told[7]
    assert lines(gzip.compress(GOLDEN)) == told
    # Members of gzip follow each other where files were joined.
    assert lines(gzip.compress(GOLDEN[:1000]) + gzip.compress(GOLDEN[1000:])) == told


IP_PACKET: Final = FRAME[14:]


@pytest.mark.parametrize(
    ("link", "content", "direction", "size"),
    [
        (101, IP_PACKET, "-", 124),
        (228, IP_PACKET, "-", 124),
        (12, IP_PACKET, "-", 124),
        (113, struct.pack(">HHH8sH", 4, 1, 6, b"", 0x0800) + IP_PACKET, ">", 124),
        (113, struct.pack(">HHH8sH", 0, 1, 6, b"", 0x0800) + IP_PACKET, "<", 124),
        (276, struct.pack(">HHIHBB8s", 0x0800, 0, 2, 1, 4, 6, b"") + IP_PACKET, ">", 124),
    ],
)
def test_links_without_an_ethernet_header_are_read(
    link: int, content: bytes, direction: str, size: int
) -> None:
    (line,) = lines(pcap(link=link, packet=content))
    assert f" {direction} 10.0.0.1:49443" in line
    assert line.endswith(f"  {size} B dscp 26 ect0  icrc good")
    (same,) = lines(section() + interface(link=link) + packet(0, content=content))
    assert same.endswith("icrc good")


def test_a_check_sequence_at_the_end_of_frames_is_left_out() -> None:
    four_bytes = 1 | 1 << 26 | 2 << 28
    (frame,), _ = read_frames(pcap(link=four_bytes, packet=FRAME + b"\1\2\3\4"), "f")
    assert frame.content == FRAME


@pytest.mark.parametrize("order", ["<", ">"])
def test_pcapng_of_either_byte_order_is_read(order: str) -> None:
    flags = struct.pack(f"{order}HH4sHHIHH", 1, 4, b"note", 2, 4, 2, 0, 0)
    (frame,), _ = read_frames(section(order) + interface(order) + packet(7, order, options=flags), "f")
    # Without a resolution in its interface a time is in microseconds; flags follow a comment.
    assert (frame.time_ns, frame.outbound, frame.content) == (7000, True, FRAME)


def test_sections_and_interfaces_have_their_own_times_and_links() -> None:
    nanoseconds = struct.pack("<HHB3x", 9, 1, 9) + struct.pack("<HHqHH", 14, 8, 5, 0, 0)
    binary = struct.pack(">HHB3xHH", 9, 1, 0x80 | 10, 0, 0)
    content = (
        section()
        + interface(options=nanoseconds)
        + interface(link=101)
        + packet(7)
        + packet(8, number=1, content=IP_PACKET)
        + section(">")
        + interface(">", options=binary)
        + packet(2048, ">")
        + block(3, struct.pack(">I", len(FRAME)) + FRAME, ">")
    )
    frames, _ = read_frames(content, "f")
    assert [frame.time_ns for frame in frames] == [5_000_000_007, 8000, 2_000_000_000, 2_000_000_000]
    assert {frame.content[14:] for frame in frames} == {IP_PACKET}


def test_statistics_are_found_among_other_options() -> None:
    begun = struct.pack("<HHQ", 2, 8, 1 << 40)
    dropped = struct.pack("<HHQHHQ", 5, 8, 3, 7, 8, 4)
    counts = block(5, struct.pack("<III", 0, 0, 0) + begun + dropped)
    assert read_frames(section() + interface() + counts + counts, "f")[1] == 7
    assert read_frames((section() + interface() + counts) * 2, "f")[1] == 14


def test_traffic_of_others_is_named_and_not_taken_for_rdma(tmp_path: Path) -> None:
    path = str(tmp_path / "others.pcap")
    ether = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
    with PcapWriter(path) as out:
        for each in (
            ether / ARP(),
            ether / IP(src="10.0.0.1", dst="10.0.0.2") / TCP(dport=80) / Raw(b"x" * 40),
            ether / IP(src="10.0.0.1", dst="10.0.0.2") / ICMP(),
            ether / IP(src="10.0.0.1", dst="10.0.0.2", frag=10) / Raw(b"x" * 80),
            ether / IP(src="10.0.0.1", dst="10.0.0.2") / UDP(sport=1000, dport=53) / Raw(b"\x04" + b"x" * 40),
        ):
            out.write(each)
    told = [line.split(" - ")[1] for line in lines(Path(path).read_bytes())]
    assert told == [
        "42 bytes, no IP packet: EtherType 0x0806",
        "94 bytes, no UDP datagram: IP protocol 6",
        "42 bytes, no UDP datagram: IP protocol 1",
        "114 bytes, a later fragment of an IPv4 packet",
        "10.0.0.1:1000 > 10.0.0.2  UDP to port 53  83 B dscp 0",
    ]


def test_what_scapy_writes_is_read(tmp_path: Path) -> None:
    path = str(tmp_path / "s.pcapng")
    with PcapNgWriter(path) as out:
        out.write(Ether(FRAME))
    (line,) = lines(Path(path).read_bytes())
    assert line.endswith("138 B dscp 26 ect0  icrc good")


@pytest.mark.parametrize("kind", ["pcap", "nsecpcap", "pcapng"])
def test_what_editcap_writes_says_the_same(kind: str, tmp_path: Path) -> None:
    editcap = shutil.which("editcap")
    if editcap is None:
        pytest.skip("editcap is not installed (Debian package tshark)")
    written = tmp_path / kind
    subprocess.run(
        [editcap, "-F", kind, str(ROOT / "tests/data/golden.pcap"), str(written)], check=True, timeout=60
    )
    assert lines(written.read_bytes()) == lines(GOLDEN)


def test_a_cut_packet_shows_what_is_kept() -> None:
    head = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 60, 1)
    (line,) = lines(head + struct.pack("<IIII", *TIME, 60, len(FRAME)) + FRAME[:60])
    assert "WRITE_ONLY qp 0x11 psn 0 ackreq  138 B" in line
    assert line.endswith("icrc not kept")
    (line,) = lines(head + struct.pack("<IIII", *TIME, 30, len(FRAME)) + FRAME[:30])
    assert line.endswith("138 bytes, cut before the transport header")


WHOLE: Final = pcap()
NG: Final = section() + interface()


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "f: byte 0: it is empty, expected pcapng"),
        (b"\x7fELF" + bytes(20), "f: byte 0: it begins with 7f 45 4c 46, expected pcapng"),
        (b"\x28\xb5\x2f\xfd" + bytes(20), "f: byte 0: it is compressed by zstd; unpack it first"),
        (b"snoop\0\0\0" + bytes(20), "f: byte 0: it is a snoop file; convert it"),
        (WHOLE[:20], "f: byte 0: the file ends inside its head: 20 of 24 bytes"),
        (WHOLE[:4] + b"\1\0" + WHOLE[6:], "f: byte 4: it is pcap 1.4, expected 2.4"),
        (pcap(link=147), "f: byte 20: link type 147 is not read, expected Ethernet"),
        (WHOLE + b"\0" * 9, "f: byte 178: the file ends inside the head of packet 2"),
        (WHOLE[:-1], "f: byte 24: the file ends inside packet 1: 137 of 138 bytes"),
        (WHOLE[:36] + struct.pack("<I", 100) + WHOLE[40:], "f: byte 24: packet 1 keeps 138 bytes of 100"),
        (WHOLE[:28] + struct.pack("<I", 1_000_000) + WHOLE[32:], "the time of packet 1 has 1000000 parts of a second"),
        (gzip.compress(GOLDEN)[:-20], "f: byte .*: the file ends inside its compressed data"),
        (b"\x1f\x8b" + bytes(30), "f: byte 0: gzip does not unpack it"),
        (gzip.compress(WHOLE[:-1]), "f, unpacked: byte 24: the file ends inside packet 1"),
        (block(0x0A0D0D0A, bytes(16)), "f: byte 0: a section has no byte-order magic"),
        (NG + struct.pack("<II", 6, 400), "f: byte 48: the file ends inside a block: 8 bytes"),
        (NG + struct.pack("<III", 6, 400, 0), "f: byte 48: the file ends inside a block: 12 of 400 bytes"),
        (NG + struct.pack("<III", 6, 13, 0), "f: byte 48: a block has an invalid length: 13"),
        (NG + struct.pack("<III", 6, 12, 16), "f: byte 48: the lengths at the start and end of a block differ"),
        (NG + struct.pack("<III", 6, 12, 12), "f: byte 48: a packet is cut short"),
        (NG + struct.pack("<IIIIIIII", 6, 32, 0, 0, 0, 9, 9, 32), "f: byte 48: a packet is longer than its block"),
        (section() + packet(0), "f: byte 28: a packet names interface 0, but only 0 are described"),
        (NG + packet(0, number=1), "f: byte 48: a packet names interface 1, but only 1 are described"),
        (section() + interface(link=105), "f: byte 28: link type 105 is not read"),
    ],
)  # fmt: skip
def test_damaged_and_other_files_are_refused_by_place(content: bytes, what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        read_frames(content, "f")


SEEDS: Final = (
    GOLDEN,
    gzip.compress(GOLDEN),
    NG + packet(1) * 3,
    section(">") + interface(">") + packet(1, ">"),
)


@given(
    st.sampled_from(SEEDS),
    st.lists(st.tuples(st.integers(0, 5300), st.binary(min_size=1, max_size=8))),
    st.integers(0, 60),
)
def test_hostile_files_are_read_or_refused(seed: bytes, changes: list[tuple[int, bytes]], cut: int) -> None:
    content = bytearray(seed)
    for place, change in changes:
        at = place % len(content)
        content[at : at + len(change)] = change
    try:
        frames, _ = read_frames(bytes(content[: len(content) - cut]), "f")
    except ConfigError:
        return
    assert len(list(capture_lines(frames))) == len(frames)
