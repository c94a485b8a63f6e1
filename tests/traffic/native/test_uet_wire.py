"""UET's headers against vectors of independent implementations: decoded to their fields, and encoded to their bytes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etloop.traffic import _native
from tests.support.places import ROOT

UDP_PAYLOAD_AT: Final = 14 + 20 + 8


def _read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "tests/data" / name).read_text(encoding="utf-8"))
    return found


PATTERNS: Final[list[dict[str, Any]]] = _read("uet_packets.json")["vectors"]
DIALOGUE: Final[list[dict[str, Any]]] = _read("uet_ai_dialogue.json")["ai_vectors"]
RECORDED: Final[dict[str, dict[str, Any]]] = {
    vector["name"]: vector for vector in _read("uet_ai_dialogue.json")["ns3_vectors"]
}
FRAMES: Final = [*PATTERNS, *DIALOGUE]

Header = (
    _native.UetRequest
    | _native.UetCreditTarget
    | _native.UetIdempotent
    | _native.UetUnreliable
    | _native.UetControl
    | _native.UetAck
    | _native.UetAckState
    | _native.UetNsccState
    | _native.UetCreditState
    | _native.UetNack
    | _native.UetRequestStart
    | _native.UetStandardRequest
    | _native.UetMediumRequest
    | _native.UetSmallRequest
    | _native.UetAtomicExtension
    | _native.UetCompareSwapExtension
    | _native.UetResponse
    | _native.UetDataResponse
    | _native.UetSmallDataResponse
)
Decoders = tuple[Callable[[bytes], Header], ...]

_REQUEST: Final[Decoders] = (_native.UetRequest.decode,)
_ACK_CC: Final[Decoders] = (_native.UetAck.decode, _native.UetAckState.decode)
_STRUCTURES: Final[tuple[tuple[str, Decoders], ...]] = (
    ("RudRequestCc", (*_REQUEST, _native.UetCreditTarget.decode)),
    ("RudRequestSynCc", (*_REQUEST, _native.UetCreditTarget.decode)),
    ("RodRequestCc", (*_REQUEST, _native.UetCreditTarget.decode)),
    ("RodRequestSynCc", (*_REQUEST, _native.UetCreditTarget.decode)),
    ("RudRequest", _REQUEST),
    ("RodRequest", _REQUEST),
    ("UetPdsRudRodRequest", _REQUEST),
    ("RudiRe", (_native.UetIdempotent.decode,)),
    ("UudReq", (_native.UetUnreliable.decode,)),
    ("AckCc", _ACK_CC),
    ("UetPdsAckCcNscc", _ACK_CC),
    ("Ack", (_native.UetAck.decode,)),
    ("UetPdsAck", (_native.UetAck.decode,)),
    ("Nack", (_native.UetNack.decode,)),
    ("UetPdsNack", (_native.UetNack.decode,)),
    ("ControlPkt", (_native.UetControl.decode,)),
    ("UetPdsControlPkt", (_native.UetControl.decode,)),
    ("RequestHdrMedium", (_native.UetMediumRequest.decode,)),
    ("RequestHdrSmall", (_native.UetSmallRequest.decode,)),
    ("Request", (_native.UetStandardRequest.decode,)),
    ("UetSesRequest", (_native.UetStandardRequest.decode,)),
    ("DeferSend", (_native.UetStandardRequest.decode,)),
    ("ReadyToRestart", (_native.UetStandardRequest.decode,)),
    ("AtomicOpExtHdr", (_native.UetAtomicExtension.decode,)),
    ("AtomicCmpAndSwapHdr", (_native.UetCompareSwapExtension.decode,)),
    ("WithDataHdrSmallResponse", (_native.UetSmallDataResponse.decode,)),
    ("WithDataHdrResponse", (_native.UetDataResponse.decode,)),
    ("HdrResponse", (_native.UetResponse.decode,)),
    ("UetSesHdrResponse", (_native.UetResponse.decode,)),
)
"""How names of structures begin, the longer ones first where one begins as another does."""
OURS: Final = {
    "next_hdr": "next",
    "retrans": "retransmitted",
    "ackreq": "asks",
    "ack_req": "asks",
    "ccc_id": "context",
    "credit_target": "target_256bytes",
    "ecn_marked": "marked",
    "pkt_id": "packet_id",
    "probe": "answers_probe",
    "ack_psn_offset_probe_opaque": "ack_psn_offset",
    "mpr": "window_128psns",
    "service_time": "service_128ns",
    "restore_cwnd": "restore_window",
    "rcv_cwnd_pend": "window_penalty",
    "rcvd_bytes": "received_256bytes",
    "ooo_count": "out_of_order",
    "credit": "credit_256bytes",
    "ccx_type": "cc_type",
    "ack_cc_state": "state",
    "nak_type": "of_idempotent",
    "nak_code": "code",
    "vendor_code": "vendor",
    "nak_psn_pkt_id": "psn",
    "ctl_type": "control",
    "probe_opaque": "probe_id",
    "isrod": "of_rod",
    "opcode": "operation",
    "relative_addressing": "relative",
    "hdr_data_present": "has_header_data",
    "end_of_msg": "end_of_message",
    "start_of_msg": "start_of_message",
    "message_id": "message_id_or_bytes",
    "ri_generation": "generation",
    "pid_on_fep": "process",
    "resource_index": "resource",
    "memory_key_match_bits": "memory_key",
    "match_bits": "memory_key",
    "request_length": "message_bytes",
    "payload_length": "payload_bytes",
    "return_code": "code",
    "modified_length": "modified_bytes",
    "read_request_message_id": "read_message_id",
    "original_request_psn": "request_psn",
    "atomic_code": "operation",
    "atomic_datatype": "datatype",
    "ctrl_cacheable": "cacheable",
    "cpu_coherent": "coherent",
    "vendor_defined": "vendor",
    "compare_value1": "compare_high",
    "compare_value2": "compare_low",
    "swap_value1": "swap_high",
    "swap_value2": "swap_low",
}
OF_RESPONSES: Final = {"opcode": "kind", "message_id": "message_id"}
BY_HALVES: Final = {
    "use_rsv_pdc",
    "psn_offset",
    "initiator_restart_token",
    "target_restart_token",
    "nccx_type",
    "nccx_ccx_state1",
    "nccx_ccx_state2",
}
"""Fields that share one of ours, which the bytes compare."""


def number(value: object) -> int:
    """A field of a vector: an integer, or hexadecimal digits."""
    return int(value, 16) if isinstance(value, str) else int(str(value))


def decoders_of(structure: str) -> Decoders:
    return next(decoders for name, decoders in _STRUCTURES if structure.startswith(name))


def field_of(headers: list[Header], name: str, structure: str) -> int | None:
    """What one of `headers` has for a field of a vector; None: none has it."""
    ours = OF_RESPONSES.get(name, OURS.get(name, name)) if "Response" in structure else OURS.get(name, name)
    if name == "header_data" and structure.startswith("RequestHdrMedium"):
        ours = "header_data_or_offset"
    for header in headers:
        owner: Any = header
        for part in ("", "start", "atomic"):
            owner = getattr(header, part, None) if part else header
            value = getattr(owner, ours, None)
            if value is not None:
                return int(value)
    return None


def _headers(vector: dict[str, Any]) -> list[Any]:
    return [
        pytest.param(header, id=f"{vector['name']}-{header['structure']}") for header in vector["headers"]
    ]


@pytest.mark.parametrize("header", [one for vector in FRAMES for one in _headers(vector)])
def test_every_header_decodes_to_its_fields_and_encodes_to_its_bytes(header: dict[str, Any]) -> None:
    structure, content = header["structure"], bytes.fromhex(header["hex"])
    # Control packets of these vectors end before their payload, and NACK_CCX is decoded as a whole packet.
    padded = content.ljust(16, b"\0") if "Control" in structure else content
    found: list[Header] = []
    encoded = b""
    for decode in decoders_of(structure):
        found.append(decode(padded[len(encoded) :]))
        encoded += found[-1].encode()
    assert encoded[: len(content)] == content[: len(encoded)]
    assert len(encoded) >= len(content) or "NackCcx" in structure
    states = [one for one in found if isinstance(one, _native.UetAckState)]
    for state in states:
        packed = state.state.to_bytes(8)
        kind = _native.UetCreditState if "Credit" in structure else _native.UetNsccState
        found += [kind.decode(packed)] if state.cc_type < 2 else []
    compared = 0
    for name, value in header["fields"].items():
        if name in BY_HALVES:
            continue
        mine = field_of(found, name, structure)
        assert mine is not None, name
        bits = 16 if "offset" in name and mine < 0 else 64
        assert mine % (1 << bits) == number(value), name
        compared += 1
    assert compared >= 2


def refusal(datagram: bytes, datagram_bytes: int) -> str:
    """Why it is malformed; "" of what is not."""
    try:
        _native.uet_decode(datagram, datagram_bytes)
    except ValueError as refused:
        return str(refused)
    return ""


@pytest.mark.parametrize("vector", FRAMES, ids=lambda vector: str(vector["name"]))
def test_every_packet_is_the_same_after_decoding_and_encoding(vector: dict[str, Any]) -> None:
    datagram = bytes.fromhex(vector["frame"])[UDP_PAYLOAD_AT:]
    pds, ses, payload = _native.uet_decode(datagram)
    assert _native.uet_encode(pds, ses, payload) == datagram
    said = {refusal(datagram[:cut], len(datagram)) for cut in range(min(len(datagram), 100))}
    assert said <= {"", "too short"}


def test_what_ns3_recorded() -> None:
    ack = _native.UetAck.decode(bytes.fromhex(RECORDED["ns3_ack_cc"]["hex"]))
    state = _native.UetAckState.decode(bytes.fromhex(RECORDED["ns3_ack_cc"]["hex"])[12:])
    nscc = _native.uet_nscc_state(state.state)
    assert (ack.ack_psn_offset, state.sack_psn_offset, state.sack_bitmap) == (-2, -16, 0x8000000000000001)
    assert (nscc.service_128ns, nscc.restore_window, nscc.window_penalty) == (0x1234, True, 0x12)
    assert (nscc.received_256bytes, nscc.out_of_order) == (0x345678, 0x9ABC)
    request = _native.UetRequest.decode(bytes.fromhex(RECORDED["ns3_rud_request"]["hex"]))
    assert (request.retransmitted, request.asks, request.syn, request.clear_psn_offset) == (
        True,
        True,
        False,
        0x1234,
    )
    nack = _native.UetNack.decode(bytes.fromhex(RECORDED["ns3_nack_rod_ooo"]["hex"]))
    assert (nack.code, nack.psn, nack.spdcid, nack.payload) == (0x0D, 0x01020304, 0x1122, 0x05060708)
    write = _native.UetStandardRequest.decode(bytes.fromhex(RECORDED["ns3_ses_std_write_imm"]["hex"]))
    assert (write.start.operation, write.start.process, write.start.resource) == (1, 0xABC, 0xDEF)
    assert (write.header_data, write.message_bytes) == (0xA1A2A3A4A5A6A7A8, 8)
    medium = _native.UetMediumRequest.decode(bytes.fromhex(RECORDED["ns3_ses_medium_datagram"]["hex"]))
    assert (medium.start.operation, medium.start.message_id_or_bytes) == (7, 128)
    response = _native.UetResponse.decode(bytes.fromhex(RECORDED["ns3_ses_response"]["hex"]))
    assert (response.list, response.kind, response.code, response.modified_bytes) == (1, 1, 2, 0x01020304)


RUD: Final = bytes.fromhex(RECORDED["ns3_rud_request"]["hex"])
STANDARD: Final = bytes.fromhex(RECORDED["ns3_ses_std_write_imm"]["hex"])


@pytest.mark.parametrize(
    ("datagram", "why"),
    [
        (b"", "too short"),
        (b"\x00\x00\x00\x00", "unknown type"),
        (b"\x08\x00\x00\x00", "encrypted"),
        (RUD[:11], "too short"),
        (RUD, "too short"),
        (RUD[:1] + b"\xd8" + RUD[2:] + STANDARD, "reserved bits are set"),
        (bytes.fromhex(RECORDED["ns3_bad_reserved_pds_flag"]["hex"]) + STANDARD, "reserved bits are set"),
        (RUD + bytes.fromhex(RECORDED["ns3_bad_reserved_ses_bit"]["hex"]), "reserved bits are set"),
        (
            b"\x11\x00" + RUD[2:] + bytes.fromhex(RECORDED["ns3_bad_medium_no_som_eom"]["hex"]),
            "a short header, and not a message of one packet",
        ),
        (RUD + b"\x01\x80" + STANDARD[2:], "version is not 0"),
        (b"\x39\x80" + RUD[2:] + STANDARD, "the next header does not fit the type"),
        (b"\x13\x80" + RUD[2:] + STANDARD, "the next header does not fit the type"),
    ],
)
def test_what_is_malformed_is_refused_by_its_reason(datagram: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=f"^{why}$"):
        _native.uet_decode(datagram)


def test_a_write_whose_lengths_do_not_agree_is_known() -> None:
    write = _native.UetStandardRequest.decode(STANDARD)
    assert _native.uet_lengths_agree(write, 8, 1024)
    assert not _native.uet_lengths_agree(write, 7, 1024)
    middle = next(vector for vector in DIALOGUE if vector["name"] == "ai_syn_write_mid")
    _, ses, payload = _native.uet_decode(bytes.fromhex(middle["frame"])[UDP_PAYLOAD_AT:])
    assert isinstance(ses, _native.UetStandardRequest)
    assert _native.uet_lengths_agree(ses, len(payload), 1024)
    assert not _native.uet_lengths_agree(ses, len(payload) - 1, 1024)


def test_a_first_packet_that_a_switch_cut_does_not_pass_for_a_whole_one() -> None:
    first = next(vector for vector in DIALOGUE if vector["name"] == "ai_syn_write_som")
    kept = bytes.fromhex(first["frame"])[UDP_PAYLOAD_AT:][:86]
    _, ses, payload = _native.uet_decode(kept)
    assert isinstance(ses, _native.UetStandardRequest)
    assert len(payload) == 30
    assert not _native.uet_lengths_agree(ses, len(payload), 1024)


def test_what_a_switch_left_of_a_packet_names_it() -> None:
    request = _native.uet_decode_cut(RUD + b"\x01")
    assert isinstance(request, _native.UetRequest)
    assert request.psn == 0x01020304


@given(st.binary(max_size=120))
def test_whatever_comes_is_refused_or_decoded(datagram: bytes) -> None:
    try:
        pds, ses, payload = _native.uet_decode(datagram)
    except ValueError:
        return
    again = _native.uet_encode(pds, ses, payload)
    assert len(again) == len(datagram)
