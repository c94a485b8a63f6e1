"""UET vectors of independent implementations: packets, and the fields that they should have by the dissector's names."""

from __future__ import annotations

import json
from typing import Any, Final

from tests.support.places import ROOT

DATAGRAM_AT: Final = 14 + 20 + 8
EXTENSIONS: Final = {"AtomicOpExtHdr", "AtomicCmpAndSwapHdr"}
"""Headers that count as payload."""
PDS_NAMES: Final = {
    "next_hdr": "next_header",
    "ctl_type": "control_type",
    "retrans": "retransmitted",
    "isrod": "rod",
    "ecn_marked": "marked",
    "ackreq": "ack_request",
    "ack_req": "ack_request",
    "probe": "answers_probe",
    "nak_type": "of_rudi",
    "ccx_type": "cc_type",
    "ack_cc_state": "cc_state",
    "nak_code": "nack_code",
    "nak_psn_pkt_id": "psn",
}
SES_NAMES: Final = {
    "delivery_complete": "dc",
    "initiator_error": "ie",
    "relative_addressing": "rel",
    "hdr_data_present": "hd",
    "end_of_msg": "eom",
    "start_of_msg": "som",
    "memory_key_match_bits": "memory_key",
    "match_bits": "memory_key",
    "request_length": "message_length",
    "read_request_message_id": "read_message_id",
    "original_request_psn": "original_psn",
}
RESPONSE_NAMES: Final = SES_NAMES | {"opcode": "response", "payload_length": "response_length"}
SIGNED: Final = {"clear_psn_offset", "sack_psn_offset", "ack_psn_offset"}
PARTS: Final = {
    *("initiator_restart_token", "target_restart_token"),
    *("nccx_type", "nccx_ccx_state1", "nccx_ccx_state2"),
}
"""Fields that one of ours includes."""


def _read(name: str, key: str) -> list[dict[str, Any]]:
    vectors: list[dict[str, Any]] = json.loads((ROOT / "tests/data" / name).read_text(encoding="utf-8"))[key]
    return vectors


PACKETS: Final = [*_read("uet_packets.json", "vectors"), *_read("uet_ai_dialogue.json", "ai_vectors")]
RECORDED: Final = _read("uet_ai_dialogue.json", "ns3_vectors")


def number(value: object) -> int:
    """Return a field of a vector: an integer, or hexadecimal digits."""
    return int(value, 16) if isinstance(value, str) else int(str(value))


def _header_fields(header: dict[str, Any]) -> dict[str, int]:
    fields, structure = dict(header["fields"]), header["structure"]
    names, layer = (PDS_NAMES, "pds") if header["layer"] == "PDS" else (SES_NAMES, "ses")
    if "list" in fields:
        names = RESPONSE_NAMES
    if "ack_psn_offset_probe_opaque" in fields:
        place = fields.pop("ack_psn_offset_probe_opaque")
        fields["probe_opaque" if fields["probe"] else "ack_psn_offset"] = place
    if structure in {"RequestHdrSmall", "RequestHdrMedium"}:
        # Their generator writes a message identifier where other sources have the length.
        names = names | {"message_id": "request_length"}
    expected = {}
    for field, value in fields.items():
        if field not in PARTS:
            name = names.get(field, field)
            signed = name in SIGNED and number(value) >= 1 << 15
            expected[f"{layer}.{name}"] = number(value) - (1 << 16 if signed else 0)
    return expected


def expected_fields(vector: dict[str, Any]) -> dict[str, int]:
    """Return the fields that a packet should have, such as {"pds.psn": 131072}."""
    is_control = vector.get("pds_type", "").startswith("UET_PDS_TYPE_CONTROL")
    expected: dict[str, int] = {}
    for header in vector["headers"]:
        # The generator of these vectors ends a control packet before its payload.
        if header["structure"] not in EXTENSIONS and not (is_control and header["layer"] == "SES"):
            expected |= _header_fields(header)
    return expected
