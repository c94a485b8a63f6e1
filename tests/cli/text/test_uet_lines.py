"""Lines of UET packets in `etloop capture`."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any, Final

import pytest

from etloop.cli.text.capture import capture_lines
from etloop.cli.text.capture_files import CapturedFrame
from etloop.cli.text.uet_lines import cut_from, uet_text
from tests.support.places import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator


def _vectors() -> Iterator[dict[str, Any]]:
    for name, key in (("uet_packets.json", "vectors"), ("uet_ai_dialogue.json", "ai_vectors")):
        yield from json.loads((ROOT / "tests/data" / name).read_text(encoding="utf-8"))[key]


FRAMES: Final = {vector["name"]: bytes.fromhex(vector["frame"]) for vector in _vectors()}
DATAGRAM_AT: Final = 14 + 20 + 8
TYPES: Final = {
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


def line_of(content: bytes) -> str:
    (line,) = capture_lines((CapturedFrame(0, outbound=False, content=content, frame_bytes=len(content)),))
    return line


@pytest.mark.parametrize("name", FRAMES)
def test_line_names_the_packet_type(name: str) -> None:
    line = line_of(FRAMES[name])
    assert TYPES[FRAMES[name][DATAGRAM_AT] >> 3] in line.split()
    assert "malformed" not in line
    if name.startswith("ai_"):
        assert line.endswith("  no check")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "ai_syn_write_som",
            "UET_RUD pdc 257 > syn+0 psn 131072 write message 1 of 3072 B to 0x0 key 0x1020304050607080  ",
        ),
        (
            "ai_syn_write_mid",
            "UET_RUD pdc 257 > syn+1 psn 131073 write message 1 of 3072 B from 1024 to 0x0 ",
        ),
        ("ai_syn_write_eom", " psn 131074 ackreq write "),
        (
            "ai_ack_cc_message",
            "UET_ACK_CC pdc 514 > 257 up to 131074 and 131074 for 131074 received 3072 B response to message 1 ok",
        ),
        ("ai_ack_cc_holes", " up to 131074 and 131076,131078,131080 for "),
        ("ai_ack_cc_holes", " marked received "),
        ("ai_nack_trimmed", " trimmed 1310"),
        ("ai_nack_trimmed_lasthop", " trimmed last hop 1310"),
        ("ai_nack_rod_ooo", " out of order "),
        ("ai_retx_write", " retransmitted write "),
        ("ai_write_imm_single", " imm "),
        ("ai_cp_probe", "UET_CONTROL probe "),
        ("ai_cp_close_cmd", "UET_CONTROL close command pdc 257 > 514 "),
        ("ai_cp_clear_cmd", "UET_CONTROL clear command pdc "),
        ("ai_ack_probe_answer", " for probe "),
        ("ai_ack_close_request", " asks to close"),
        ("ai_ack_clear_request", " asks to clear response to message 4 ok"),
        ("ai_send_single", " send message "),
        ("pds_17", "UET_RUDI packet 2575857510 marked"),
        ("ses_06", " write of "),
    ],
)
def test_what_headers_say_is_in_the_line(name: str, said: str) -> None:
    assert said in line_of(FRAMES[name])


def test_a_packet_that_a_switch_cut_is_named_and_known_for_it() -> None:
    whole = FRAMES["ai_syn_write_mid"]
    kept = whole[: DATAGRAM_AT + 60]
    assert line_of(kept).endswith("  trimmed"), "its lengths are those of before"
    new = bytearray(kept)
    new[16:18] = (len(kept) - 14).to_bytes(2)
    new[38:40] = (len(kept) - 34).to_bytes(2)
    assert line_of(bytes(new)).endswith("  trimmed"), "or those of what is left"
    assert cut_from(bytes(new)[DATAGRAM_AT:], 60) == "1020 B less than it states"
    assert " psn 131073 " in line_of(bytes(new)[: DATAGRAM_AT + 12])


@pytest.mark.parametrize(
    ("datagram", "said"),
    [
        (b"", "UET malformed: too short"),
        (b"\x08\x00\x00\x00", "UET_TSS malformed: encrypted"),
        (b"\xf8\x00\x00\x00", "UET type 31 malformed: unknown type"),
        (
            FRAMES["ai_syn_write_som"][DATAGRAM_AT:][:20],
            "UET_RUD pdc 257 > syn+0 psn 131072 malformed: too short",
        ),
    ],
)
def test_what_is_malformed_says_why(datagram: bytes, said: str) -> None:
    assert uet_text(datagram, len(datagram)) == said


def test_random_bytes_are_a_line() -> None:
    drawn = random.Random(7)
    for _ in range(2000):
        datagram = drawn.randbytes(drawn.randrange(120))
        assert uet_text(datagram, len(datagram))
