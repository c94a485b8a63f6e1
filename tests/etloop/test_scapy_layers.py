"""Scapy layers against our encoder and decoders, vectors of independent implementations, golden frames and tshark."""

from __future__ import annotations

import random
import struct
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
from scapy.config import conf
from scapy.layers.dns import DNS
from scapy.layers.inet import IP, UDP, IPOption_NOP
from scapy.layers.inet6 import IPv6, IPv6ExtHdrSegmentRouting
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Packet, Raw
from scapy.utils import rdpcap

from etloop.scapy_layers import (
    AETH,
    BTH,
    DETH,
    IETH,
    METH,
    MRC,
    NETH,
    RETH,
    SETH,
    TSETH,
    UET,
    XRCETH,
    AtomicAckETH,
    AtomicETH,
    CCState,
    CNPPadding,
    ImmDt,
    RocePad,
    SelectiveBitmap,
    UETAck,
    UETAckState,
    UETCreditState,
    UETRequest,
    UETStandardRequest,
    cnp,
    icrc_of,
    icrc_ok,
)
from etloop.scapy_layers.roce import HEADERS
from etloop.traffic import _native
from tests.support.places import ROOT
from tests.support.traffic.header_layouts import field_values
from tests.support.traffic.uet_vectors import DATAGRAM_AT, PACKETS
from tests.support.tshark import dissected, pcap
from tests.traffic.native.test_mrc_wire import PACKETS as MRC_PACKETS

GOLDEN: Final = [bytes(packet) for packet in rdpcap(str(ROOT / "tests/data/golden.pcap"))]
BAD_ICRC: Final = 8
MRC_AT: Final = 14 + 40 + 8
ROCE_V1: Final = (
    "7cfe90753cd87cfe90753cd889156020000000281b4000000000000000000000ffff0f00000200000000000000000000ffff0f000002"
    "0a70ffff0000010a80a788bc000055d4c0726000000047b3000000050000000001000000e3d856bb\n"
    "7cfe90753cd87cfe90753cd889156020000000141b4000000000000000000000ffff0f00000200000000000000000000ffff0f000002"
    "1140ffff0000010900a788c00000000525f0c038"
).split()
"""Frames captured from a network card: WRITE_ONLY of one byte, and its ACK (RoCE v1)."""


@pytest.fixture(autouse=True)
def _strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let errors of dissection end the test; Scapy would return bytes without a structure."""
    monkeypatch.setattr(conf, "debug_dissector", True)


def layers(packet: Packet) -> Iterator[Packet]:
    """Yield a packet's layers from the outside in."""
    layer: Packet = packet
    while layer:
        yield layer
        layer = layer.payload


def fields(packet: Packet) -> dict[str, int]:
    """Return the fields of MRC and UET headers by the dissector's names, such as "pds.psn" or "va"."""
    owners = {name: owner for owner, name, *_ in (*_native.mrc_headers(), *_native.uet_headers())}
    values: dict[str, int] = {}
    for layer in layers(packet):
        if not type(layer).__module__.startswith(("etloop", "scapy.contrib.roce")) or isinstance(
            layer, RocePad
        ):
            continue
        owner = owners.get(str(layer.name).removeprefix("UET ").replace(" ", "_").lower(), "")
        prefix = f"{owner}." if owner else ""
        values |= {
            prefix + name: int(value)
            for name, value in layer.fields.items()
            if not name.startswith(("reserved", "icrc")) and value is not None
        }
    return values


def without_icrc(frame: bytes) -> bytes:
    """Return the frame built again from its fields, with a new ICRC and new pad."""
    packet = Ether(frame)
    transport = packet[MRC] if MRC in packet else packet[BTH]
    del transport.icrc
    return bytes(packet)


def datagram_of(transport: Packet, source_port: int = 0xC123) -> bytes:
    """Return the bytes from BTH to ICRC."""
    packet = (
        IP(src="10.0.0.1", dst="10.0.0.2", flags="DF", id=0) / UDP(sport=source_port, dport=4791) / transport
    )
    return bytes(packet)[28:]


# ---- RoCEv2


