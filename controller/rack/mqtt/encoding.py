"""Encoding of the rack API's messages: JSON, or msgpack for clients that prefer it. Pure; trusts no input.

A body without a content type counts as msgpack if its first byte begins a msgpack map, which no JSON text does.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final, TypeVar

from etloop.contract.base.errors import Problem
from etloop.contract.protocol.codec import codec_of, plain
from etloop.contract.protocol.serialization import (
    MAX_VALUES,
    Unreadable,
    json_bytes,
    msgpack_bytes,
    parse_json,
    parse_msgpack,
)
from etloop.contract.protocol.typed_form import JSON_RULES, THE_MESSAGE, Misfit, Rules

T = TypeVar("T")


class ContentType(StrEnum):
    """Encodings of a body."""

    JSON = "application/json"
    MSGPACK = "application/msgpack"


REQUEST_RULES: Final = JSON_RULES
PUBLISHED_RULES: Final = Rules(skip_unknown=True)
"""Rules for messages that a rack publishes, which may be newer than its clients."""
_MSGPACK_TYPES: Final = frozenset({"application/msgpack", "application/x-msgpack", "application/vnd.msgpack"})
_MSGPACK_MAPS: Final = frozenset({*range(0x80, 0x90), 0xDE, 0xDF})
_MAX_PUBLISHED_VALUES: Final = 1 << 24
"""Most values in a published message, whose sender clients trust: summaries of large runs are long."""


def content_type(body: bytes, stated: str) -> ContentType:
    """Return the encoding of a body: as stated, or by its first byte if `stated` is ""."""
    if stated:
        return (
            ContentType.MSGPACK
            if stated.partition(";")[0].strip().lower() in _MSGPACK_TYPES
            else ContentType.JSON
        )
    return ContentType.MSGPACK if body[:1] and body[0] in _MSGPACK_MAPS else ContentType.JSON


def encode(message: Any, form: ContentType) -> bytes:
    """Encode a message."""
    return msgpack_bytes(plain(message)) if form is ContentType.MSGPACK else json_bytes(plain(message))


def decode_request(kind: type[T], body: bytes, form: ContentType) -> tuple[T | None, tuple[Problem, ...]]:
    """Decode a request; return None and its problems if it is invalid. An empty body is a request without any keys."""
    return _decode(kind, body, form, REQUEST_RULES, MAX_VALUES)


def decode_published(kind: type[T], body: bytes) -> tuple[T | None, tuple[Problem, ...]]:
    """Decode a published message or an answer; return None and its problems if it is invalid."""
    return _decode(kind, body, ContentType.JSON, PUBLISHED_RULES, _MAX_PUBLISHED_VALUES)


def _decode(
    kind: type[T], body: bytes, form: ContentType, rules: Rules, max_values: int
) -> tuple[T | None, tuple[Problem, ...]]:
    parse = parse_msgpack if form is ContentType.MSGPACK else parse_json
    try:
        value = parse(body, max_values) if body else {}
        return codec_of(kind, rules).read(value), ()
    except Unreadable as error:
        remedy = "send an object, with the content type it has"
        return None, (Problem(THE_MESSAGE, f"is not {form}: {error}", remedy),)
    except Misfit as misfit:
        return None, misfit.problems
