"""UET (Ultra Ethernet Transport) for Scapy: headers of packet delivery (PDS) and semantics (SES). Fields have the names of
`etloop capture` and of the dissector for Wireshark (docs/uet.md).
"""

from __future__ import annotations

from typing import Final

from scapy.layers.inet import UDP
from scapy.packet import Packet, bind_top_down

from etloop.scapy_layers.layouts import Layouts, dissect_first, fitting, raw_layer
from etloop.scapy_layers.roce import DYNAMIC_PORT
from etloop.traffic import _native

LAYOUTS: Final = Layouts(_native.uet_headers(), _native.uet_defaults())
UET_PORT: Final = 4793
_ACK_CC: Final = 8
_ACK_CCX: Final = 9
_NACK_CCX: Final = 12
_WITH_CREDIT: Final = (13, 14)
_DEFERRABLE: Final = (0x08, 0x0B, 0x0C)
"""Operations whose header has restart tokens, and header data in each packet."""


def _has_syn(packet: Packet) -> bool:
    return bool(packet.getfieldval("syn"))


def _has_header_data(packet: Packet) -> bool:
    return bool(packet.getfieldval("som")) or packet.getfieldval("opcode") in _DEFERRABLE


class _Delivery(Packet):
    """A header of the packet delivery sublayer."""

    def guess_payload_class(self, payload: bytes) -> type[Packet]:
        """Return the header that follows by type, congestion control type and next header, or Raw."""
        return fitting(self.following(), payload)

    def following(self) -> type[Packet] | None:
        """Return the next header of packet delivery; by default the semantic header that the first header names."""
        first: Packet = self
        while isinstance(first.underlayer, _Delivery):
            first = first.underlayer
        return _SEMANTICS.get(first.getfieldval("next_header"))


class UETRequest(_Delivery):
    """RUD or ROD request."""

    name = "UET request"
    fields_desc = LAYOUTS.fields("request", _has_syn)

    def following(self) -> type[Packet] | None:
        """Return the credit target for a type with congestion control, else the semantic header."""
        return UETCreditTarget if self.getfieldval("type") in _WITH_CREDIT else super().following()


class UETCreditTarget(_Delivery):
    """Congestion control part of a request."""

    name = "UET credit target"
    fields_desc = LAYOUTS.fields("credit_target")


class UETIdempotent(_Delivery):
    """RUDI request or response."""

    name = "UET idempotent"
    fields_desc = LAYOUTS.fields("idempotent")


class UETUnreliable(_Delivery):
    """UUD request."""

    name = "UET unreliable"
    fields_desc = LAYOUTS.fields("unreliable")


class UETAck(_Delivery):
    """Acknowledgement."""

    name = "UET ack"
    fields_desc = LAYOUTS.fields("ack", lambda packet: bool(packet.getfieldval("answers_probe")))

    def following(self) -> type[Packet] | None:
        """Return the SACK part for ACK_CC and ACK_CCX, else the semantic header."""
        return UETAckState if self.getfieldval("type") in (_ACK_CC, _ACK_CCX) else super().following()


class UETAckState(_Delivery):
    """SACK part of ACK_CC and ACK_CCX; one of the three states with congestion control's 8 bytes follows."""

    name = "UET ack state"
    fields_desc = LAYOUTS.fields("ack_state", without="cc_state")

    def following(self) -> type[Packet] | None:
        """Return the state by the congestion control type."""
        ack = self.underlayer
        is_cc = ack is not None and ack.getfieldval("type") == _ACK_CC
        states = {0: UETNsccState, 1: UETCreditState} if is_cc else {}
        return states.get(self.getfieldval("cc_type"), UETCcxState)


class UETNsccState(_Delivery):
    """State of NSCC in an ACK_CC."""

    name = "UET NSCC state"
    fields_desc = LAYOUTS.fields("nscc_state")


