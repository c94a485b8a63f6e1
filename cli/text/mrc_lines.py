"""Formats an MRC packet as part of a line: the fields of each of its headers. Pure: bytes in, text out."""

from __future__ import annotations

from typing import Final

from etloop.traffic import _native

MRC_NAMES: Final = {
    0xC6: "MRC_WRITE_FIRST",
    0xC7: "MRC_WRITE_MIDDLE",
    0xC8: "MRC_WRITE_LAST",
    0xC9: "MRC_WRITE_LAST_IMM",
    0xCA: "MRC_WRITE_ONLY",
    0xCB: "MRC_WRITE_ONLY_IMM",
    0xD1: "MRC_ACK",
    0xD8: "MRC_ENDPOINT_REQUEST",
    0xD9: "MRC_ENDPOINT_RESPONSE",
    0xDC: "MRC_SACK",
    0xDD: "MRC_NACK",
    0xDE: "MRC_PROBE",
}
FULL: Final = (0xC6, 0xC7)
"""First and middle packets of a message are one path MTU long."""
WRITE_HEADER_BYTES: Final = 12 + 4 + 16
_REASONS: Final = {
    0x01: "trimmed",
    0x02: "trimmed at the last hop",
    0x06: "no bitmap",
    0x07: "no packet buffer",
    0x0A: "no resource",
    0x0B: "beyond the window",
    0x19: "unexpected event",
}
_MARKS: Final = {1: " marked", 2: " withdraw"}
_OPERATIONS: Final = {0: "port status", 1: "entropy probe"}
_PSNS: Final = 1 << 24
_RECEIVED_BYTES: Final = 256


def is_mrc(opcode: int) -> bool:
    """Return whether an opcode is in the range that distinguishes MRC from RoCEv2 on a shared UDP port."""
    return opcode >> 5 == 0b110


def mrc_text(datagram: bytes, datagram_bytes: int) -> str:
    """Return the text of a UDP payload of `datagram_bytes`, of which `datagram` was captured."""
    try:
        bth, body, _ = _native.mrc_decode(datagram, datagram_bytes)
    except ValueError as error:
        return _malformed_text(datagram, str(error))
    text = f"{MRC_NAMES[bth.opcode]} qp {bth.dest_qpn:#x} psn {bth.psn}"
    text += " retransmitted" if bth.retransmitted else ""
    text += " sackreq" if bth.sack_req else ""
    return text + _body_text(body)


def _malformed_text(datagram: bytes, why: str) -> str:
    """Return the text of a trimmed or malformed packet, with queue pair and PSN if its base transport header is there."""
    name = MRC_NAMES.get(datagram[0], f"opcode {datagram[0]:#04x}") if datagram else ""
    try:
        _, qpn, psn, _ = _native.mrc_decode_cut(datagram)
    except ValueError:
        return f"{name} malformed: {why}"
    return f"{name} qp {qpn:#x} psn {psn} malformed: {why}"


def _body_text(body: _native.MrcBody) -> str:
    if isinstance(body, _native.MrcWrite):
        reth, imm = body.reth, body.imm
        text = f" msn {body.meth.msn} va {reth.va:#x} rkey {reth.rkey:#x} len {reth.dma_bytes}"
        return text + (f" imm {imm.value}" if imm is not None else "")
    if isinstance(body, _native.MrcAeth):
        return f" msn {body.msn}" + ("" if body.syndrome == 0x1F else f" NAK {body.syndrome:#04x}")
    if isinstance(body, _native.MrcSack):
        return _sack_text(body)
    if isinstance(body, _native.MrcNeth):
        reason = _REASONS.get(body.reason, f"reason {body.reason:#04x}")
        return f" {reason} {body.nack_psn} entropy {body.entropy}"
    if isinstance(body, _native.MrcPeth):
        return f" probe {body.probe_id}"
    operation = _OPERATIONS.get(body.op, f"operation {body.op}")
    ports = f" ports {body.port_status_mask:#x}" if isinstance(body, _native.MrcErth) and body.op == 0 else ""
    return f" {operation}{ports}"


def _sack_text(sack: _native.MrcSack) -> str:
    seth = sack.seth
    text = f" up to {seth.cack_psn}"
    ahead = psn_ranges((seth.cack_psn + seth.sack_offset) % _PSNS, seth.sack_bitmap)
    text += f" and {ahead}" if ahead else ""
    text += (
        f" for probe {seth.ack_psn_offset & 0xFFFF}"
        if seth.answers_probe
        else f" for {(seth.cack_psn + seth.ack_psn_offset) % _PSNS}"
    )
    text += f" entropy {seth.entropy}{_MARKS.get(seth.mark, '')}"
    return text + f" received {sack.cc_state.received_256bytes * _RECEIVED_BYTES} B"


def psn_ranges(base: int, bitmap: int, psns: int = _PSNS) -> str:
    """Return the PSNs of the set bits, the lowest bit being `base`, modulo `psns`: "7,9-12"; "" if none is set."""
    ranges = []
    bit = 0
    while bitmap >> bit:
        if not bitmap >> bit & 1:
            bit += 1
            continue
        first = bit
        while bitmap >> bit & 1:
            bit += 1
        low, high = (base + first) % psns, (base + bit - 1) % psns
        ranges.append(str(low) if low == high else f"{low}-{high}")
    return ",".join(ranges)
