"""Scapy fields of MRC and UET headers, made from the declarations in traffic/native/wire that also make the Wireshark
dissectors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from scapy.config import conf
from scapy.fields import BitEnumField, BitField, ConditionalField, SignedShortField, XBitField
from scapy.packet import Packet

from etloop.contract.base.late_dataclass import dataclass

if TYPE_CHECKING:
    from etloop.traffic._native import HeaderLayout, Headers

    AnyField = Any
    """A field of Scapy, whose classes have no common type."""

_HEX_BITS: Final = 64
_SIGNED_BITS: Final = 16


class _Place(NamedTuple):
    """A field, or reserved bits (`kind` is ""), in wire order."""

    name: str
    first_bit: int
    bits: int
    kind: str = ""
    names: Mapping[int, str] = {}


@dataclass(frozen=True, slots=True)
class Layouts:
    """The headers of one transport."""

    headers: list[HeaderLayout]
    defaults: Headers

    def fields(
        self,
        header: str,
        is_other_form: Callable[[Packet], bool] | None = None,
        *,
        without: str = "",
        automatic: str = "",
    ) -> list[AnyField]:
        """Return the `fields_desc` of a header.

        `is_other_form`: whether a packet has the second form, for a header with two. `without`: a field that another layer
        has. `automatic`: a field that is None until the packet is built.
        """
        forms = [
            _places(size_bytes, fields) for _, name, _, size_bytes, fields in self.headers if name == header
        ]
        defaults: dict[str, Any] = dict(self.defaults[header])
        if automatic:
            defaults[automatic] = None

        def fields_of(places: list[_Place]) -> list[AnyField]:
            return [_field(place, defaults.get(place.name, 0)) for place in places if place.name != without]

        if is_other_form is None:
            (places,) = forms
            return fields_of(places)
        usual, other = forms
        head = next(number for number, (a, b) in enumerate(zip(usual, other, strict=False)) if a != b)
        tail = next(
            number
            for number, (a, b) in enumerate(zip(reversed(usual), reversed(other), strict=False))
            if a != b
        )

        def is_usual_form(packet: Packet) -> bool:
            return not is_other_form(packet)

        return [
            *fields_of(usual[:head]),
            *(ConditionalField(field, is_usual_form) for field in fields_of(usual[head : len(usual) - tail])),
            *(ConditionalField(field, is_other_form) for field in fields_of(other[head : len(other) - tail])),
            *fields_of(usual[len(usual) - tail :]),
        ]


def _places(size_bytes: int, fields: list[tuple[str, str, int, int, str, dict[int, str]]]) -> list[_Place]:
    """Return the fields of a form, with the reserved bits between them."""
    places: list[_Place] = []
    at = 0
    for name, _meaning, first_bit, bits, kind, names in fields:
        if first_bit > at:
            places.append(_Place(f"reserved_{at}", at, first_bit - at))
        places.append(_Place(name, first_bit, bits, kind, names))
        at = first_bit + bits
    if 8 * size_bytes > at:
        places.append(_Place(f"reserved_{at}", at, 8 * size_bytes - at))
    return places


def _field(place: _Place, default: int | None) -> AnyField:
    if place.kind == "int":
        assert place.bits == _SIGNED_BITS, place
        return SignedShortField(place.name, default)
    if place.names:
        return BitEnumField(place.name, default, place.bits, dict(place.names))
    return (XBitField if place.bits >= _HEX_BITS else BitField)(place.name, default, place.bits)


@cache
def header_bytes(layer: type[Packet]) -> int:
    """Return the length of a header, which is the same in all its forms; the ICRC of a BTH does not count."""
    return len(layer().self_build())


def fitting(layer: type[Packet] | None, payload: bytes) -> type[Packet]:
    """Return the layer, or Raw if there is none or if the packet was cut before its end."""
    if layer is None or len(payload) < header_bytes(layer):
        return raw_layer()
    return layer


def raw_layer() -> type[Packet]:
    """Return the layer of bytes without a structure."""
    layer: type[Packet] = conf.raw_layer
    return layer


def dissect_first(lower: type[Packet], upper: type[Packet], **values: int) -> None:
    """Dissect payloads of `lower` with these values as `upper`, before each earlier binding.

    Scapy takes the first binding that matches: its own for source port 53, DNS, would win over destination port 4791.
    """
    lower.payload_guess = [
        (values, upper),
        *(binding for binding in lower.payload_guess if binding[0] != values),
    ]
