"""UET headers against vectors of independent implementations. Their encoding: tests/native/wire/test_uet.cpp."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etloop.traffic import _native
from tests.support.traffic.header_layouts import encoded, field_values
from tests.support.traffic.uet_vectors import DATAGRAM_AT, PACKETS, RECORDED, expected_fields

LAYOUTS: Final = _native.uet_headers()
RECORDED_BYTES: Final[dict[str, bytes]] = {
    vector["name"]: bytes.fromhex(vector["hex"]) for vector in RECORDED
}
RUD: Final = RECORDED_BYTES["ns3_rud_request"]
STANDARD: Final = RECORDED_BYTES["ns3_ses_std_write_imm"]


@pytest.mark.parametrize("vector", PACKETS, ids=lambda vector: str(vector["name"]))
def test_packet_decodes_to_the_fields_of_its_vector(vector: dict[str, Any]) -> None:
    datagram = bytes.fromhex(vector["frame"])[DATAGRAM_AT:]
    headers, payload_bytes, malformed = _native.uet_decode(datagram, len(datagram))
    values, expected = field_values(LAYOUTS, headers), expected_fields(vector)
    assert malformed == ""
    assert {name: values.get(name) for name in expected} == expected
    assert encoded(LAYOUTS, headers) == datagram[: len(datagram) - payload_bytes]


@pytest.mark.parametrize("vector", PACKETS, ids=lambda vector: str(vector["name"]))
def test_truncated_packet_is_too_short(vector: dict[str, Any]) -> None:
    datagram = bytes.fromhex(vector["frame"])[DATAGRAM_AT:]
    reasons = [
        _native.uet_decode(datagram[:kept], len(datagram))[2] for kept in range(min(len(datagram), 100))
    ]
    assert set(reasons) <= {"", "too short"}


def test_layouts_have_a_meaning_for_each_field() -> None:
    fields = {(layer, field[0]) for layer, *_, fields in LAYOUTS for field in fields}
    meant = {(layer, field[0]) for layer, *_, fields in LAYOUTS for field in fields if field[1]}
    assert fields == meant


@pytest.mark.parametrize(
    ("datagram", "expected"),
    [
        (
            RECORDED_BYTES["ns3_ack_cc"],
            {
                "pds.ack_psn_offset": -2,
                "pds.sack_psn_offset": -16,
                "pds.sack_bitmap": 0x8000000000000001,
                "pds.service_time": 0x1234,
                "pds.restore_cwnd": 1,
                "pds.rcv_cwnd_pend": 0x12,
                "pds.rcvd_bytes": 0x345678,
                "pds.ooo_count": 0x9ABC,
            },
        ),
        (
            RUD,
            {"pds.retransmitted": 1, "pds.ack_request": 1, "pds.syn": 0, "pds.clear_psn_offset": 0x1234},
        ),
        (
            RECORDED_BYTES["ns3_nack_rod_ooo"],
            {"pds.nack_code": 0x0D, "pds.psn": 0x01020304, "pds.spdcid": 0x1122, "pds.payload": 0x05060708},
        ),
        (
            RUD + STANDARD,
            {
                "ses.opcode": 1,
                "ses.pid_on_fep": 0xABC,
                "ses.resource_index": 0xDEF,
                "ses.header_data": 0xA1A2A3A4A5A6A7A8,
                "ses.message_length": 8,
            },
        ),
        (
            b"\x11\x00" + RUD[2:] + RECORDED_BYTES["ns3_ses_medium_datagram"],
            {"ses.opcode": 7, "ses.request_length": 128},
        ),
        (
            b"\x3a\x00" + RUD[2:] + RECORDED_BYTES["ns3_ses_response"],
            {"ses.list": 1, "ses.response": 1, "ses.return_code": 2, "ses.modified_length": 0x01020304},
        ),
    ],
)
def test_headers_that_ns3_recorded(datagram: bytes, expected: dict[str, int]) -> None:
    values = field_values(LAYOUTS, _native.uet_decode(datagram, len(datagram))[0])
    assert {name: values.get(name) for name in expected} == expected


@pytest.mark.parametrize(
    ("datagram", "reason"),
    [
        (b"", "too short"),
        (b"\x00\x00\x00\x00", "unknown type"),
        (b"\x08\x00\x00\x00", "encrypted"),
        (RUD[:11], "too short"),
        (RUD, "too short"),
        (RUD[:1] + b"\xd8" + RUD[2:] + STANDARD, "reserved bits are set"),
        (RECORDED_BYTES["ns3_bad_reserved_pds_flag"] + STANDARD, "reserved bits are set"),
        (RUD + RECORDED_BYTES["ns3_bad_reserved_ses_bit"], "reserved bits are set"),
        (
            b"\x11\x00" + RUD[2:] + RECORDED_BYTES["ns3_bad_medium_no_som_eom"],
            "short header, but not a message of one packet",
        ),
        (RUD + b"\x01\x80" + STANDARD[2:], "version is not 0"),
        (b"\x39\x80" + RUD[2:] + STANDARD, "the next header does not fit the type"),
        (b"\x13\x80" + RUD[2:] + STANDARD, "the next header does not fit the type"),
    ],
)
def test_malformed_packet_is_rejected_with_its_reason(datagram: bytes, reason: str) -> None:
    assert _native.uet_decode(datagram, len(datagram))[2] == reason


def test_trimmed_request_keeps_its_pds_header() -> None:
    headers, _, malformed = _native.uet_decode(RUD + b"\x01", 1000)
    assert malformed == "too short"
    assert headers["request"]["psn"] == 0x01020304


@given(st.binary(max_size=120))
def test_arbitrary_bytes_are_rejected_or_decoded(datagram: bytes) -> None:
    headers, payload_bytes, malformed = _native.uet_decode(datagram, len(datagram))
    if not malformed:
        assert len(encoded(LAYOUTS, headers)) + payload_bytes == len(datagram)