class UETCreditState(_Delivery):
    """State of receiver-credit congestion control in an ACK_CC."""

    name = "UET credit state"
    fields_desc = LAYOUTS.fields("credit_state")


class UETCcxState(_Delivery):
    """Congestion control part of ACK_CCX and NACK_CCX, without a known structure."""

    name = "UET CCX state"
    fields_desc = LAYOUTS.fields("ccx_state")


class UETNack(_Delivery):
    """Negative acknowledgement."""

    name = "UET nack"
    fields_desc = LAYOUTS.fields("nack")

    def following(self) -> type[Packet] | None:
        """Return the congestion control part for NACK_CCX, else the semantic header."""
        return UETCcxState if self.getfieldval("type") == _NACK_CCX else super().following()


class UETControl(_Delivery):
    """Control packet."""

    name = "UET control"
    fields_desc = LAYOUTS.fields("control", _has_syn)

    def following(self) -> type[Packet] | None:
        """Return None: a semantic header does not follow."""
        return None


class UETStandardRequest(Packet):
    """Standard request; with `som` it has header data, otherwise the packet's length and offset."""

    name = "UET standard request"
    fields_desc = LAYOUTS.fields("standard_request", _has_header_data)


class UETMediumRequest(Packet):
    """Request of one packet, without an offset."""

    name = "UET medium request"
    fields_desc = LAYOUTS.fields("medium_request")


class UETSmallRequest(Packet):
    """Request of one packet, without a key."""

    name = "UET small request"
    fields_desc = LAYOUTS.fields("small_request")


class UETResponse(Packet):
    """Response."""

    name = "UET response"
    fields_desc = LAYOUTS.fields("response")


class UETResponseWithData(Packet):
    """Response that returns data."""

    name = "UET response with data"
    fields_desc = LAYOUTS.fields("response_with_data")


class UETResponseWithSmallData(Packet):
    """Response of one packet that returns data."""

    name = "UET response with small data"
    fields_desc = LAYOUTS.fields("response_with_small_data")


_SEMANTICS: Final[dict[int, type[Packet]]] = {
    1: UETSmallRequest,
    2: UETMediumRequest,
    3: UETStandardRequest,
    4: UETResponse,
    5: UETResponseWithData,
    6: UETResponseWithSmallData,
}
"""Semantic headers by the field `next_header`."""
_FIRST: Final[dict[int, type[Packet]]] = {
    **dict.fromkeys((2, 3, *_WITH_CREDIT), UETRequest),
    **dict.fromkeys((4, 5), UETIdempotent),
    6: UETUnreliable,
    **dict.fromkeys((7, _ACK_CC, _ACK_CCX), UETAck),
    **dict.fromkeys((10, _NACK_CCX), UETNack),
    11: UETControl,
}
"""First headers of packets by the field `type`."""


class UET(Packet):
    """A UET packet by its type: `UET(datagram)` returns its first header; Raw for an unknown type or a cut header."""

    @classmethod
    def dispatch_hook(cls, _pkt: bytes | None = None, *_args: object, **_options: object) -> type[Packet]:
        """Return the class of a packet."""
        return fitting(_FIRST.get(_pkt[0] >> 3), _pkt) if _pkt else raw_layer()


def _bind() -> None:
    for first in dict.fromkeys(_FIRST.values()):
        bind_top_down(UDP, first, dport=UET_PORT, sport=DYNAMIC_PORT)
        if first is not UETControl:
            for number, semantic in _SEMANTICS.items():
                bind_top_down(first, semantic, next_header=number)
    bind_top_down(UETRequest, UETCreditTarget, type=_WITH_CREDIT[0])
    bind_top_down(UETAck, UETAckState, type=_ACK_CC)
    bind_top_down(UETAckState, UETCreditState, cc_type=1)
    bind_top_down(UETNack, UETCcxState, type=_NACK_CCX)
    dissect_first(UDP, UET, dport=UET_PORT)


_bind()
