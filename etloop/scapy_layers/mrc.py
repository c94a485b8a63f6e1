"""MRC (OCP Multipath Reliable Connection) for Scapy. Fields have the names of `etloop capture` and of the dissector for
Wireshark (docs/mrc.md); METH to EETH are the specification's names of headers.
"""

from __future__ import annotations

from typing import Final

from scapy.contrib.roce import AETH, BTH
from scapy.fields import FCSField
from scapy.layers.inet import UDP
from scapy.packet import Packet, bind_top_down

from etloop.scapy_layers.icrc import ICRC_BYTES
from etloop.scapy_layers.layouts import dissect_first, fitting
from etloop.scapy_layers.roce import DYNAMIC_PORT, LAYOUTS, RETH, ImmDt
from etloop.scapy_layers.transport import Extension, make_transport, next_header

MRC_PORT: Final = 4971
ROCE_PORT: Final = 4791
_WRITES: Final = range(0xC6, 0xCC)
_WITH_IMMEDIATE: Final = (0xC9, 0xCB)
_WRITE_ONLY: Final = 0xCA


class MRC(Packet):
    """The BTH of MRC, with retransmission and timestamp flags; the ICRC ends the packet, as RoCEv2's does."""

    name = "MRC"
    fields_desc = [*LAYOUTS.fields("bth", automatic="pad"), FCSField("icrc", None, fmt="!I")]

    def guess_payload_class(self, payload: bytes) -> type[Packet]:
        """Return the header that follows by the opcode, or Raw."""
        return next_header(self, payload)


class METH(Extension):
    """Sequence numbers of a write's message."""

    name = "METH"
    fields_desc = LAYOUTS.fields("meth")


class TSETH(Extension):
    """Transmit timestamp; `MRC(ts=1)` has it behind METH."""

    name = "TSETH"
    fields_desc = LAYOUTS.fields("tseth")


class SETH(Extension):
    """Selective acknowledgement."""

    name = "SETH"
    fields_desc = LAYOUTS.fields("seth", lambda packet: bool(packet.getfieldval("answers_probe")))


class CCState(Extension):
    """Congestion control state behind SETH."""

    name = "CC_STATE"
    fields_desc = LAYOUTS.fields("cc_state")


class NETH(Extension):
    """Negative acknowledgement."""

    name = "NETH"
    fields_desc = LAYOUTS.fields("neth")


class PETH(Extension):
    """Probe."""

    name = "PETH"
    fields_desc = LAYOUTS.fields("peth")


class ERTH(Extension):
    """Endpoint request."""

    name = "ERTH"
    fields_desc = LAYOUTS.fields("erth")


class EETH(Extension):
    """Endpoint response."""

    name = "EETH"
    fields_desc = LAYOUTS.fields("eeth")


_ANSWERS: Final[dict[int, tuple[type[Packet], ...]]] = {
    0xD1: (AETH,),
    0xD8: (ERTH,),
    0xD9: (EETH,),
    0xDC: (SETH, CCState),
    0xDD: (NETH,),
    0xDE: (PETH,),
}
"""Headers of packets that are not writes, by opcode."""


def _headers(packet: Packet) -> tuple[type[Packet], ...]:
    """Return the headers behind the BTH."""
    opcode = packet.getfieldval("opcode")
    if opcode not in _WRITES:
        return _ANSWERS.get(opcode, ())
    timestamp = (TSETH,) if packet.getfieldval("ts") else ()
    immediate = (ImmDt,) if opcode in _WITH_IMMEDIATE else ()
    return (METH, *timestamp, RETH, *immediate)


class OnRocePort(Packet):
    """A datagram on RoCEv2's port, which MRC may share: MRC or RoCEv2 by its opcode; Raw for one without BTH and ICRC."""

    @classmethod
    def dispatch_hook(cls, _pkt: bytes | None = None, *_args: object, **_options: object) -> type[Packet]:
        """Return the class of a datagram."""
        datagram = _pkt or b""
        return fitting(MRC if _is_mrc(datagram) else BTH, datagram[:-ICRC_BYTES])


class OnMrcPort(Packet):
    """A datagram on MRC's port; Raw for one with another opcode, or without BTH and ICRC."""

    @classmethod
    def dispatch_hook(cls, _pkt: bytes | None = None, *_args: object, **_options: object) -> type[Packet]:
        """Return the class of a datagram."""
        datagram = _pkt or b""
        return fitting(MRC if _is_mrc(datagram) else None, datagram[:-ICRC_BYTES])


def _is_mrc(datagram: bytes) -> bool:
    return datagram[:1] != b"" and (datagram[0] in _WRITES or datagram[0] in _ANSWERS)


def _bind() -> None:
    make_transport(MRC, "pad", _headers)
    bind_top_down(UDP, MRC, dport=MRC_PORT, sport=DYNAMIC_PORT)
    for opcode, headers in _ANSWERS.items():
        bind_top_down(MRC, headers[0], opcode=opcode)
    bind_top_down(MRC, METH, opcode=_WRITE_ONLY)
    dissect_first(UDP, OnRocePort, dport=ROCE_PORT)
    dissect_first(UDP, OnMrcPort, dport=MRC_PORT)


_bind()
