"""Plain values <-> JSON and msgpack, bounded before they are built. Pure; trusts no input.

`Unreadable` is raised for bytes that cannot be parsed, duplicate keys, numbers that JSON does not have, and more or deeper
nested values than allowed.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from functools import partial
from itertools import accumulate
from typing import Any, Final

import msgpack  # type: ignore[import-untyped]  # ships no types

MAX_VALUES: Final = 1 << 16
"""Most values of a body, however they are nested; more than any request of this protocol has."""
MAX_DEPTH: Final = 64
_JSON_TEXT: Final = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\Z)', re.DOTALL)
"""An unclosed text matches up to the end, so that each byte is scanned once."""
_BRACKET: Final = re.compile(r"[\[\]{}]")
_STEPS: Final = {"[": 1, "{": 1, "]": -1, "}": -1}


class Unreadable(Exception):
    """Bytes that are not plain values, or are too many."""


def json_bytes(value: Any) -> bytes:
    """Return the JSON of plain values, on one line."""
    return json.dumps(value, allow_nan=False, ensure_ascii=False).encode()


def msgpack_bytes(value: Any) -> bytes:
    """Return the msgpack of plain values."""
    packed: bytes = msgpack.packb(value, use_bin_type=True)
    return packed


def parse_json(body: bytes | str, max_values: int | None, repeated: list[str] | None = None) -> Any:
    """Parse JSON; `max_values` bounds the values, None: only for files, whose size is the bound. Raises `Unreadable`.

    A repeated key is refused; with a list `repeated` it is added there, and its last value counts.
    """
    try:
        if isinstance(body, bytes):
            body = body.decode()
        if max_values is not None:
            _bound_json(body, max_values)
        fields = _once_each if repeated is None else partial(_last_of_each, repeated)
        value = json.loads(body, object_pairs_hook=fields, parse_constant=_no_constant)
        if "\\ud" in body or "\\uD" in body:
            _refuse_half_characters(value)
    except (ValueError, RecursionError) as error:
        raise Unreadable(_reason(error)) from None
    return value


def parse_msgpack(body: bytes, max_values: int | None) -> Any:
    """Parse msgpack, with the bounds of `parse_json`. Raises `Unreadable`."""
    max_values = len(body) if max_values is None else max_values
    left = max_values

    def count_values(items: Any) -> Any:
        nonlocal left
        left -= len(items) + 1
        if left < 0:
            raise ValueError(f"it has more than {max_values} values")
        return items

    def fields(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
        return _once_each(count_values(pairs))

    try:
        return msgpack.unpackb(
            body,
            raw=False,
            strict_map_key=True,
            max_str_len=len(body),
            max_bin_len=len(body),
            max_array_len=min(len(body), max_values),
            max_map_len=min(len(body), max_values),
            max_ext_len=0,
            list_hook=count_values,
            object_pairs_hook=fields,
        )
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise Unreadable(_reason(error)) from None


def _bound_json(body: str, max_values: int) -> None:
    # Each value has at most two texts: its key and itself.
    bare, texts = _JSON_TEXT.subn("", body, count=2 * max_values + 1)
    if texts > 2 * max_values or sum(map(bare.count, (",", "[", "{"))) > max_values:
        raise ValueError(f"it has more than {max_values} values")
    if max(accumulate(map(_STEPS.__getitem__, _BRACKET.findall(bare))), default=0) > MAX_DEPTH:
        raise ValueError(f"it is nested more than {MAX_DEPTH} deep")


def _once_each(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a key is repeated")
    return fields


def _last_of_each(repeated: list[str], pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        counts = Counter(key for key, _ in pairs)
        repeated += [key for key, count in counts.items() if count > 1]
    return fields


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _refuse_half_characters(value: Any) -> None:
    r"""Raise ValueError for a lone surrogate, half of a pair of \u escapes: Python reads it, but stores and brokers
    refuse it.
    """
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ValueError("a text in it has half of a character (a lone surrogate)") from None


def _reason(error: Exception) -> str:
    return str(error)[:200] or type(error).__name__
