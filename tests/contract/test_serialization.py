"""Plain values from bytes: bounded before anything is made of them, and refused by what is wrong with them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgpack  # type: ignore[import-untyped]  # ships no types
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etloop.contract.protocol.serialization import (
    MAX_DEPTH,
    MAX_VALUES,
    Unreadable,
    json_bytes,
    msgpack_bytes,
    parse_json,
    parse_msgpack,
)

Parser = Callable[[bytes, int | None], Any]

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats(allow_nan=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
)


@given(VALUES)
def test_plain_values_survive_msgpack(value: Any) -> None:
    assert parse_msgpack(msgpack_bytes(value), MAX_VALUES) == value


@given(VALUES.filter(lambda value: "Infinity" not in json.dumps(value)))
def test_plain_values_survive_json(value: Any) -> None:
    assert parse_json(json_bytes(value), MAX_VALUES) == value
    assert parse_json(json.dumps(value), MAX_VALUES) == value


REFUSED: dict[str, tuple[Parser, bytes, str]] = {
    "JSON that ends": (parse_json, b'{"a": ', "Expecting value"),
    "JSON that is no text": (parse_json, b"\xff", "codec can't decode"),
    "a number that JSON does not have": (parse_json, b"[NaN]", "NaN is not JSON"),
    "a key twice in JSON": (parse_json, b'{"a": 1, "a": 2}', "a key is repeated"),
    "half a character": (parse_json, b'["\\uD800"]', "half of a character"),
    "a number without end": (parse_json, b"1" * 5000, "integer string conversion"),
    "depth in JSON": (
        parse_json,
        b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1),
        "nested more than 64 deep",
    ),
    "depth without end": (parse_json, b"[" * 60_000, "nested more than 64 deep"),
    "many values in JSON": (parse_json, b"[" + b"0," * MAX_VALUES + b"0]", f"more than {MAX_VALUES} values"),
    "many lists in JSON": (parse_json, b"[" + b"[]," * MAX_VALUES + b"0]", f"more than {MAX_VALUES} values"),
    "msgpack that ends": (parse_msgpack, b"\x92\x01", "incomplete input"),
    "msgpack with more behind it": (parse_msgpack, b"\x01\x02", "unpack(b) received extra data"),
    "a key twice in msgpack": (parse_msgpack, b"\x82\xa1a\x01\xa1a\x02", "a key is repeated"),
    "a key that is no text": (parse_msgpack, b"\x81\x01\x01", "int is not allowed for map key"),
    "an extension": (parse_msgpack, b"\xd4\x01\x00", "exceeds max_ext_len"),
    "depth in msgpack": (parse_msgpack, b"\x91" * 60_000, ""),
    "many values in msgpack": (
        parse_msgpack,
        msgpack.packb([[0] * 1000] * 66),
        f"more than {MAX_VALUES} values",
    ),
    "a length that promises more than comes": (
        parse_msgpack,
        b"\xdd\xff\xff\xff\xff",
        "exceeds max_array_len",
    ),
}


@pytest.mark.parametrize(("parse", "body", "expected"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_read_is_refused(parse: Parser, body: bytes, expected: str) -> None:
    with pytest.raises(Unreadable) as caught:
        parse(body, MAX_VALUES)
    assert expected in str(caught.value)


def test_brackets_in_texts_are_no_depth() -> None:
    assert parse_json(json.dumps(["[" * 1000 + '\\"' + "]"]).encode(), MAX_VALUES) == [
        "[" * 1000 + '\\"' + "]"
    ]


def test_a_file_of_our_own_may_be_as_large_as_it_is() -> None:
    many = [0] * (MAX_VALUES + 1)
    assert parse_json(json.dumps(many), None) == many
    assert parse_msgpack(msgpack_bytes(many), None) == many
    with pytest.raises(Unreadable, match="recursion"):
        parse_json("[" * 200_000, None)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    for parse in (parse_json, parse_msgpack):
        try:
            parse(body, MAX_VALUES)
        except Unreadable:
            continue
