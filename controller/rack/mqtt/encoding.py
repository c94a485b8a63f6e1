"""Bytes of the rack API <-> messages: JSON, or msgpack for who prefers it. Pure; trusts nothing.

A body whose content type is absent is taken for msgpack if its first byte begins a msgpack map, which no JSON text does.
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
    """Forms of a body."""

    JSON = "application/json"
    MSGPACK = "application/msgpack"


REQUEST_RULES: Final = JSON_RULES
PUBLISHED_RULES: Final = Rules(skip_unknown=True)
"""Of what a rack says, which may be newer than its clients."""
_MSGPACK_TYPES: Final = frozenset({"application/msgpack", "application/x-msgpack", "application/vnd.msgpack"})
_MSGPACK_MAPS: Final = frozenset({*range(0x80, 0x90), 0xDE, 0xDF})
_MAX_PUBLISHED_VALUES: Final = 1 << 24
"""In what a rack publishes, whom its clients trust: summaries of large runs are long."""


def content_type(body: bytes, stated: str) -> ContentType:
    """Return the form of a body; what was stated counts, as far as it is known."""
    if stated:
        return (
            ContentType.MSGPACK
            if stated.partition(";")[0].strip().lower() in _MSGPACK_TYPES
            else ContentType.JSON
        )
    return ContentType.MSGPACK if body[:1] and body[0] in _MSGPACK_MAPS else ContentType.JSON


def encode(message: Any, form: ContentType) -> bytes:
    """Return the body of a message."""
    return msgpack_bytes(plain(message)) if form is ContentType.MSGPACK else json_bytes(plain(message))


def decode_request(kind: type[T], body: bytes, form: ContentType) -> tuple[T | None, tuple[Problem, ...]]:
    """Return the request of a body; None with all that is wrong. An empty body is a request without any of its keys."""
    return _decode(kind, body, form, REQUEST_RULES, MAX_VALUES)


def decode_published(kind: type[T], body: bytes) -> tuple[T | None, tuple[Problem, ...]]:
    """Return what a rack published or answered; None with all that is wrong."""
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
        return None, (Problem(THE_MESSAGE, f"is no {form}: {error}", remedy),)
    except Misfit as found:
        return None, found.problems
