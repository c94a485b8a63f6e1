"""The part that the BTH of RoCEv2 and of MRC have in common: pad, ICRC, and the choice of the headers that follow by the
opcode.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from scapy.error import warning
from scapy.fields import StrField
from scapy.packet import Packet

from etloop.scapy_layers.icrc import ICRC_BYTES, TRANSPORTS, compute_icrc
from etloop.scapy_layers.layouts import fitting, raw_layer

_PAD_SHIFT: Final = 4
"""The pad count has two bits, in the second byte of the BTH."""
_PAD_MASK: Final = 0b11 << _PAD_SHIFT

FollowingHeaders = Callable[[Packet], tuple[type[Packet], ...]]
_FOLLOWING: Final[dict[type[Packet], tuple[str, FollowingHeaders]]] = {}
"""BTH -> the name of its pad count, and the function that returns the headers that follow by its fields."""


class RocePad(Packet):
    """Pad bytes between payload and ICRC. A packet built without a pad count gets them without this layer."""

    name = "Pad"
    fields_desc = [StrField("load", b"")]


class Extension(Packet):
    """A header behind a BTH."""

    def guess_payload_class(self, payload: bytes) -> type[Packet]:
        """Return the header that follows by the opcode of the BTH, or Raw."""
        return next_header(self, payload)


def next_header(packet: Packet, payload: bytes) -> type[Packet]:
    """Return the layer that follows a BTH, or a header behind one; Raw for a payload."""
    passed, layer = 0, packet
    while type(layer) not in _FOLLOWING:
        below: Packet | None = layer.underlayer
        if below is None:
            return raw_layer()
        passed, layer = passed + 1, below
    headers = _FOLLOWING[type(layer)][1](layer)
    return fitting(headers[passed] if passed < len(headers) else None, payload)


def make_transport(layer: type[Packet], pad_field: str, following: FollowingHeaders) -> None:
    """Give a BTH its pad and ICRC, and the headers that `following` returns for its fields."""
    _FOLLOWING[layer] = (pad_field, following)
    if layer not in TRANSPORTS:
        TRANSPORTS.append(layer)
    methods: dict[str, Callable[..., Any]] = {
        "post_build": _post_build,
        "do_dissect_payload": _do_dissect_payload,
    }
    for name, method in methods.items():
        setattr(layer, name, method)


def _post_build(self: Packet, header: bytes, above: bytes) -> bytes:
    """Return header, headers and payload `above`, pad and ICRC; `above` ends with the ICRC as its field has it, or 0."""
    content, icrc = above[:-ICRC_BYTES], above[-ICRC_BYTES:]
    pad_field = _FOLLOWING[type(self)][0]
    if self.getfieldval(pad_field) is None:
        pad = -len(content) % 4
        present = self.getlayer(RocePad)
        count = pad + (0 if present is None else len(present))
        content += bytes(pad)
        header = header[:1] + bytes([header[1] & ~_PAD_MASK | count << _PAD_SHIFT & _PAD_MASK]) + header[2:]
    if self.getfieldval("icrc") is None:
        value = compute_icrc(self, header + content)
        if value is None:
            warning("%s is not in IP, IPv6 or GRH, which its ICRC covers: it gets ICRC 0", self.name)
        icrc = bytes(ICRC_BYTES) if value is None else value
    return header + content + icrc


def _do_dissect_payload(self: Packet, content: bytes) -> None:
    """Dissect headers and payload, and add the pad as a layer of its own."""
    pad = min(self.getfieldval(_FOLLOWING[type(self)][0]) or 0, len(content))
    Packet.do_dissect_payload(self, content[: len(content) - pad])
    if pad and not self.stop_dissection_after:
        last = self.lastlayer()
        last.add_payload(RocePad(content[len(content) - pad :], _internal=1, _underlayer=last))