def test_golden_frames_are_dissected_and_built_again() -> None:
    assert [icrc_ok(Ether(frame)) for frame in GOLDEN] == [
        number != BAD_ICRC for number in range(len(GOLDEN))
    ]
    for number, frame in enumerate(GOLDEN):
        assert bytes(Ether(frame)) == frame
        assert without_icrc(frame) == (GOLDEN[0] if number == BAD_ICRC else frame), number
    kinds = [[type(layer) for layer in layers(Ether(frame)[BTH])][1:] for frame in GOLDEN]
    assert kinds[2:5] == [[ImmDt, Raw], [RETH, ImmDt], [AETH]]
    assert kinds[7] == [CNPPadding]
    assert kinds[10] == [RETH, Raw, RocePad]
    assert Ether(GOLDEN[10])[Raw].load == b"\x5a"
    names = [Ether(frame)[AETH].sprintf("%AETH.syndrome%") for frame in GOLDEN[4:7]]
    assert names == ["ACK", "NAK sequence error", "RNR NAK, 0.64 ms"]


def test_tshark_reads_the_same_fields_of_golden_frames(tmp_path: Path) -> None:
    shown = {
        ("opcode", BTH): "infiniband.bth.opcode",
        ("dqpn", BTH): "infiniband.bth.destqp",
        ("psn", BTH): "infiniband.bth.psn",
        ("padcount", BTH): "infiniband.bth.padcnt",
        ("va", RETH): "infiniband.reth.va",
        ("rkey", RETH): "infiniband.reth.r_key",
        ("dma_bytes", RETH): "infiniband.reth.dmalen",
        ("syndrome", AETH): "infiniband.aeth.syndrome",
        ("msn", AETH): "infiniband.aeth.msn",
        ("imm", ImmDt): "infiniband.immdt",
    }
    rows = dissected("mrc", pcap(tmp_path / "golden.pcap", GOLDEN), *shown.values())
    compared = 0
    for frame, row in zip(GOLDEN, rows, strict=True):
        packet = Ether(frame)
        for ((field, layer), _), text in zip(shown.items(), row, strict=True):
            if layer in packet:
                number = int(text.split(",")[0].replace(":", ""), 0 if layer is not ImmDt else 16)
                assert packet[layer].getfieldval(field) == number, (field, frame.hex())
                compared += 1
    assert compared == 4 * len(GOLDEN) + 3 * 6 + 2 * 3 + 2


def random_packet(opcode: int, rng: random.Random) -> tuple[_native.WirePacket, Packet, bytes]:
    """Return a packet of an opcode as a native value and as layers of Scapy, and its payload."""
    native = _native.WirePacket(opcode)
    native.ack_req, native.becn = rng.random() < 0.5, rng.random() < 0.5
    native.dest_qpn, native.psn = rng.getrandbits(24), rng.getrandbits(24)
    ours: Packet = BTH(
        opcode=opcode,
        migreq=opcode != 0x81,
        becn=native.becn,
        dqpn=native.dest_qpn,
        ackreq=native.ack_req,
        psn=native.psn,
    )
    widths = {
        RETH: {"va": 64, "rkey": 32, "dma_bytes": 32},
        AtomicETH: {"va": 64, "rkey": 32, "swap_add": 64, "compare": 64},
        ImmDt: {"imm": 32},
        IETH: {"rkey": 32},
        AETH: {"syndrome": 8, "msn": 24},
        AtomicAckETH: {"original": 64},
        DETH: {"qkey": 32, "src_qpn": 24},
    }
    payload = b""
    for header in HEADERS[opcode]:
        if header is SelectiveBitmap:
            payload = rng.randbytes(32)
            ours /= SelectiveBitmap(payload)
            continue
        values: dict[str, Any] = {
            name: rng.getrandbits(bits) for name, bits in widths.get(header, {}).items()
        }
        for name, value in values.items():
            setattr(native, name, value)
        ours /= header(**values)
    if opcode in (0x00, 0x01, 0x06, 0x07, 0x0D, 0x0E):
        payload = rng.randbytes(64)
    elif opcode in (0x02, 0x03, 0x04, 0x05, 0x08, 0x09, 0x0A, 0x0B, 0x0F, 0x10, 0x16, 0x17, 0x64):
        payload = rng.randbytes(rng.randrange(1, 71))
    return native, ours / Raw(payload) if payload and SelectiveBitmap not in ours else ours, payload


