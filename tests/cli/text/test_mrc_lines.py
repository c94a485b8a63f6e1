"""Packets of MRC as people read them, and as Wireshark does with the dissector that comes along."""

from __future__ import annotations

import json
import random
import struct
from typing import TYPE_CHECKING, Any, Final

import pytest

from etloop.cli.text.capture import capture_lines
from etloop.cli.text.capture_files import CapturedFrame
from etloop.cli.text.header_values import psn_ranges
from etloop.cli.text.mrc_lines import mrc_text
from etloop.traffic import _native
from tests.support.places import ROOT
from tests.support.traffic.header_layouts import field_values
from tests.support.tshark import dissected, pcap

if TYPE_CHECKING:
    from pathlib import Path

PACKETS: Final[list[dict[str, Any]]] = json.loads(
    (ROOT / "tests/data/mrc_packets.json").read_text(encoding="utf-8")
)["vectors"]
PLAIN: Final = [vector for vector in PACKETS if "srv6" not in vector["name"]]
DATAGRAM_AT: Final = 14 + 40 + 8
ROCE_ACK: Final = "11 00 ff ff 00 00 00 22 00 00 01 03 1f 00 00 01 00 00 00 00"


def frame_of(name: str) -> bytes:
    return bytes.fromhex(next(vector["frame"] for vector in PACKETS if vector["name"] == name))


def line_of(content: bytes) -> str:
    (line,) = capture_lines((CapturedFrame(0, outbound=False, content=content, frame_bytes=len(content)),))
    return line


@pytest.mark.parametrize("vector", PLAIN, ids=lambda vector: vector["name"])
def test_every_packet_is_named_and_its_check_is_right(vector: dict[str, Any]) -> None:
    line = line_of(bytes.fromhex(vector["frame"]))
    bth = vector["fields"]["bth"]
    assert f"psn {bth['psn']}" in line
    assert "malformed" not in line
    assert line.endswith("icrc good")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("write_only_imm_64_ts_rtx", "retransmitted"),
        ("sack_three_holes", " and "),
        ("sack_ecn", " marked "),
        ("sack_probe_response", " for probe "),
        ("nack_trimmed", " trimmed "),
        ("nack_trimmed_lasthop", " trimmed last hop "),
        ("nack_oor_window", " psn out of window "),
        ("nack_unexp_event", " unexpected event "),
        ("reliability_probe", "MRC_PROBE "),
        ("ep_req_ev_probe", "MRC_ENDPOINT_REQUEST qp 0x2 "),
        ("ep_req_port_status", " port status ports "),
        ("transport_nak_remote_access", " NAK 0x62"),
    ],
)
def test_what_matters_of_a_packet_is_said(name: str, said: str) -> None:
    assert said in line_of(frame_of(name))


@pytest.mark.parametrize(
    ("bitmap", "said"),
    [
        (0, ""),
        (0b1, "10"),
        (0b1110, "11-13"),
        (0b1011, "10-11,13"),
        (1 << 63, "73"),
    ],
)
def test_a_bitmap_is_said_as_ranges(bitmap: int, said: str) -> None:
    assert psn_ranges(10, bitmap, 1 << 24) == said


def test_ranges_go_round_with_the_sequence_numbers() -> None:
    assert psn_ranges(0xFFFFFF, 0b11, 1 << 24) == "16777215-0"


def test_whatever_comes_is_a_line() -> None:
    rng = random.Random(20261124)
    for _ in range(20_000):
        content = bytearray(rng.choice(PLAIN)["frame"], "ascii")
        frame = bytearray.fromhex(content.decode())
        for _ in range(rng.randrange(4)):
            frame[rng.randrange(len(frame))] = rng.randrange(256)
        cut = bytes(frame[: rng.randrange(14, len(frame) + 1)])
        assert line_of(cut)
        assert mrc_text(cut[DATAGRAM_AT:], len(frame) - DATAGRAM_AT)


def test_a_malformed_packet_says_why() -> None:
    datagram = frame_of("nack_trimmed")[DATAGRAM_AT:]
    strange = datagram[:14] + b"\x55" + datagram[15:]
    assert mrc_text(strange, len(strange)).endswith("malformed: unknown NACK reason")
    assert mrc_text(datagram[:6], 6) == "MRC_NACK malformed: too short"


# ---- Wireshark


NAMES: Final = sorted({field[0] for *_, fields in _native.mrc_headers() for field in fields})


def test_wireshark_decodes_packets_as_the_native_decoder(tmp_path: Path) -> None:
    frames = [bytes.fromhex(vector["frame"]) for vector in PLAIN]
    columns = ("_ws.malformed", *(f"mrc.{name}" for name in NAMES))
    rows = dissected("mrc", pcap(tmp_path / "mrc.pcap", frames), *columns)
    kinds = set()
    for frame, (malformed, *texts) in zip(frames, rows, strict=True):
        headers, _, _ = _native.mrc_decode(frame[DATAGRAM_AT:], len(frame) - DATAGRAM_AT)
        shown = {name: text.split(",")[-1] for name, text in zip(NAMES, texts, strict=True) if text}
        values = field_values(_native.mrc_headers(), headers)
        assert malformed == ""
        assert {
            name: int({"True": "1", "False": "0"}.get(text, text), 0) for name, text in shown.items()
        } == values
        kinds.add(tuple(headers)[1])
    assert kinds == {"meth", "aeth", "erth", "eeth", "seth", "neth", "peth"}


def test_on_rocev2s_port_the_opcode_decides(tmp_path: Path) -> None:
    moved = bytearray(frame_of("sack_in_order"))
    moved[DATAGRAM_AT - 6 : DATAGRAM_AT - 4] = struct.pack(">H", 4791)
    acknowledgement = moved[:DATAGRAM_AT] + bytes.fromhex(ROCE_ACK)
    for at, length in ((18, 28), (DATAGRAM_AT - 4, 28)):
        acknowledgement[at : at + 2] = struct.pack(">H", length)
    shown = dissected(
        "mrc",
        pcap(tmp_path / "shared.pcap", [bytes(moved), bytes(acknowledgement)]),
        "mrc.opcode",
        "infiniband.bth.opcode",
    )
    assert [bool(mrc) for mrc, _ in shown] == [True, False]
    assert [bool(roce) for _, roce in shown] == [False, True]
