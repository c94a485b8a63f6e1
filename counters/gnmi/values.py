"""Converts the content of a gNMI TypedValue into plain values, and those into counters. Pure; every value is hostile."""

from __future__ import annotations

import json
from typing import Any, Final

from etloop.counters.gnmi.messages import Encoding, TypedValue, kind_of

Scalar = str | int | float | bool | None
Value = Scalar | list["Value"] | dict[str, "Value"]
"""Every JSON value; binary values do not occur among counters."""
MOST_DIGITS: Final = 20
"""Most digits of an unsigned 64-bit number."""


class BadValue(ValueError):
    """A value that cannot be read; the text gives the reason."""


def value_of(message: Any) -> Value:
    """Return the plain value of a TypedValue. Raise `BadValue`."""
    kind = kind_of(message)
    match kind:
        case "json_val" | "json_ietf_val":
            return read_json(getattr(message, kind))
        case "string_val" | "int_val" | "uint_val" | "bool_val" | "float_val" | "double_val" | "ascii_val":
            value: Scalar = getattr(message, kind)
            return value
        case _:
            raise BadValue(f"a value of kind {kind or 'none'} is not a counter")


def read_json(content: bytes) -> Value:
    """Parse a JSON text. Raise `BadValue`."""
    try:
        value: Value = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise BadValue(f"not JSON: {str(error)[:64]}") from None
    return value


def counter_value(value: Value) -> int | None:
    """Return a 64-bit counter, given as a number or as its digits (RFC 7951 section 6.1); None if the value is not one."""
    if isinstance(value, str):
        if not (value.isascii() and value.isdecimal() and len(value) <= MOST_DIGITS):
            return None
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value < 1 << 64 else None


def typed_leaf(value: Scalar, encoding: Encoding) -> Any:
    """Return the TypedValue of one leaf."""
    if encoding is Encoding.PROTO:
        return TypedValue(uint_val=value) if isinstance(value, int) else TypedValue(string_val=str(value))
    return typed_json(leaf_json(value, encoding), encoding)


def leaf_json(value: Scalar, encoding: Encoding) -> Scalar:
    """Return a leaf's JSON value: the IETF form writes 64-bit numbers as strings, so that no reader rounds them."""
    return str(value) if encoding is Encoding.JSON_IETF and isinstance(value, int) else value


def typed_json(value: Value, encoding: Encoding) -> Any:
    """Return the TypedValue of a JSON value."""
    content = json.dumps(value, separators=(",", ":")).encode()
    return (
        TypedValue(json_ietf_val=content) if encoding is Encoding.JSON_IETF else TypedValue(json_val=content)
    )