def test_each_opcode_is_built_as_the_engine_builds_it() -> None:
    """Pad counts and ICRCs are computed. The engine lacks UC, XRC, and datagrams with immediate data."""
    rng = random.Random(20261129)
    flow = _native.IpFlow("10.0.0.1", "10.0.0.2", 0xC123)
    engine = [*range(0x15), 0x16, 0x17, 0x64, 0x81, 0xF1, 0xF2]
    for opcode in engine:
        for _ in range(4):
            native, ours, payload = random_packet(opcode, rng)
            datagram = datagram_of(ours)
            assert datagram.hex() == _native.encode(native, flow, 0, payload).hex(), hex(opcode)
            again = BTH(datagram)
            assert [type(layer) for layer in layers(again)][1 : 1 + len(HEADERS[opcode])] == list(
                HEADERS[opcode]
            )
            assert (again[Raw].load if Raw in again else b"") == (b"" if SelectiveBitmap in ours else payload)
    assert set(engine) == {
        opcode for opcode in HEADERS if not 0x20 <= opcode < 0x60 and not 0xA0 <= opcode < 0xC0
    } - {0x65}


def test_opcodes_that_the_engine_lacks_have_their_headers() -> None:
    assert HEADERS[0x2B] == (RETH, ImmDt)
    assert HEADERS[0x65] == (DETH, ImmDt)
    assert (HEADERS[0xAA], HEADERS[0xB1], HEADERS[0xB3]) == ((XRCETH, RETH), (AETH,), (XRCETH, AtomicETH))
    again = BTH(
        datagram_of(
            BTH(opcode="XRC_SEND_ONLY_WITH_INVALIDATE") / XRCETH(srqn=7) / IETH(rkey=8) / Raw(b"abcd")
        )
    )
    assert (again.opcode, again[XRCETH].srqn, again[IETH].rkey, again[Raw].load) == (0xB7, 7, 8, b"abcd")


@pytest.mark.parametrize(
    "network",
    [
        Ether() / IP(src="10.0.0.1", dst="10.0.0.2"),
        Ether() / Dot1Q(vlan=5, prio=3) / IP(src="10.0.0.1", dst="10.0.0.2", id=77, flags="DF", tos=0x6A),
        Ether() / Dot1Q(vlan=5) / IPv6(src="fd00::1", dst="fd00::2", tc=3, fl=99),
        Ether() / IP(src="10.0.0.1", dst="10.0.0.2", options=[IPOption_NOP()] * 4),
    ],
    ids=["ipv4", "vlan", "ipv6", "options"],
)
def test_the_engine_accepts_the_icrc_in_each_network_header(network: Packet) -> None:
    packet = network / UDP() / BTH(opcode="RC_SEND_ONLY", dqpn=7) / Raw(b"a" * 61)
    frame = bytearray(bytes(packet))
    assert _native.check_frame(bytes(frame)) == "good"
    assert icrc_ok(Ether(bytes(frame)))
    frame[-9] ^= 1
    assert _native.check_frame(bytes(frame)) == "bad_icrc"
    assert not icrc_ok(Ether(bytes(frame)))


def test_changes_that_switches_make_leave_the_icrc_right() -> None:
    packet = Ether(bytes(Ether() / IP(src="10.0.0.1", dst="10.0.0.2", tos=2) / UDP() / BTH() / Raw(b"data")))
    routed = packet.copy()
    routed[IP].tos, routed[IP].ttl = 3, 9
    routed[BTH].fecn = 1
    del routed[IP].chksum
    assert icrc_ok(Ether(bytes(routed)))
    routed[BTH].psn += 1
    assert not icrc_ok(routed)
    assert icrc_of(routed) != icrc_of(packet)


def test_icrc_covers_segment_routing_and_roce_version_1() -> None:
    segments = IPv6ExtHdrSegmentRouting(addresses=["fd00::2"])
    packet = Ether() / IPv6(src="fd00::1", dst="fd00::2") / segments / UDP() / BTH() / Raw(b"data")
    assert icrc_ok(Ether(bytes(packet)))
    for text in ROCE_V1:
        frame = bytes.fromhex(text)
        assert icrc_ok(Ether(frame))
        assert without_icrc(frame) == frame
        assert not icrc_ok(Ether(frame[:-1] + b"\0"))


def test_a_packet_that_is_cut_or_has_no_icrc_is_reported() -> None:
    assert not icrc_ok(Ether(GOLDEN[1][:200]))
    assert not icrc_ok(Ether(GOLDEN[9][:100]))
    assert icrc_ok(Ether(GOLDEN[4] + bytes(20))), "padding of the Ethernet frame is not part of the packet"
    with pytest.raises(
        ValueError,
        match="has no ICRC; expected a packet with a BTH",
    ):
        icrc_ok(IP() / UDP())
    with pytest.raises(ValueError, match="has no IP, IPv6 or GRH layer"):
        icrc_of(BTH())


