"""Datagrams of UET's unreliable delivery: what others read in them, and which of them an end takes for its own."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from etloop.cli.text.uet_lines import uet_text
from etloop.contract.model.assignment import UdpStream
from etloop.contract.model.records import UUD_HEADER_BYTES, StreamForm
from etloop.traffic import _native
from etloop.traffic.udp_streams import MARK, datagram, expected_parts
from tests.support.places import ROOT
from tests.support.traffic.header_layouts import encoded
from tests.support.tshark import dissected, pcap

LOOSE: Final = UdpStream(
    "loose", True, "10.9.0.1", "10.9.0.2", 4793, 47911, 8 << 2, 1_000_000, 1072, 0, 0, StreamForm.UUD
)
PLAIN: Final = replace(LOOSE, form=StreamForm.UDP)


def test_a_datagram_is_a_message_of_one_packet_that_nobody_acknowledges() -> None:
    content = datagram(LOOSE, 5)
    headers, payload_bytes, malformed = _native.uet_decode(content, len(content))
    request = headers["standard_request"]
    assert (headers["unreliable"], malformed) == ({"type": 6, "next_header": 3}, "")
    assert (request["opcode"], request["rel"], request["som"], request["eom"]) == (7, True, True, True)
    assert (request["message_id"], request["job_id"]) == (5, 47911)
    assert request["message_length"] == payload_bytes == 1072 - UUD_HEADER_BYTES
    assert content[UUD_HEADER_BYTES:] == MARK + bytes(payload_bytes - len(MARK))
    assert content[:UUD_HEADER_BYTES] == encoded(_native.uet_headers(), headers)
    assert uet_text(content, len(content)) == "UET_UUD datagram message 5 of 1024 B to 0x0 key 0x0"


def test_its_first_header_is_that_of_other_implementations() -> None:
    packets = json.loads((ROOT / "tests" / "data" / "uet_packets.json").read_text())["vectors"]
    (known,) = [packet for packet in packets if packet["pds_type"] == "UET_PDS_TYPE_UUD_REQ"]
    pds, ses = (bytes.fromhex(header["hex"]) for header in known["headers"])
    ours = datagram(LOOSE, 0)
    assert ours[:4] == pds
    assert len(ses) == UUD_HEADER_BYTES - 4


def test_wireshark_reads_it(tmp_path: Path) -> None:
    content = datagram(LOOSE, 5)
    udp = struct.pack(">HHHH", 47911, 4793, 8 + len(content), 0)
    ip = struct.pack(">BBHHHBBH4s4s", 0x45, 32, 28 + len(content), 0, 0, 64, 17, 0, b"\n\t\0\1", b"\n\t\0\2")
    frame = b"\2" * 12 + b"\x08\0" + ip + udp + content
    fields = (
        "_ws.malformed",
        "uet.cut",
        "uet.unknown",
        "uet.pds.type",
        "uet.ses.opcode",
        "uet.ses.message_id",
    )
    (row,) = dissected("uet", pcap(tmp_path / "uud.pcap", [frame]), *fields)
    assert row[:4] == ["", "", "", "6"]
    assert [int(value, 0) for value in row[4:]] == [7, 5]


@pytest.mark.parametrize(
    ("what", "content", "taken"),
    [
        ("its own, whatever the message", datagram(LOOSE, 63), True),
        ("of another stream", datagram(replace(LOOSE, src_udp_port=47910), 0), False),
        ("of another length", datagram(replace(LOOSE, datagram_bytes=1000), 0), False),
        ("plain UDP", datagram(PLAIN, 0), False),
        ("what others send so", datagram(LOOSE, 0)[:UUD_HEADER_BYTES] + bytes(100), False),
        ("cut within its headers", datagram(LOOSE, 0)[:20], False),
    ],
)
def test_an_end_counts_what_is_of_its_stream(what: str, content: bytes, taken: bool) -> None:
    before, between, mark = expected_parts(LOOSE)
    assert (content.startswith(before) and content.startswith(mark, between)) is taken, what


def test_plain_datagrams_are_as_ever() -> None:
    assert datagram(PLAIN, 9) == MARK + bytes(1072 - len(MARK))
    assert expected_parts(PLAIN) == (b"", 0, MARK)
    assert datagram(replace(PLAIN, datagram_bytes=4), 0) == MARK[:4]
