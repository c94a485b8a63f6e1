"""Packets of UET as Wireshark reads them with the dissector that comes along: the vectors' own fields, and ours."""

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
from tests.support.tshark import dissected, pcap

DATAGRAM_AT: Final = 14 + 20 + 8


def _vectors(name: str, key: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((ROOT / "tests/data" / name).read_text(encoding="utf-8"))[key]
    return found


VECTORS: Final = [
    *_vectors("uet_packets.json", "vectors"),
    *_vectors("uet_ai_dialogue.json", "ai_vectors"),
]
RECORDED: Final = _vectors("uet_ai_dialogue.json", "ns3_vectors")

DELIVERY: Final = {
    "type": "type",
    "next_hdr": "next_header",
    "ctl_type": "control_type",
    "retrans": "retransmitted",
    "syn": "syn",
    "isrod": "rod",
    "ecn_marked": "marked",
    "ackreq": "ack_request",
    "ack_req": "ack_request",
    "probe": "answers_probe",
    "request": "request",
    "nak_type": "of_rudi",
    "clear_psn_offset": "clear_psn_offset",
    "psn": "psn",
    "spdcid": "spdcid",
    "dpdcid": "dpdcid",
    "use_rsv_pdc": "use_rsv_pdc",
    "psn_offset": "psn_offset",
    "ccc_id": "ccc_id",
    "credit_target": "credit_target",
    "pkt_id": "pkt_id",
    "cack_psn": "cack_psn",
    "cc_type": "cc_type",
    "ccx_type": "cc_type",
    "cc_flags": "cc_flags",
    "mpr": "mpr",
    "sack_psn_offset": "sack_psn_offset",
    "sack_bitmap": "sack_bitmap",
    "service_time": "service_time",
    "restore_cwnd": "restore_cwnd",
    "rcv_cwnd_pend": "rcv_cwnd_pend",
    "rcvd_bytes": "rcvd_bytes",
    "ooo_count": "ooo_count",
    "credit": "credit",
    "ack_cc_state": "cc_state",
    "nak_code": "nack_code",
    "vendor_code": "vendor_code",
    "nak_psn_pkt_id": "psn",
    "payload": "payload",
    "probe_opaque": "probe_opaque",
}
"""A field of packet delivery in the vectors, and in the dissector behind `uet.pds.`."""
SEMANTICS: Final = {
    "version": "version",
    "delivery_complete": "dc",
    "initiator_error": "ie",
    "relative_addressing": "rel",
    "hdr_data_present": "hd",
    "end_of_msg": "eom",
    "start_of_msg": "som",
    "message_id": "message_id",
    "ri_generation": "ri_generation",
    "job_id": "job_id",
    "pid_on_fep": "pid_on_fep",
    "resource_index": "resource_index",
    "buffer_offset": "buffer_offset",
    "initiator": "initiator",
    "memory_key_match_bits": "memory_key",
    "memory_key": "memory_key",
    "match_bits": "memory_key",
    "header_data": "header_data",
    "request_length": "message_length",
    "message_offset": "message_offset",
    "list": "list",
    "return_code": "return_code",
    "modified_length": "modified_length",
    "read_request_message_id": "read_message_id",
    "original_request_psn": "original_psn",
}
"""A field of semantics in the vectors, and in the dissector behind `uet.ses.`."""
ELSEWHERE: Final = {
    *(
        "ack_psn_offset_probe_opaque",
        "opcode",
        "payload_length",
        "initiator_restart_token",
        "target_restart_token",
    ),
    *("nccx_type", "nccx_ccx_state1", "nccx_ccx_state2"),
}
"""Fields whose name in the dissector depends on another one, or that it shows as a part of one."""
EXTENSIONS: Final = ("AtomicOpExtHdr", "AtomicCmpAndSwapHdr")
"""Shown as payload."""
NUMBERS: Final = (
    *(f"uet.pds.{name}" for name in sorted({*DELIVERY.values(), "ack_psn_offset"})),
    *(f"uet.ses.{name}" for name in sorted(SEMANTICS.values())),
    *("uet.ses.opcode", "uet.ses.response", "uet.ses.request_length"),
    *("uet.ses.payload_length", "uet.ses.response_length"),
)


def shown(frames: list[bytes], directory: Path) -> list[dict[str, int]]:
    """Return the fields of each frame by their names; refuse frames in which tshark finds a fault."""
    columns = ("_ws.malformed", "uet.cut", "uet.unknown", *NUMBERS)
    rows = dissected("uet", pcap(directory / "uet.pcap", frames), *columns)
    assert len(rows) == len(frames)
    assert [(frame.hex(), row[:3]) for frame, row in zip(frames, rows, strict=True) if any(row[:3])] == []
    return [
        {name: int(text.split(",")[0], 0) for name, text in zip(NUMBERS, row[3:], strict=True) if text}
        for row in rows
    ]


def value_of(field: int | str, *, signed: bool) -> int:
    number = field if isinstance(field, int) else int(field, 16)
    return number - (1 << 16) if signed and number >= 1 << 15 else number


def in_header(header: dict[str, Any]) -> dict[str, int]:
    """Return what a header of a vector says, by the dissector's names."""
    names, room = (DELIVERY, "uet.pds.") if header["layer"] == "PDS" else (SEMANTICS, "uet.ses.")
    fields = header["fields"]
    assert set(fields) - set(names) <= ELSEWHERE, "a field of the vectors that no name is known for"
    said = {
        room + names[name]: value_of(fields[name], signed=name in {"clear_psn_offset", "sack_psn_offset"})
        for name in fields
        if name in names
    }
    if "ack_psn_offset_probe_opaque" in fields:
        probe = fields["probe"] == 1
        name = "uet.pds.probe_opaque" if probe else "uet.pds.ack_psn_offset"
        said[name] = value_of(fields["ack_psn_offset_probe_opaque"], signed=not probe)
    if "opcode" in fields:
        said["uet.ses.response" if "list" in fields else "uet.ses.opcode"] = fields["opcode"]
    if "payload_length" in fields:
        name = "uet.ses.response_length" if "list" in fields else "uet.ses.payload_length"
        said[name] = value_of(fields["payload_length"], signed=False)
    return said


def said_by(vector: dict[str, Any]) -> dict[str, int]:
    said: dict[str, int] = {}
    for header in vector["headers"]:
        if header["structure"] in EXTENSIONS:
            continue
        fields = in_header(header)
        if header["structure"] in {"RequestHdrSmall", "RequestHdrMedium"}:
            fields["uet.ses.request_length"] = fields.pop("uet.ses.message_id") & 0x3FFF
        if vector.get("pds_type", "").startswith("UET_PDS_TYPE_CONTROL") and header["layer"] == "SES":
            continue  # its generator ends a control packet before its payload
        said |= fields
    return said


def test_wireshark_reads_of_every_vector_what_it_says(tmp_path: Path) -> None:
    found = shown([bytes.fromhex(vector["frame"]) for vector in VECTORS], tmp_path)
    compared = 0
    for vector, row in zip(VECTORS, found, strict=True):
        said = said_by(vector)
        assert {name: row.get(name) for name in said} == said, vector["name"]
        compared += len(said)
    assert compared > 1000
    assert {row["uet.pds.type"] for row in found} == set(range(2, 15))


OURS: Final = {
    "UetRequest": ("psn", "spdcid", "clear_psn_offset"),
    "UetAck": ("cack_psn", "spdcid", "dpdcid"),
    "UetNack": ("psn", "spdcid", "dpdcid", "payload"),
    "UetControl": ("psn", "spdcid", "payload"),
    "UetIdempotent": (),
    "UetUnreliable": (),
}
"""Fields of packet delivery whose names are the same here and in the dissector."""


def test_wireshark_reads_random_headers_as_we_do(tmp_path: Path) -> None:
    rng = random.Random(20261125)
    whole = [bytes.fromhex(vector["frame"]) for vector in VECTORS]
    frames: list[bytes] = []
    while len(frames) < 3000:
        frame = bytearray(rng.choice(whole))
        for _ in range(8):
            frame[DATAGRAM_AT + rng.randrange(min(56, len(frame) - DATAGRAM_AT))] = rng.randrange(256)
        try:
            _native.uet_decode(bytes(frame)[DATAGRAM_AT:], len(frame) - DATAGRAM_AT)
        except ValueError:
            continue
        frames.append(bytes(frame))
    for content, row in zip(frames, shown(frames, tmp_path), strict=True):
        pds, ses, _ = _native.uet_decode(content[DATAGRAM_AT:], len(content) - DATAGRAM_AT)
        ours = {f"uet.pds.{name}": getattr(pds, name) for name in OURS[type(pds).__name__]}
        if isinstance(ses, _native.UetStandardRequest):
            ours |= {
                "uet.ses.message_length": ses.message_bytes,
                "uet.ses.buffer_offset": ses.buffer_offset,
                "uet.ses.memory_key": ses.memory_key,
                "uet.ses.message_id": ses.start.message_id_or_bytes,
            }
        assert {name: row.get(name) for name in ours} == ours


def test_recorded_headers_are_read_and_those_that_are_no_packet_marked(tmp_path: Path) -> None:
    """Bytes of another implementation: headers of packet delivery, some followed by nothing where a header should be."""
    lead = bytes.fromhex(VECTORS[0]["frame"])[:DATAGRAM_AT]
    rows = dissected(
        "uet",
        pcap(tmp_path / "uet.pcap", [lead + bytes.fromhex(vector["hex"]) for vector in RECORDED]),
        *("_ws.col.Protocol", "uet.pds.type", "uet.cut", "uet.unknown"),
    )
    for vector, (protocol, kind, cut, unknown) in zip(RECORDED, rows, strict=True):
        datagram = bytes.fromhex(vector["hex"])
        assert protocol == "UET"
        assert int(kind) == datagram[0] >> 3
        try:
            _native.uet_decode(datagram, len(datagram))
        except ValueError as malformed:
            reason = str(malformed)
        else:
            reason = ""
        if reason in {"", "too short"}:
            assert bool(cut) == bool(reason), (vector["name"], reason)
        assert bool(unknown) == (reason in {"unknown type", "encrypted"}), (vector["name"], reason)


def test_what_a_switch_cut_shows_the_headers_that_are_left(tmp_path: Path) -> None:
    vectors = [one for one in _vectors("trimmed_frames.json", "vectors") if one["name"].startswith("uet_")]
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
def test_the_command_says_where_a_dissector_is(transport: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["capture", "--dissector", transport]) == 0
    said = capsys.readouterr().out
    assert said == f"{dissector_path(transport)}\n"
    assert Path(said.strip()).read_text(encoding="utf-8").startswith(f"-- {transport.upper()}")