def test_pad_is_added_unless_the_script_counts_it() -> None:
    automatic = BTH(datagram_of(BTH(opcode="RC_SEND_ONLY") / Raw(b"abc")))
    assert (automatic.padcount, automatic[Raw].load, automatic[RocePad].load) == (1, b"abc", b"\0")
    wrong = datagram_of(BTH(opcode="RC_SEND_ONLY", padcount=2) / Raw(b"abcdef"))
    assert len(wrong) == 12 + 6 + 4
    chosen = datagram_of(BTH(opcode="RC_SEND_ONLY") / Raw(b"abc") / RocePad(b"\xff"))
    assert (BTH(chosen).padcount, chosen[-5:-4]) == (1, b"\xff")


def test_usual_layers_set_the_fields_below() -> None:
    packet = UDP() / BTH() / AETH()
    assert (packet.dport, packet.sport, packet[BTH].opcode) == (4791, 0xC000, 0x11)
    assert IP(bytes(IP() / UDP() / cnp(dqpn=5)))[BTH].becn == 1


# ---- Ports


@pytest.mark.parametrize("source_port", [53, 123, 4793, 0xC000])
def test_the_destination_port_decides_whatever_the_source_port(source_port: int) -> None:
    roce = IP() / UDP(sport=source_port, dport=4791) / BTH(opcode="RC_SEND_ONLY") / Raw(b"data")
    assert BTH in IP(bytes(roce))
    assert MRC in IP(bytes(IP() / UDP(sport=source_port, dport=4971) / MRC() / NETH()))
    assert UETRequest in IP(bytes(IP() / UDP(sport=source_port) / UETRequest() / UETStandardRequest()))


def test_on_rocev2s_port_the_opcode_decides_between_mrc_and_rocev2() -> None:
    shared = IP(bytes(IP() / UDP(dport=4791) / MRC() / NETH(nack_psn=9)))
    assert shared[NETH].nack_psn == 9
    assert icrc_ok(shared)
    assert DNS in IP(bytes(IP() / UDP() / DNS())), "other ports keep their layers"


# ---- MRC and UET


def test_mrc_vectors_are_dissected_as_the_native_decoder_does_and_built_again() -> None:
    for vector in MRC_PACKETS:
        frame = bytes.fromhex(vector["frame"])
        check_mrc(frame)
        assert bytes(Ether(frame)) == frame, vector["name"]
        assert without_icrc(frame) == frame, vector["name"]
        assert icrc_ok(Ether(frame))


def check_mrc(frame: bytes) -> bool:
    """Compare the fields of a frame with the native decoder's; return False for one that the decoder refuses."""
    headers, payload_bytes, malformed = _native.mrc_decode(frame[MRC_AT:], len(frame) - MRC_AT)
    if malformed:
        return False
    packet = Ether(frame)[MRC]
    assert fields(packet) == field_values(_native.mrc_headers(), headers), frame.hex()
    assert len(packet[Raw].load if Raw in packet else b"") == payload_bytes
    return True


def test_random_mrc_headers_are_dissected_as_the_native_decoder_does() -> None:
    rng = random.Random(20261130)
    vectors = [bytes.fromhex(vector["frame"]) for vector in MRC_PACKETS if len(vector["frame"]) < 1000]
    decoded = 0
    for _ in range(400):
        frame = bytearray(rng.choice(vectors))
        for _ in range(6):
            frame[MRC_AT + rng.randrange(min(52, len(frame) - MRC_AT))] = rng.randrange(256)
        decoded += check_mrc(bytes(frame))
        assert bytes(Ether(bytes(frame))) == bytes(frame)
    assert decoded > 50


def test_a_script_builds_mrc_packets_that_the_native_decoder_reads() -> None:
    write = (
        MRC(opcode="write only imm", dest_qpn=5, psn=6, ts=1)
        / METH(msn=2)
        / TSETH(tx_timestamp=3)
        / RETH(dma_bytes=5)
    )
    datagram = bytes(UDP() / (write / ImmDt(imm=7) / Raw(b"abcde")))[8:]
    headers, payload_bytes, malformed = _native.mrc_decode(datagram, len(datagram))
    assert (malformed, payload_bytes, list(headers)) == ("", 5, ["bth", "meth", "tseth", "reth", "immdt"])
    assert (headers["bth"]["pad"], headers["tseth"]["ftype"], headers["bth"]["p_key"]) == (3, 1, 0xFFFF)
    sack = MRC(
        datagram_of(MRC() / SETH(answers_probe=1, probe_id=8, mark="skip once") / CCState(ooo_count=9))
    )
    assert (sack.opcode, sack[SETH].probe_id, sack[SETH].mark, sack[CCState].ooo_count) == (0xDC, 8, 1, 9)


