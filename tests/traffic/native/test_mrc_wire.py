"""MRC's headers against vectors of independent implementations: decoded to their fields, and encoded to their bytes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import pytest

from etloop.traffic import _native
from tests.support.places import ROOT

MRC_PORT: Final = 4971
ETHERNET_BYTES, IPV6_BYTES, UDP_BYTES, ICRC_BYTES = 14, 40, 8, 4

Header = (
    _native.MrcBth
    | _native.MrcMeth
    | _native.MrcTseth
    | _native.MrcReth
    | _native.MrcImmediate
    | _native.MrcAeth
    | _native.MrcSeth
    | _native.MrcCcState
    | _native.MrcNeth
    | _native.MrcPeth
    | _native.MrcErth
    | _native.MrcEeth
)


def vectors(name: str) -> list[dict[str, Any]]:
    """The vectors of a file of tests/data."""
    found: list[dict[str, Any]] = json.loads((ROOT / "tests/data" / name).read_text(encoding="utf-8"))[
        "vectors"
    ]
    return found


HEADERS: Final = vectors("mrc_headers.json")
PACKETS: Final = vectors("mrc_packets.json")
WHOLE_HEADERS: Final = [vector for vector in HEADERS if vector["fields"]]
DECODERS: Final[dict[str, tuple[Callable[[bytes], Header], ...]]] = {
    "BTH": (_native.MrcBth.decode,),
    "METH": (_native.MrcMeth.decode,),
    "TSETH": (_native.MrcTseth.decode,),
    "RETH": (_native.MrcReth.decode,),
    "ImmDt": (_native.MrcImmediate.decode,),
    "AETH": (_native.MrcAeth.decode,),
    "SETH+CC_STATE": (_native.MrcSeth.decode, _native.MrcCcState.decode),
    "NETH": (_native.MrcNeth.decode,),
    "PETH": (_native.MrcPeth.decode,),
    "ERTH": (_native.MrcErth.decode,),
    "EETH": (_native.MrcEeth.decode,),
}
OURS: Final = {
    "pad": "pad_bytes",
    "tver": "transport_version",
    "dqp": "dest_qpn",
    "a": "sack_req",
    "rtx": "retransmitted",
    "ts": "has_tseth",
    "r_key": "rkey",
    "dmalen": "dma_bytes",
    "tsr": "own_unit",
    "ftype": "format",
    "m": "mark",
    "pr": "answers_probe",
    "spdcid": "sender_id",
    "dpdcid": "receiver_id",
    "cc_fl": "cc_flags",
    "mpr": "window_128psns",
    "nack_reason": "reason",
    "vendor_info": "vendor",
    "ooo_count": "out_of_order",
    "r_c": "restore_window",
    "restore_cwnd": "restore_window",
    "rcv_cwnd_pen": "window_penalty",
    "rcvd_bytes": "received_256bytes",
    "rcvd_bytes_256B": "received_256bytes",
}
RESERVED: Final = {"type", "nh", "res", "res1", "res2", "var_res", "inv_res", "R", "r", "se", "cc_r"}
DERIVED: Final = {"derived", "probe_id", "opcode_name", "op_name", "m_name", "nack_reason_name", "cc_state"}
DERIVED_OF_SETH: Final = {"ack_psn", "mpr_packets", "sack_base_psn"}


def number(value: object) -> int:
    """A field of a vector: an integer, or hexadecimal digits."""
    return int(value, 16) if isinstance(value, str) else int(str(value))


def check_fields(header: Header, expected: dict[str, Any], *, bth: bool = False) -> int:
    """Compare the fields of a vector with those of a header; return how many."""
    compared = 0
    for name, value in expected.items():
        if name in RESERVED or (bth and name == "m"):
            assert number(value) == 0, f"{name} is reserved"
            continue
        ours = OURS.get(name, name)
        assert getattr(header, ours) == number(value), name
        compared += 1
    return compared


@pytest.mark.parametrize("vector", WHOLE_HEADERS, ids=lambda vector: str(vector["name"]))
def test_every_header_decodes_to_its_fields_and_encodes_to_its_bytes(vector: dict[str, Any]) -> None:
    content = bytes.fromhex(vector["hex"])
    fields = {name: value for name, value in vector["fields"].items() if name not in DERIVED - {"probe_id"}}
    if vector["header"] == "SETH+CC_STATE":
        fields.pop("probe_id", None)
    if vector["name"] == "eeth_client":
        fields["high_op"] = fields.pop("op")
    encoded, compared = b"", 0
    for decode in DECODERS[vector["header"]]:
        header = decode(content[len(encoded) :])
        is_state = isinstance(header, _native.MrcCcState)
        mine = {
            name.removeprefix("cc_") if is_state else name: value
            for name, value in fields.items()
            if (name.startswith("cc_") and name not in {"cc_type", "cc_fl"}) == is_state
        }
        compared += check_fields(header, mine, bth=vector["header"] == "BTH")
        encoded += header.encode()
    assert encoded == content
    assert compared > 0


def test_a_header_that_is_cut_off_is_refused() -> None:
    cut = [vector for vector in HEADERS if not vector["fields"]]
    assert [vector["name"] for vector in cut] == ["fpga_seth_truncated_12", "fpga_seth_truncated_0"]
    for vector in cut:
        with pytest.raises(ValueError, match=r"^too short$"):
            _native.MrcSeth.decode(bytes.fromhex(vector["hex"]))


def headers_of(bth: _native.MrcBth, body: _native.MrcBody) -> dict[str, Header]:
    """The headers of a packet by the names that vectors give them."""
    match body:
        case _native.MrcWrite():
            found: dict[str, Header | None] = {
                "bth": bth,
                "meth": body.meth,
                "tseth": body.tseth,
                "reth": body.reth,
                "immdt": body.imm,
            }
            return {name: header for name, header in found.items() if header is not None}
        case _native.MrcSack():
            return {"bth": bth, "seth": body.seth, "cc_state": body.cc_state}
        case _native.MrcAeth():
            return {"bth": bth, "aeth": body}
        case _native.MrcNeth():
            return {"bth": bth, "neth": body}
        case _native.MrcPeth():
            return {"bth": bth, "peth": body}
        case _native.MrcErth():
            return {"bth": bth, "erth": body}
        case _native.MrcEeth():
            return {"bth": bth, "eeth": body}


def datagram_of(vector: dict[str, Any]) -> bytes:
    """BTH to ICRC."""
    at = next(start for name, start, _ in vector["layout_name_offset_length"] if name == "bth")
    return bytes.fromhex(vector["frame"])[at:]


@pytest.mark.parametrize("vector", PACKETS, ids=lambda vector: str(vector["name"]))
def test_every_packet_decodes_to_its_fields_and_encodes_to_its_bytes(vector: dict[str, Any]) -> None:
    datagram = datagram_of(vector)
    bth, body, payload = _native.mrc_decode(datagram)
    found = headers_of(bth, body)
    expected = {name: fields for name, fields in vector["fields"].items() if name in found or name == "seth"}
    if "seth" in expected:
        expected["cc_state"] = expected["seth"]["cc_state"]
    assert set(found) == set(expected)
    for name, fields in expected.items():
        dropped = (DERIVED - {"probe_id"}) | (DERIVED_OF_SETH if name == "seth" else set())
        kept = {key: value for key, value in fields.items() if key not in dropped}
        if vector["name"] == "ep_rsp_ev_probe_client_layout" and name == "eeth":
            kept["high_op"] = kept.pop("op")
        assert check_fields(found[name], kept, bth=name == "bth") > 0
    pad_bytes = vector["fields"]["bth"]["pad"]
    assert len(payload) == vector["fields"].get("payload_length", 0) - pad_bytes
    assert _native.mrc_encode(bth, body, payload) == datagram[:-ICRC_BYTES]


@pytest.mark.parametrize("vector", PACKETS, ids=lambda vector: str(vector["name"]))
def test_the_icrc_of_every_packet_is_the_one_computed_twice_elsewhere(vector: dict[str, Any]) -> None:
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
    ("datagram", "why"),
    [
        (b"", "too short"),
        (changed("sack_in_order", 0, 0xDC, 11), "too short"),
        (changed("sack_in_order", 0, 0xDC, 48), "too short"),
        (changed("write_only_64_ts", 0, 0xCA, 39), "too short"),
        (changed("sack_in_order", 0, 0x11), "not an opcode of MRC"),
        (changed("sack_in_order", 0, 0xDF), "unknown opcode"),
        (changed("sack_in_order", 1, 0x01), "transport version is not 0"),
        (changed("sack_in_order", 1, 0x10), "more pad than payload"),
        (changed("sack_in_order", 0, 0xD1), "length does not fit the opcode"),
        (changed("write_only_64", 0, 0xC6), "length does not fit the opcode"),
        (changed("write_only_64", 31, 0), "length does not fit the opcode"),
        (changed("write_only_64", 0, 0xCA, 99), "length does not fit the opcode"),
        (changed("nack_trimmed", 14, 0x55), "unknown reason of a NACK"),
    ],
)
def test_what_is_malformed_is_refused_by_its_reason(datagram: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=f"^{why}$"):
        _native.mrc_decode(datagram)


def test_headers_alone_are_enough_where_a_capture_kept_no_more() -> None:
    vector = next(vector for vector in PACKETS if vector["name"] == "write_first_1024")
    datagram = datagram_of(vector)
    _, body, payload = _native.mrc_decode(datagram[:32], len(datagram))
    assert isinstance(body, _native.MrcWrite)
    assert (body.payload_bytes, payload) == (1024, b"")


def test_a_body_of_another_opcode_is_not_encoded() -> None:
    sack, _, _ = _native.mrc_decode(changed("sack_in_order", 0, 0xDC))
    _, nack, _ = _native.mrc_decode(changed("nack_trimmed", 0, 0xDD))
    with pytest.raises(ValueError, match=r"^the body is not one of the opcode$"):
        _native.mrc_encode(sack, nack)
    write, body, payload = _native.mrc_decode(changed("write_only_45", 0, 0xCA))
    assert len(payload) == 45
    with pytest.raises(ValueError, match=r"^the payload is not as long as the body says$"):
        _native.mrc_encode(write, body, payload[:-1])


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("mrc_write_middle_cut_128_len_kept", (0xC7, 34, 259, None)),
        ("mrc_write_middle_cut_128_len_fixed", (0xC7, 34, 259, None)),
    ],
)
def test_what_a_switch_left_still_names_its_packet(
    name: str, found: tuple[int, int, int, int | None]
) -> None:
    frame = bytes.fromhex(
        next(vector["frame"] for vector in vectors("trimmed_frames.json") if vector["name"] == name)
    )
    assert _native.mrc_decode_cut(frame[ETHERNET_BYTES + IPV6_BYTES + UDP_BYTES :]) == found


def test_the_timestamp_of_a_cut_packet_is_there_as_long_as_its_header_is() -> None:
    assert _native.mrc_decode_cut(changed("write_only_64_ts", 0, 0xCA, 20)) == (0xCA, 34, 257, 3000)
    assert _native.mrc_decode_cut(changed("write_only_64_ts", 0, 0xCA, 19)) == (0xCA, 34, 257, None)
    with pytest.raises(ValueError, match=r"^too short$"):
        _native.mrc_decode_cut(changed("write_only_64_ts", 0, 0xCA, 11))
