"""Formats an Ultra Ethernet transport packet as part of a line. Pure: bytes in, text out."""

from __future__ import annotations

from typing import Final

from etloop.cli.text.header_values import psn_ranges, value_names
from etloop.traffic import _native

UET_UDP_PORT: Final = 4793
_NAMES: Final = value_names(_native.uet_headers())
_PROBE: Final = 6
_WRITE, _SEND = 0x1, 0x5
_RECEIVED_BYTES: Final = 256
_PSNS: Final = 1 << 32


def uet_text(datagram: bytes, datagram_bytes: int) -> str:
    """Return the text of a UDP payload of `datagram_bytes`, of which `datagram` was captured."""
    headers, _, malformed = _native.uet_decode(datagram, datagram_bytes)
    text = _type_text(datagram[0] >> 3) if datagram else "UET"
    if headers:
        text += _delivery_text(headers)
    return f"{text} malformed: {malformed}" if malformed else text + _semantics_text(headers)


def cut_from(datagram: bytes, datagram_bytes: int) -> str:
    """Return how many bytes a trimmed write or send with rewritten lengths lacks, as text; "" if it is complete."""
    headers, payload_bytes, malformed = _native.uet_decode(datagram, datagram_bytes)
    request = headers.get("standard_request")
    if malformed or request is None or request["opcode"] not in {_WRITE, _SEND}:
        return ""
    is_whole = request["som"] and request["eom"]
    stated_bytes = request["message_length"] if is_whole else request.get("payload_length", 0)
    return f"{stated_bytes - payload_bytes} B less than it states" if stated_bytes > payload_bytes else ""


def _type_text(pds_type: int) -> str:
    name = _NAMES["type"].get(pds_type)
    if name is None:
        return f"UET type {pds_type}"
    return f"UET_{name.removesuffix(' request').replace(' ', '_').upper()}"


def _value_text(field: str, value: int) -> str:
    return _NAMES[field].get(value, f"{field} {value:#04x}")


def _delivery_text(headers: _native.Headers) -> str:
    name, pds = next(iter(headers.items()))
    match name:
        case "idempotent":
            text = f" packet {pds['pkt_id']}"
        case "request":
            text = f"{_pdcs_text(pds)} psn {pds['psn']}"
        case "control":
            probe = f" {pds['probe_opaque']}" if pds["control_type"] == _PROBE else ""
            text = f" {_value_text('control_type', pds['control_type'])}{probe}{_pdcs_text(pds)} psn {pds['psn']}"
        case "nack":
            text = f"{_pdcs_text(pds)} {_value_text('nack_code', pds['nack_code'])} {pds['psn']}"
        case "ack":
            return _ack_text(headers)
        case _:
            text = ""
    return text + _flags_text(pds)


def _pdcs_text(pds: dict[str, int]) -> str:
    target = f"syn+{pds['psn_offset']}" if "psn_offset" in pds else pds["dpdcid"]
    return f" pdc {pds['spdcid']} > {target}"


def _flags_text(pds: dict[str, int]) -> str:
    flags = (("marked", " marked"), ("ack_request", " ackreq"), ("retransmitted", " retransmitted"))
    return "".join(text for field, text in flags if pds.get(field))


def _ack_text(headers: _native.Headers) -> str:
    ack = headers["ack"]
    text = f"{_pdcs_text(ack)} up to {ack['cack_psn']}"
    if state := headers.get("ack_state"):
        ahead = psn_ranges((ack["cack_psn"] + state["sack_psn_offset"]) % _PSNS, state["sack_bitmap"], _PSNS)
        text += f" and {ahead}" if ahead else ""
    text += (
        f" for probe {ack['probe_opaque']}"
        if ack["answers_probe"]
        else f" for {(ack['cack_psn'] + ack['ack_psn_offset']) % _PSNS}"
    )
    text += _flags_text(ack)
    text += {1: " asks to clear", 2: " asks to close"}.get(ack["request"], "")
    if nscc := headers.get("nscc_state"):
        text += f" received {nscc['rcvd_bytes'] * _RECEIVED_BYTES} B"
    return text


def _semantics_text(headers: _native.Headers) -> str:
    match headers:
        case {"standard_request": request}:
            text = f" {_value_text('opcode', request['opcode'])} message {request['message_id']} of {request['message_length']} B"
            text += f" from {request['message_offset']}" if "message_offset" in request else ""
            text += f" to {request['buffer_offset']:#x} key {request['memory_key']:#x}"
            return text + (f" imm {request['header_data']}" if request["hd"] and request["som"] else "")
        case {"medium_request": request} | {"small_request": request}:
            return f" {_value_text('opcode', request['opcode'])} of {request['request_length']} B"
        case {"response_with_small_data": response}:
            return f" data of {response['response_length']} B {_value_text('return_code', response['return_code'])}"
        case {"response": response}:
            return f" response to message {response['message_id']} {_value_text('return_code', response['return_code'])}"
        case {"response_with_data": response}:
            text = f" response to message {response['message_id']} {_value_text('return_code', response['return_code'])}"
            return f"{text}, data of {response['response_length']} B"
    return ""
