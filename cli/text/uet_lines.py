"""Formats an Ultra Ethernet transport packet as part of a line. Pure: bytes in, text out."""

from __future__ import annotations

from typing import Final

from etloop.cli.text.mrc_lines import psn_ranges
from etloop.traffic import _native

UET_UDP_PORT: Final = 4793
TYPE_NAMES: Final = {
    2: "UET_RUD",
    3: "UET_ROD",
    4: "UET_RUDI",
    5: "UET_RUDI_RESPONSE",
    6: "UET_UUD",
    7: "UET_ACK",
    8: "UET_ACK_CC",
    9: "UET_ACK_CCX",
    10: "UET_NACK",
    11: "UET_CONTROL",
    12: "UET_NACK_CCX",
    13: "UET_RUD_CC",
    14: "UET_ROD_CC",
}
CONTROL_NAMES: Final = {
    0: "noop",
    1: "ack request",
    2: "clear command",
    3: "clear request",
    4: "close command",
    5: "close request",
    6: "probe",
    7: "credit",
    8: "credit request",
    9: "negotiation",
}
NACK_NAMES: Final = {
    0x01: "trimmed",
    0x02: "trimmed at the last hop",
    0x03: "trimmed ack",
    0x04: "no pdc available",
    0x05: "no congestion context available",
    0x06: "no bitmap",
    0x07: "no packet buffer",
    0x08: "no guaranteed delivery available",
    0x09: "no message available",
    0x0A: "no resource",
    0x0B: "psn beyond the window",
    0x0D: "out of order",
    0x0E: "unknown dpdcid",
    0x0F: "header mismatch",
    0x10: "closing",
    0x11: "closing in error",
    0x12: "packet not received",
    0x13: "response unavailable",
    0x14: "ack with data",
    0x15: "invalid syn",
    0x16: "mode mismatch",
    0x17: "new start psn",
    0x18: "in process",
    0x19: "unexpected event",
    0x1A: "loss inferred",
}
OPERATION_NAMES: Final = {
    0x0: "noop",
    0x1: "write",
    0x2: "read",
    0x3: "atomic",
    0x4: "fetch atomic",
    0x5: "send",
    0x6: "rendezvous send",
    0x7: "datagram",
    0x8: "deferrable send",
    0x9: "tagged send",
    0xA: "rendezvous tagged send",
    0xB: "deferrable tagged send",
    0xC: "ready to restart",
    0xD: "tagged send atomic",
    0xE: "tagged send fetch atomic",
    0xF: "message error",
}
RETURN_NAMES: Final = {
    0x00: "null",
    0x01: "ok",
    0x02: "bad generation",
    0x03: "disabled",
    0x05: "no match",
    0x06: "unsupported operation",
    0x07: "unsupported size",
    0x09: "translation permission",
    0x0C: "out of range",
    0x17: "permission violation",
    0x19: "bad index",
    0x1A: "bad pid",
    0x1B: "bad job",
    0x1C: "bad key",
    0x1D: "bad address",
    0x1E: "cancelled",
    0x22: "too long",
    0x23: "initiator error",
    0x24: "dropped",
}
_NSCC: Final = 0
_RECEIVED_BYTES: Final = 256
_PSNS: Final = 1 << 32


def uet_text(datagram: bytes, datagram_bytes: int) -> str:
    """Return the text of a UDP payload of `datagram_bytes`, of which `datagram` was captured."""
    try:
        pds, ses, _ = _native.uet_decode(datagram, datagram_bytes)
    except ValueError as error:
        return _malformed_text(datagram, str(error))
    return _delivery_text(pds) + _semantics_text(ses)


def cut_from(datagram: bytes, datagram_bytes: int) -> str:
    """Return how many bytes a trimmed write or send with rewritten lengths lacks, as text; "" if it is complete."""
    try:
        _, ses, _ = _native.uet_decode(datagram, datagram_bytes)
    except ValueError:
        return ""
    if not isinstance(ses, _native.UetStandardRequest) or ses.start.operation not in {0x1, 0x5}:
        return ""
    payload_bytes = datagram_bytes - 12 - 44
    start = ses.start
    stated_bytes = ses.message_bytes if start.start_of_message and start.end_of_message else ses.payload_bytes
    return f"{stated_bytes - payload_bytes} B less than it states" if stated_bytes > payload_bytes else ""


