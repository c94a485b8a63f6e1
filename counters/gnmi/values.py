"""Values of gNMI: what a TypedValue holds, as plain values, and counters out of them. Pure; every value is hostile."""

from __future__ import annotations

import json
from typing import Any, Final

from etloop.counters.gnmi.messages import Encoding, TypedValue, kind_of

Scalar = str | int | float | bool | None
Value = Scalar | list["Value"] | dict[str, "Value"]
"""What JSON can say; binary values do not occur among counters."""
MOST_DIGITS: Final = 20
"""Of an unsigned number of 64 bits."""


class BadValue(ValueError):
    """A value that cannot be read; the text says why."""


def value_of(message: Any) -> Value:
    """The plain value of a TypedValue. Raises `BadValue`."""
    kind = kind_of(message)
    match kind:
        case "json_val" | "json_ietf_val":
            return read_json(getattr(message, kind))
        case "string_val" | "int_val" | "uint_val" | "bool_val" | "float_val" | "double_val" | "ascii_val":
            value: Scalar = getattr(message, kind)
            return value
        case _:
            raise BadValue(f"a value of kind {kind or 'none'} is no counter")


def read_json(content: bytes) -> Value:
    """A JSON text. Raises `BadValue`."""
    try:
        value: Value = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise BadValue(f"no JSON: {str(error)[:64]}") from None
    return value


def counter_value(value: Value) -> int | None:
    """A counter of 64 bits, written as a number or as its digits (RFC 7951 section 6.1); None if it is none."""
    if isinstance(value, str):
        if not (value.isascii() and value.isdecimal() and len(value) <= MOST_DIGITS):
            return None
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value < 1 << 64 else None


def typed_leaf(value: Scalar, encoding: Encoding) -> Any:
    """The TypedValue of one leaf."""
    if encoding is Encoding.PROTO:
        return TypedValue(uint_val=value) if isinstance(value, int) else TypedValue(string_val=str(value))
    return typed_json(leaf_json(value, encoding), encoding)


def leaf_json(value: Scalar, encoding: Encoding) -> Scalar:
    """A leaf as JSON has it: IETF's form writes numbers of 64 bits as texts, so that no reader rounds them."""
    return str(value) if encoding is Encoding.JSON_IETF and isinstance(value, int) else value


def typed_json(value: Value, encoding: Encoding) -> Any:
    """The TypedValue of a JSON value."""
    content = json.dumps(value, separators=(",", ":")).encode()
    return (
        TypedValue(json_ietf_val=content) if encoding is Encoding.JSON_IETF else TypedValue(json_val=content)
    )
