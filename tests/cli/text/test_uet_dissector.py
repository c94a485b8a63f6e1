"""The UET dissector for Wireshark against vectors and against the native decoder."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any, Final

import pytest

from etloop.cli.commands.capture import dissector_path
from etloop.cli.main import main
from etloop.traffic import _native
from tests.support.places import ROOT
from tests.support.traffic.header_layouts import field_values
from tests.support.traffic.uet_vectors import DATAGRAM_AT, PACKETS, RECORDED, expected_fields
from tests.support.tshark import dissected, pcap
from tools.write_dissectors import dissector

LAYOUTS: Final = _native.uet_headers()
NAMES: Final = sorted({f"{layer}.{field[0]}" for layer, *_, fields in LAYOUTS for field in fields})


@pytest.mark.parametrize("transport", ["mrc", "uet"])
def test_dissector_has_the_layouts_of_the_native_headers(transport: str) -> None:
    text = dissector_path(transport).read_text(encoding="utf-8")
    assert text == dissector(text, transport), "run python tools/write_dissectors.py"


def shown(frames: list[bytes], directory: Path) -> list[dict[str, int]]:
    """Return the fields of each frame by their names; refuse frames in which tshark finds a fault."""
    columns = ("_ws.malformed", "uet.cut", "uet.unknown", *(f"uet.{name}" for name in NAMES))
    rows = dissected("uet", pcap(directory / "uet.pcap", frames), *columns)
    assert len(rows) == len(frames)
    assert [(frame.hex(), row[:3]) for frame, row in zip(frames, rows, strict=True) if any(row[:3])] == []
    return [
        {name: flag_or_number(text.split(",")[-1]) for name, text in zip(NAMES, row[3:], strict=True) if text}
        for row in rows
    ]


def flag_or_number(text: str) -> int:
    """Return a value as tshark shows it."""
    return {"True": 1, "False": 0}[text] if text in {"True", "False"} else int(text, 0)


def test_wireshark_decodes_the_fields_of_each_vector(tmp_path: Path) -> None:
    rows = shown([bytes.fromhex(vector["frame"]) for vector in PACKETS], tmp_path)
    compared = 0
    for vector, row in zip(PACKETS, rows, strict=True):
        expected = expected_fields(vector)
        assert {name: row.get(name) for name in expected} == expected, vector["name"]
        compared += len(expected)
    assert compared > 1000
    assert {row["pds.type"] for row in rows} == set(range(2, 15))


def test_wireshark_decodes_random_headers_as_the_native_decoder(tmp_path: Path) -> None:
    rng = random.Random(20261125)
    vectors = [bytes.fromhex(vector["frame"]) for vector in PACKETS]
    frames: list[bytes] = []
    decoded: list[dict[str, int]] = []
    while len(frames) < 3000:
        frame = bytearray(rng.choice(vectors))
        for _ in range(8):
            frame[DATAGRAM_AT + rng.randrange(min(56, len(frame) - DATAGRAM_AT))] = rng.randrange(256)
        headers, _, malformed = _native.uet_decode(bytes(frame)[DATAGRAM_AT:], len(frame) - DATAGRAM_AT)
        if not malformed:
            frames.append(bytes(frame))
            decoded.append(field_values(LAYOUTS, headers))
    for values, row in zip(decoded, shown(frames, tmp_path), strict=True):
        assert row == values


def test_wireshark_marks_recorded_headers_that_are_no_packet(tmp_path: Path) -> None:
    """Bytes of another implementation: headers of packet delivery, some followed by nothing where a header should be."""
    lead = bytes.fromhex(PACKETS[0]["frame"])[:DATAGRAM_AT]
    rows = dissected(
        "uet",
        pcap(tmp_path / "uet.pcap", [lead + bytes.fromhex(vector["hex"]) for vector in RECORDED]),
        *("_ws.col.Protocol", "uet.pds.type", "uet.cut", "uet.unknown"),
    )
    for vector, (protocol, kind, cut, unknown) in zip(RECORDED, rows, strict=True):
        datagram = bytes.fromhex(vector["hex"])
        assert protocol == "UET"
        assert int(kind) == datagram[0] >> 3
        reason = _native.uet_decode(datagram, len(datagram))[2]
        if reason in {"", "too short"}:
            assert bool(cut) == bool(reason), (vector["name"], reason)
        assert bool(unknown) == (reason in {"unknown type", "encrypted"}), (vector["name"], reason)


def test_wireshark_shows_the_headers_left_in_a_trimmed_packet(tmp_path: Path) -> None:
    trimmed: list[dict[str, Any]] = json.loads(
        (ROOT / "tests/data/trimmed_frames.json").read_text(encoding="utf-8")
    )["vectors"]
    vectors = [vector for vector in trimmed if vector["name"].startswith("uet_")]
    frames = [bytes.fromhex(vector["frame"]) for vector in vectors]
    rows = dissected(
        "uet", pcap(tmp_path / "cut.pcap", frames), "uet.pds.psn", "uet.ses.message_length", "uet.cut"
    )
    kept = {vector["name"]: row for vector, row in zip(vectors, rows, strict=True)}
    assert all(row[0] == "131073" for row in rows)
    assert kept["uet_cut_128"][1:] == ["3072", ""]
    assert kept["uet_cut_58_min"][1] == ""
    assert kept["uet_cut_58_min"][2]


@pytest.mark.parametrize("transport", ["mrc", "uet"])
def test_capture_prints_the_path_of_a_dissector(transport: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["capture", "--dissector", transport]) == 0
    said = capsys.readouterr().out
    assert said == f"{dissector_path(transport)}\n"
    assert Path(said.strip()).read_text(encoding="utf-8").startswith(f"-- {transport.upper()}")
