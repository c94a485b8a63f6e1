"""Headers that the native module decoded: their fields by the dissectors' names, and their bytes by the exposed layouts."""

from __future__ import annotations

from etloop.traffic import _native

OVERLAYS = {"nscc_state", "credit_state"}
"""Decoded forms of the last field of `ack_state`, without bytes of their own."""


def field_values(layouts: list[_native.HeaderLayout], headers: _native.Headers) -> dict[str, int]:
    """Return the fields of all headers of a packet by their names in the dissector, such as "pds.psn" or "va"."""
    layers = {name: f"{layer}." if layer else "" for layer, name, *_ in layouts}
    return {
        f"{layers[name]}{field}": int(value)
        for name, fields in headers.items()
        for field, value in fields.items()
    }


def encoded(layouts: list[_native.HeaderLayout], headers: _native.Headers) -> bytes:
    """Return the bytes of decoded headers by their layouts, with zeros for reserved bits."""
    content = b""
    for name, values in headers.items():
        if name in OVERLAYS:
            continue
        (layout,) = (
            layout
            for layout in layouts
            if layout[1] == name and [field[0] for field in layout[4]] == list(values)
        )
        size_bytes, fields = layout[3:]
        number = 0
        for field, _meaning, first_bit, bits, _kind, _names in fields:
            number |= int(values[field]) % (1 << bits) << (8 * size_bytes - first_bit - bits)
        content += number.to_bytes(size_bytes)
    return content
