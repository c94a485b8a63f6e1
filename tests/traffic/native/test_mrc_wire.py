"""MRC headers against vectors of independent implementations. Their encoding: tests/native/wire/test_mrc.cpp."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from etloop.traffic import _native
from tests.support.places import ROOT
from tests.support.traffic.header_layouts import encoded

MRC_PORT: Final = 4971
ETHERNET_BYTES, IPV6_BYTES, UDP_BYTES, ICRC_BYTES = 14, 40, 8, 4
LAYOUTS: Final = _native.mrc_headers()


def vectors(name: str) -> list[dict[str, Any]]:
    """Return the vectors of a file of tests/data."""
    content: list[dict[str, Any]] = json.loads((ROOT / "tests/data" / name).read_text(encoding="utf-8"))[
        "vectors"
    ]
    return content


HEADERS: Final = [vector for vector in vectors("mrc_headers.json") if vector["fields"]]
PACKETS: Final = vectors("mrc_packets.json")
NAMES: Final = {
    "dqp": "dest_qpn",
    "a": "sack_req",
    "r_key": "rkey",
    "dmalen": "dma_bytes",
    "m": "mark",
    "pr": "answers_probe",
    "cc_fl": "cc_flags",
    "nack_reason": "reason",
    "r_c": "restore_cwnd",
    "rcvd_bytes_256B": "rcvd_bytes",
    "value": "imm",
}
"""Fields whose name in the vectors is not ours."""
RESERVED: Final = {"type", "nh", "res", "res1", "res2", "var_res", "inv_res", "R", "r", "se", "cc_r"}
DERIVED: Final = {
    *("derived", "opcode_name", "op_name", "m_name", "nack_reason_name"),
    *("ack_psn", "mpr_packets", "sack_base_psn"),
}
SACK: Final = "SETH+CC_STATE"


def number(value: object) -> int:
    """Return a field of a vector: an integer, or hexadecimal digits."""
    return int(value, 16) if isinstance(value, str) else int(str(value))


def check_fields(header: dict[str, int], expected: dict[str, Any], *, bth: bool = False) -> None:
    """Compare the fields of a vector with those of a header."""
    compared = 0
    for name, value in expected.items():
        if name in RESERVED or (bth and name == "m"):
            assert number(value) == 0, f"{name} is reserved"
        elif name not in DERIVED:
            assert header[NAMES.get(name, name)] == number(value), name
            compared += 1
    assert compared > 0


def packet_with(kind: str, content: bytes) -> bytes:
    """Return a datagram with a header of this kind, its lengths fitting, and zeros elsewhere."""
    alone = {"AETH": 0xD1, "ERTH": 0xD8, "EETH": 0xD9, SACK: 0xDC, "NETH": 0xDD, "PETH": 0xDE}
    if kind == "BTH":
        return content
    if kind in alone:
        return bytes((alone[kind],)) + bytes(11) + content + bytes(ICRC_BYTES)
    write = {"METH": bytes(4), "TSETH": bytes(4), "RETH": bytes(15) + b"\x08", "ImmDt": bytes(4)} | {
        kind: content
    }
    bth = b"\xc9" + bytes(7) + b"\x10" + bytes(3)
    return bth + b"".join(write.values()) + bytes(4) + bytes(ICRC_BYTES)


@pytest.mark.parametrize("vector", HEADERS, ids=lambda vector: str(vector["name"]))
def test_header_decodes_to_the_fields_of_its_vector(vector: dict[str, Any]) -> None:
    kind, content, fields = vector["header"], bytes.fromhex(vector["hex"]), dict(vector["fields"])
    datagram = packet_with(kind, content)
    headers, _, malformed = _native.mrc_decode(datagram, len(datagram))
    assert malformed == ("too short" if kind == "BTH" else "")
    assert content in encoded(LAYOUTS, headers)
    if vector["name"] == "eeth_client":
        fields["high_op"] = fields.pop("op")
    if kind == SACK:
        of_state = {name for name in fields if name.startswith("cc_") and name not in {"cc_type", "cc_fl"}}
        check_fields(headers["cc_state"], {name.removeprefix("cc_"): fields.pop(name) for name in of_state})
        check_fields(headers["seth"], sack_fields(fields))
    else:
        check_fields(headers[kind.lower()], fields, bth=kind == "BTH")


def sack_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a SETH: the answer to a probe has the probe's identifier, others the PSN."""
    dropped = "ack_psn_offset" if number(fields["pr"]) else "probe_id"
    return {name: value for name, value in fields.items() if name not in {dropped, "cc_state"}}


def datagram_of(vector: dict[str, Any]) -> bytes:
    """BTH to ICRC."""
    at = next(start for name, start, _ in vector["layout_name_offset_length"] if name == "bth")
    return bytes.fromhex(vector["frame"])[at:]


