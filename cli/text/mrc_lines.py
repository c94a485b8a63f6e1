"""Formats an MRC packet as part of a line: the fields of each of its headers. Pure: bytes in, text out."""

from __future__ import annotations

from typing import Final

from etloop.cli.text.header_values import psn_ranges, value_names
from etloop.traffic import _native

FULL: Final = (0xC6, 0xC7)
"""First and middle packets of a message are one path MTU long."""
WRITE_HEADER_BYTES: Final = 12 + 4 + 16
_NAMES: Final = value_names(_native.mrc_headers())
_MARKS: Final = {1: " marked", 2: " withdraw"}
_ACK_SYNDROME: Final = 0x1F
_PSNS: Final = 1 << 24
_RECEIVED_BYTES: Final = 256


def is_mrc(opcode: int) -> bool:
    """Return whether an opcode is in the range that distinguishes MRC from RoCEv2 on a shared UDP port."""
    return opcode >> 5 == 0b110


def mrc_text(datagram: bytes, datagram_bytes: int) -> str:
    """Return the text of a UDP payload of `datagram_bytes`, of which `datagram` was captured."""
    headers, _, malformed = _native.mrc_decode(datagram, datagram_bytes)
    text = _opcode_text(datagram[0]) if datagram else ""
    bth = headers.get("bth")
    if bth is not None:
        text += f" qp {bth['dest_qpn']:#x} psn {bth['psn']}"
    if bth is None or malformed:
        return f"{text} malformed: {malformed}"
    text += " retransmitted" if bth["rtx"] else ""
    text += " sackreq" if bth["sack_req"] else ""
    return text + _body_text(headers)


def _opcode_text(opcode: int) -> str:
    name = _NAMES["opcode"].get(opcode)
    return f"opcode {opcode:#04x}" if name is None else f"MRC_{name.replace(' ', '_').upper()}"


def _body_text(headers: _native.Headers) -> str:
    match headers:
        case {"meth": meth, "reth": reth}:
            text = f" msn {meth['msn']} va {reth['va']:#x} rkey {reth['rkey']:#x} len {reth['dma_bytes']}"
            return text + (f" imm {headers['immdt']['imm']}" if "immdt" in headers else "")
        case {"aeth": aeth}:
            nak = "" if aeth["syndrome"] == _ACK_SYNDROME else f" NAK {aeth['syndrome']:#04x}"
            return f" msn {aeth['msn']}{nak}"
        case {"seth": seth, "cc_state": cc_state}:
            return _sack_text(seth, cc_state)
        case {"neth": neth}:
            return f" {_NAMES['reason'][neth['reason']]} {neth['nack_psn']} entropy {neth['entropy']}"
        case {"peth": peth}:
            return f" probe {peth['probe_id']}"
        case {"erth": erth} if erth["op"] == 0:
            return f"{_operation_text(erth)} ports {erth['port_status_mask']:#x}"
        case {"erth": endpoint} | {"eeth": endpoint}:
            return _operation_text(endpoint)
    return ""


def _operation_text(endpoint: dict[str, int]) -> str:
    op = endpoint["op"]
    return f" {_NAMES['op'].get(op, f'operation {op}')}"


def _sack_text(seth: dict[str, int], cc_state: dict[str, int]) -> str:
    text = f" up to {seth['cack_psn']}"
    ahead = psn_ranges((seth["cack_psn"] + seth["sack_offset"]) % _PSNS, seth["sack_bitmap"], _PSNS)
    text += f" and {ahead}" if ahead else ""
    text += (
        f" for probe {seth['probe_id']}"
        if seth["answers_probe"]
        else f" for {(seth['cack_psn'] + seth['ack_psn_offset']) % _PSNS}"
    )
    text += f" entropy {seth['entropy']}{_MARKS.get(seth['mark'], '')}"
    return text + f" received {cc_state['rcvd_bytes'] * _RECEIVED_BYTES} B"