def check_uet(frame: bytes) -> bool:
    """Compare the fields of a frame with the native decoder's; return False for one that the decoder refuses."""
    headers, payload_bytes, malformed = _native.uet_decode(frame[DATAGRAM_AT:], len(frame) - DATAGRAM_AT)
    if malformed:
        return False
    packet = Ether(frame)[UDP].payload
    expected = field_values(_native.uet_headers(), headers)
    if {"nscc_state", "credit_state"} & set(headers):
        del expected["pds.cc_state"]
    assert fields(packet) == expected, frame.hex()
    assert len(packet[Raw].load if Raw in packet else b"") == payload_bytes
    return True


def test_uet_vectors_are_dissected_as_the_native_decoder_does_and_built_again() -> None:
    assert all(check_uet(bytes.fromhex(vector["frame"])) for vector in PACKETS)
    for vector in PACKETS:
        rebuilt = Ether(bytes.fromhex(vector["frame"]))
        for layer in layers(rebuilt):
            layer.raw_packet_cache = None
        assert bytes(rebuilt).hex() == vector["frame"], vector["name"]


def test_random_uet_headers_are_dissected_as_the_native_decoder_does() -> None:
    rng = random.Random(20261131)
    vectors = [bytes.fromhex(vector["frame"]) for vector in PACKETS]
    decoded = 0
    for _ in range(400):
        frame = bytearray(rng.choice(vectors))
        for _ in range(6):
            frame[DATAGRAM_AT + rng.randrange(min(56, len(frame) - DATAGRAM_AT))] = rng.randrange(256)
        decoded += check_uet(bytes(frame))
        assert bytes(Ether(bytes(frame))) == bytes(frame)
    assert decoded > 50


def test_a_script_builds_uet_packets_that_the_native_decoder_reads() -> None:
    request = UETRequest(syn=1, psn_offset=3, psn=9) / UETStandardRequest(
        opcode="write", som=1, eom=1, header_data=4
    )
    datagram = bytes(UDP() / request)[8:]
    headers, _, malformed = _native.uet_decode(datagram, len(datagram))
    assert malformed == ""
    assert (headers["request"]["psn_offset"], headers["standard_request"]["header_data"]) == (3, 4)
    ack = UET(bytes(UETAck() / UETAckState(sack_psn_offset=-2) / UETCreditState(credit=5)))
    assert (
        ack.type,
        ack[UETAckState].cc_type,
        ack[UETAckState].sack_psn_offset,
        ack[UETCreditState].credit,
    ) == (8, 1, -2, 5)


@cache
def hostile() -> list[bytes]:
    """Return frames with random bytes, cut anywhere, to each of the ports."""
    rng = random.Random(20261132)
    frames = []
    for port in (4791, 4971, 4793):
        for _ in range(150):
            datagram = rng.randbytes(rng.randrange(90))
            frames.append(
                bytes(
                    Ether()
                    / IP(src="10.0.0.1", dst="10.0.0.2")
                    / UDP(sport=0xC000, dport=port)
                    / Raw(datagram)
                )
            )
    return frames


def test_any_bytes_are_dissected_and_kept() -> None:
    for frame in hostile():
        packet = Ether(frame)
        assert bytes(packet) == frame
        assert struct.unpack(">H", frame[36:38])[0] == packet[UDP].dport
        if BTH in packet or MRC in packet:
            assert icrc_ok(packet) in (True, False)


def test_without_scapy_the_error_names_the_extra() -> None:
    program = "import sys; sys.modules['scapy'] = None; import etloop.scapy_layers"
    done = subprocess.run((sys.executable, "-c", program), capture_output=True, text=True, check=False)
    assert "pip install 'etloop[scapy]'" in done.stderr
    assert done.returncode == 1


def test_names_that_are_exported_are_documented() -> None:
    import etloop.scapy_layers as module

    ours: list[Any] = [getattr(module, name) for name in module.__all__]
    assert [item for item in ours if item.__module__.startswith("etloop") and not item.__doc__] == []