@pytest.mark.parametrize("vector", PACKETS, ids=lambda vector: str(vector["name"]))
def test_packet_decodes_to_the_fields_of_its_vector(vector: dict[str, Any]) -> None:
    datagram = datagram_of(vector)
    headers, payload_bytes, malformed = _native.mrc_decode(datagram, len(datagram))
    expected = {name: dict(fields) for name, fields in vector["fields"].items() if name in headers}
    if "seth" in expected:
        expected["cc_state"] = expected["seth"]["cc_state"]
        expected["seth"] = sack_fields(expected["seth"])
    if vector["name"] == "ep_rsp_ev_probe_client_layout":
        expected["eeth"]["high_op"] = expected["eeth"].pop("op")
    assert malformed == ""
    assert set(headers) == set(expected)
    for name, fields in expected.items():
        check_fields(headers[name], fields, bth=name == "bth")
    pad_bytes = vector["fields"]["bth"]["pad"]
    assert payload_bytes == vector["fields"].get("payload_length", 0) - pad_bytes
    content = encoded(LAYOUTS, headers)
    assert datagram.startswith(content)
    assert len(content) + payload_bytes + pad_bytes + ICRC_BYTES == len(datagram)


def test_layouts_have_a_meaning_for_each_field() -> None:
    fields = {field[0] for *_, fields in LAYOUTS for field in fields}
    assert fields == {field[0] for *_, fields in LAYOUTS for field in fields if field[1]}


@pytest.mark.parametrize("vector", PACKETS, ids=lambda vector: str(vector["name"]))
def test_icrc_is_the_one_of_two_other_implementations(vector: dict[str, Any]) -> None:
    frame = bytes.fromhex(vector["frame"])
    inner = len(frame) - len(datagram_of(vector)) - UDP_BYTES - IPV6_BYTES
    frame = frame[:ETHERNET_BYTES] + frame[inner:]
    assert _native.check_frame(frame, MRC_PORT) == "good"
    assert _native.check_frame(frame) == "not_roce", "the port of MRC is its own"
    damaged = frame[:-1] + bytes((frame[-1] ^ 1,))
    assert _native.check_frame(damaged, MRC_PORT) == "bad_icrc"


def changed(name: str, at: int, value: int, keep_bytes: int | None = None) -> bytes:
    """The datagram of a vector with one byte changed, cut to `keep_bytes`."""
    datagram = bytearray(datagram_of(next(vector for vector in PACKETS if vector["name"] == name)))
    datagram[at] = value
    return bytes(datagram[:keep_bytes])


@pytest.mark.parametrize(
    ("datagram", "reason"),
    [
        (b"", "too short"),
        (changed("sack_in_order", 0, 0xDC, 11), "too short"),
        (changed("sack_in_order", 0, 0xDC, 48), "too short"),
        (changed("write_only_64_ts", 0, 0xCA, 39), "too short"),
        (changed("sack_in_order", 0, 0x11), "not an MRC opcode"),
        (changed("sack_in_order", 0, 0xDF), "unknown opcode"),
        (changed("sack_in_order", 1, 0x01), "transport version is not 0"),
        (changed("sack_in_order", 1, 0x10), "more pad than payload"),
        (changed("sack_in_order", 0, 0xD1), "length does not fit the opcode"),
        (changed("write_only_64", 0, 0xC6), "length does not fit the opcode"),
        (changed("write_only_64", 31, 0), "length does not fit the opcode"),
        (changed("write_only_64", 0, 0xCA, 99), "length does not fit the opcode"),
        (changed("nack_trimmed", 14, 0x55), "unknown NACK reason"),
    ],
)
def test_malformed_packet_is_rejected_with_its_reason(datagram: bytes, reason: str) -> None:
    assert _native.mrc_decode(datagram, len(datagram))[2] == reason


def test_headers_suffice_if_the_capture_kept_no_more() -> None:
    vector = next(vector for vector in PACKETS if vector["name"] == "write_first_1024")
    datagram = datagram_of(vector)
    _, payload_bytes, malformed = _native.mrc_decode(datagram[:32], len(datagram))
    assert (payload_bytes, malformed) == (1024, "")


@pytest.mark.parametrize("name", ["mrc_write_middle_cut_128_len_kept", "mrc_write_middle_cut_128_len_fixed"])
def test_trimmed_packet_keeps_its_bth(name: str) -> None:
    frame = bytes.fromhex(
        next(vector["frame"] for vector in vectors("trimmed_frames.json") if vector["name"] == name)
    )
    datagram = frame[ETHERNET_BYTES + IPV6_BYTES + UDP_BYTES :]
    headers, _, malformed = _native.mrc_decode(datagram, len(datagram))
    bth = headers["bth"]
    assert malformed
    assert (bth["opcode"], bth["dest_qpn"], bth["psn"]) == (0xC7, 34, 259)