def _malformed_text(datagram: bytes, why: str) -> str:
    name = TYPE_NAMES.get(datagram[0] >> 3, f"UET type {datagram[0] >> 3}") if datagram else "UET"
    try:
        return f"{_delivery_text(_native.uet_decode_cut(datagram))} malformed: {why}"
    except ValueError:
        return f"{name} malformed: {why}"


def _delivery_text(pds: _native.UetPds) -> str:
    text = TYPE_NAMES[pds.type]
    match pds:
        case _native.UetUnreliable():
            return text
        case _native.UetIdempotent():
            return f"{text} packet {pds.packet_id}" + _flags_text(marked=pds.marked, again=pds.retransmitted)
        case _native.UetRequest():
            return (
                text + _place(pds) + f" psn {pds.psn}" + _flags_text(asks=pds.asks, again=pds.retransmitted)
            )
        case _native.UetControl():
            control_name = CONTROL_NAMES.get(pds.control, f"type {pds.control}")
            probe = f" {pds.probe_id}" if pds.control == 6 else ""
            return f"{text} {control_name}{probe}{_place(pds)} psn {pds.psn}" + _flags_text(
                asks=pds.asks, again=pds.retransmitted
            )
        case _native.UetNack():
            code = NACK_NAMES.get(pds.code, f"code {pds.code:#04x}")
            text += f" pdc {pds.spdcid} > {pds.dpdcid} {code} {pds.psn}"
            return text + _flags_text(marked=pds.marked, again=pds.retransmitted)
        case _native.UetAck():
            return text + _ack_text(pds)


def _place(header: _native.UetRequest | _native.UetControl) -> str:
    if header.syn:
        return f" pdc {header.spdcid} > syn+{header.dpdcid & 0xFFF}"
    return f" pdc {header.spdcid} > {header.dpdcid}"


def _flags_text(*, marked: bool = False, asks: bool = False, again: bool = False) -> str:
    return (" marked" if marked else "") + (" ackreq" if asks else "") + (" retransmitted" if again else "")


def _ack_text(ack: _native.UetAck) -> str:
    text = f" pdc {ack.spdcid} > {ack.dpdcid} up to {ack.cack_psn}"
    state = ack.state
    if state is not None:
        ahead = psn_ranges((ack.cack_psn + state.sack_psn_offset) % _PSNS, state.sack_bitmap, _PSNS)
        text += f" and {ahead}" if ahead else ""
    text += (
        f" for probe {ack.ack_psn_offset & 0xFFFF}"
        if ack.answers_probe
        else f" for {(ack.cack_psn + ack.ack_psn_offset) % _PSNS}"
    )
    text += _flags_text(marked=ack.marked, again=ack.retransmitted)
    text += {1: " asks to clear", 2: " asks to close"}.get(ack.request, "")
    if state is not None and state.cc_type == _NSCC:
        text += f" received {_native.uet_nscc_state(state.state).received_256bytes * _RECEIVED_BYTES} B"
    return text


def _semantics_text(ses: _native.UetSes) -> str:
    match ses:
        case None:
            return ""
        case _native.UetStandardRequest():
            start = ses.start
            offset_text = "" if start.start_of_message else f" from {ses.message_offset}"
            text = f" {_operation_name(start)} message {start.message_id_or_bytes} of {ses.message_bytes} B{offset_text}"
            text += f" to {ses.buffer_offset:#x} key {ses.memory_key:#x}"
            return text + (
                f" imm {ses.header_data}" if start.has_header_data and start.start_of_message else ""
            )
        case _native.UetMediumRequest() | _native.UetSmallRequest():
            return f" {_operation_name(ses.start)} of {ses.start.message_id_or_bytes & 0x3FFF} B"
        case _native.UetSmallDataResponse():
            return f" data of {ses.payload_bytes} B {_return_name(ses.code)}"
        case _native.UetResponse():
            return f" response to message {ses.message_id} {_return_name(ses.code)}"
        case _native.UetDataResponse():
            return f" response to message {ses.message_id} {_return_name(ses.code)}, data of {ses.payload_bytes} B"


def _operation_name(start: _native.UetRequestStart) -> str:
    return OPERATION_NAMES.get(start.operation, f"operation {start.operation:#04x}")


def _return_name(code: int) -> str:
    return RETURN_NAMES.get(code, f"code {code:#04x}")
