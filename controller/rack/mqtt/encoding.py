"""Bytes of the rack API <-> messages: JSON, or msgpack for who prefers it. Pure; trusts nothing.

A body whose content type is absent is taken for msgpack if its first byte begins a msgpack map, which no JSON text does.
Bodies with more values than any message of ours has are refused before values are made of them, so that reading one takes
a bounded time and memory whoever sent it.
"""

from __future__ import annotations

import json
import re
from enum import StrEnum
from typing import Any, Final, TypeVar

import msgpack  # type: ignore[import-untyped]  # ships no types
from etloop.contract.base.errors import Problem
from etloop.controller.rack.mqtt.schema import plain, read

T = TypeVar("T")


class ContentType(StrEnum):
    """Forms of a body."""

    JSON = "application/json"
    MSGPACK = "application/msgpack"


_MSGPACK_TYPES: Final = frozenset({"application/msgpack", "application/x-msgpack", "application/vnd.msgpack"})
_MSGPACK_MAPS: Final = frozenset({*range(0x80, 0x90), 0xDE, 0xDF})
MOST_VALUES: Final = 1 << 16
"""In all of a request, however they are nested."""
_MOST_PUBLISHED_VALUES: Final = 1 << 24
"""In what a rack tells, whom its clients trust: summaries of large runs are long."""
_JSON_TEXT: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\Z)', re.DOTALL)
"""Unclosed, it reaches to the end, so that each byte is looked at once."""


def content_type(body: bytes, stated: str) -> ContentType:
    """The form of a body; what was stated counts, as far as it is known."""
    if stated:
        return (
            ContentType.MSGPACK
            if stated.partition(";")[0].strip().lower() in _MSGPACK_TYPES
            else ContentType.JSON
        )
    return ContentType.MSGPACK if body[:1] and body[0] in _MSGPACK_MAPS else ContentType.JSON


def encode(message: Any, form: ContentType) -> bytes:
    """The body of a message."""
    value = plain(message)
    if form is ContentType.MSGPACK:
        packed: bytes = msgpack.packb(value, use_bin_type=True)
        return packed
    return json.dumps(value, allow_nan=False, ensure_ascii=False).encode()


def decode(
    kind: type[T], body: bytes, form: ContentType, *, passes_over: bool = False
) -> tuple[T | None, tuple[Problem, ...]]:
    """The message of a body; None with all that is wrong. An empty body is a message without any of its keys.

    `passes_over`: see `typed_form.read`.
    """
    most = _MOST_PUBLISHED_VALUES if passes_over else MOST_VALUES
    try:
        value = _unpacked(body, form, most) if body else {}
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        what = f"is no {form}: {str(error)[:200] or type(error).__name__}"
        return None, (Problem("the message", what, "send an object, with the content type it has"),)
    return read(kind, value, passes_over=passes_over)


def _unpacked(body: bytes, form: ContentType, most: int) -> Any:
    if form is ContentType.MSGPACK:
        return _from_msgpack(body, most)
    # Of each value at most a key and itself are texts.
    bare, texts = _JSON_TEXT.subn(b"", body, count=2 * most + 1)
    if texts > 2 * most or sum(map(bare.count, (b",", b"[", b"{"))) > most:
        raise ValueError(f"it has more than {most} values")
    value = json.loads(body.decode(), object_pairs_hook=_without_repeats, parse_constant=_no_constant)
    if b"\\ud" in body.lower():
        # Half of a pair of \u escapes is a text to Python, and to nobody else: neither a store nor a broker takes it.
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError("a text in it has half of a character (a lone surrogate)") from None
    return value


def _from_msgpack(body: bytes, most: int) -> Any:
    left = most

    def counted(items: Any) -> Any:
        nonlocal left
        left -= len(items) + 1
        if left < 0:
            raise ValueError(f"it has more than {most} values")
        return items

    return msgpack.unpackb(
        body,
        raw=False,
        strict_map_key=True,
        max_array_len=most,
        max_map_len=most,
        max_ext_len=0,
        list_hook=counted,
        object_pairs_hook=lambda pairs: _without_repeats(counted(pairs)),
    )


def _without_repeats(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a key stands twice")
    return fields


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
