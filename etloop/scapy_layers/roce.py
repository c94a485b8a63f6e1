"""RoCEv2 for Scapy: `scapy.contrib.roce` with all headers of reliable connections and datagrams, pad, and named syndromes.

BTH, AETH, GRH and CNPPadding stay contrib's own classes. Importing this module extends them: `BTH.padcount` and `BTH.icrc`
are computed if unset, and headers are dissected by opcode. Source of headers and opcodes: InfiniBand Architecture
Specification vol. 1, 9.2 to 9.4 and table 38; of RNR timers: table 45.
"""

from __future__ import annotations

from typing import Any, Final

from scapy.contrib.roce import AETH, BTH, CNP_OPCODE, CNPPadding
from scapy.fields import BitField, ByteEnumField, XIntField, XLongField
from scapy.layers.inet import UDP
from scapy.packet import Packet, bind_top_down

from etloop.scapy_layers.layouts import Layouts
from etloop.scapy_layers.transport import Extension, make_transport, next_header
from etloop.traffic import _native

LAYOUTS: Final = Layouts(_native.mrc_headers(), _native.mrc_defaults())
"""MRC has RETH and immediate data as RoCEv2 does; their declaration serves both."""
DYNAMIC_PORT: Final = 0xC000
"""Source port of packets without one; RoCEv2 uses 0xC000 to 0xFFFF."""


class RETH(Extension):
    """Address, key and length of a WRITE or READ."""

    name = "RETH"
    fields_desc = LAYOUTS.fields("reth")


class ImmDt(Extension):
    """Immediate data."""

    name = "ImmDt"
    fields_desc = LAYOUTS.fields("immdt")


class IETH(Extension):
    """Key that a SEND with invalidate invalidates."""

    name = "IETH"
    fields_desc = [XIntField("rkey", 0)]


class AtomicETH(Extension):
    """Address, key and operands of a compare-and-swap or fetch-and-add."""

    name = "AtomicETH"
    fields_desc = [
        XLongField("va", 0),
        XIntField("rkey", 0),
        XLongField("swap_add", 0),
        XLongField("compare", 0),
    ]


class AtomicAckETH(Extension):
    """Value before an atomic operation."""

    name = "AtomicAckETH"
    fields_desc = [XLongField("original", 0)]


class DETH(Extension):
    """Key and source queue pair of a datagram."""

    name = "DETH"
    fields_desc = [XIntField("qkey", 0), BitField("reserved", 0, 8), BitField("src_qpn", 0, 24)]


class XRCETH(Extension):
    """Shared receive queue of an extended reliable connection."""

    name = "XRCETH"
    fields_desc = [BitField("reserved", 0, 8), BitField("srqn", 0, 24)]


class SelectiveBitmap(Extension):
    """PSNs received beyond a gap, a bit each: ETLoop's own, only between its agents (docs/transport.md)."""

    name = "SelectiveBitmap"
    fields_desc = [*(XLongField(f"word_{number}", 0) for number in range(4))]


_SELECTIVE_NAK: Final = 0xF1
_TRIMMED_NAK: Final = 0xF2
_UNRELIABLE: Final = 0x20
_DATAGRAM: Final = 0x60
_EXTENDED: Final = 0xA0
_ATOMICS: Final = (0x13, 0x14)
_READ_RESPONSES: Final = (0x0D, 0x0F, 0x10)
_ACKNOWLEDGE: Final = 0x11
_ATOMIC_ACKNOWLEDGE: Final = 0x12

_RELIABLE: Final[dict[int, tuple[type[Packet], ...]]] = {
    **dict.fromkeys(range(0x15), ()),
    **dict.fromkeys((0x06, 0x0A, 0x0C), (RETH,)),
    **dict.fromkeys((0x03, 0x05, 0x09), (ImmDt,)),
    0x0B: (RETH, ImmDt),
    **dict.fromkeys((*_READ_RESPONSES, _ACKNOWLEDGE), (AETH,)),
    _ATOMIC_ACKNOWLEDGE: (AETH, AtomicAckETH),
    **dict.fromkeys(_ATOMICS, (AtomicETH,)),
    **dict.fromkeys((0x16, 0x17), (IETH,)),
}
_RESPONSES: Final = range(0x0D, 0x13)
HEADERS: Final[dict[int, tuple[type[Packet], ...]]] = {
    **_RELIABLE,
    **{_UNRELIABLE + opcode: headers for opcode, headers in _RELIABLE.items() if opcode <= 0x0B},
    _DATAGRAM + 0x04: (DETH,),
    _DATAGRAM + 0x05: (DETH, ImmDt),
    CNP_OPCODE: (CNPPadding,),
    **{
        _EXTENDED + opcode: headers if opcode in _RESPONSES else (XRCETH, *headers)
        for opcode, headers in _RELIABLE.items()
    },
    _SELECTIVE_NAK: (AETH, SelectiveBitmap),
    _TRIMMED_NAK: (AETH,),
}
"""Headers between BTH and payload by opcode, in wire order."""

_RNR_TIMERS_US: Final = (
    *(655_360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1_280, 1_920, 2_560, 3_840, 5_120),
    *(
        7_680,
        10_240,
        15_360,
        20_480,
        30_720,
        40_960,
        61_440,
        81_920,
        122_880,
        163_840,
        245_760,
        327_680,
        491_520,
    ),
)
"""By the timer code of an RNR NAK."""
SYNDROMES: Final = {
    **{code: f"ACK, credit code {code}" for code in range(0x1F)},
    0x1F: "ACK",
    **{0x20 + code: f"RNR NAK, {timer_us / 1000:g} ms" for code, timer_us in enumerate(_RNR_TIMERS_US)},
    0x60: "NAK sequence error",
    0x61: "NAK invalid request",
    0x62: "NAK remote access error",
    0x63: "NAK remote operational error",
    0x64: "NAK invalid RD request",
}
"""Names of the syndrome of an AETH."""


def _replace_field(layer: type[Packet], field: Any) -> None:
    """Replace a field of contrib's layer by one with the same name, and drop what Scapy cached of it."""
    layer.fields_desc = [field if old.name == field.name else old for old in layer.fields_desc]
    cached: tuple[dict[type[Packet], Any], ...] = (
        Packet.class_default_fields,
        Packet.class_default_fields_ref,
        Packet.class_fieldtype,
        Packet.class_packetfields,
    )
    for table in cached:
        table.pop(layer, None)


def _add_opcode_names() -> None:
    field: Any = next(field for field in BTH.fields_desc if field.name == "opcode")
    reliable = {name: opcode for opcode, name in field.i2s.items() if opcode < _UNRELIABLE}
    names = {_EXTENDED + opcode: f"X{name}" for name, opcode in reliable.items()}
    for opcode, name in ((0x16, "SEND_LAST_WITH_INVALIDATE"), (0x17, "SEND_ONLY_WITH_INVALIDATE")):
        names |= {opcode: f"RC_{name}", _EXTENDED + opcode: f"XRC_{name}"}
    names |= {_SELECTIVE_NAK: "ETLOOP_SELECTIVE_NAK", _TRIMMED_NAK: "ETLOOP_TRIMMED_NAK"}
    for opcode, name in names.items():
        field.i2s[opcode] = name
        field.s2i[name] = opcode


def _guess_behind_bth(self: Packet, payload: bytes) -> type[Packet]:
    """Return the header that follows by opcode; for an opcode without a row, the layer that a script has bound."""
    if self.getfieldval("opcode") in HEADERS:
        return next_header(self, payload)
    return Packet.guess_payload_class(self, payload)


def _extend_contrib() -> None:
    _add_opcode_names()
    _replace_field(BTH, BitField("padcount", None, 2))
    _replace_field(AETH, ByteEnumField("syndrome", 0, SYNDROMES))
    make_transport(BTH, "padcount", lambda bth: HEADERS.get(bth.getfieldval("opcode"), ()))
    setattr(BTH, "guess_payload_class", _guess_behind_bth)  # noqa: B010 - a method of another package
    setattr(AETH, "guess_payload_class", next_header)  # noqa: B010
    # Contrib binds AETH to the ACKNOWLEDGE of reliable datagrams last, so that BTH()/AETH() has that opcode.
    bind_top_down(BTH, AETH, opcode=_ACKNOWLEDGE)
    bind_top_down(UDP, BTH, dport=4791, sport=DYNAMIC_PORT)


_extend_contrib()
