"""Messages of one direction <-> bytes: [version, name, fields by name], as msgpack or as a line of JSON. Pure.

The name is that of the message's type, so that a receiver matches types and never texts. Every message has the version,
which is checked before the rest. The fields of message types that are mostly zeros are deflated (RFC 1950); the same limits
apply to them.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection
from typing import Any, Final, Generic, TypeVar, cast, get_args

from etloop.contract.base.errors import ProtocolError
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.protocol.codec import codec_of
from etloop.contract.protocol.serialization import (
    Unreadable,
    json_bytes,
    msgpack_bytes,
    parse_json,
    parse_msgpack,
)
from etloop.contract.protocol.typed_form import Misfit, Rules, describe_value

M = TypeVar("M")

_ENVELOPE_ITEMS: Final = 3
_MAX_REPORTED: Final = 8
_NO_MESSAGE: Final = "not a message: expected a list of version, name and fields"
_DEFLATE_LEVEL: Final = 1
"""Counters shrink to a tenth or less at any level, and this one is the fastest."""


class VersionMismatch(ProtocolError):
    """The peer speaks another version of the protocol."""

    def __init__(self, theirs: int, own: int, remedy: str) -> None:
        super().__init__(f"the peer speaks protocol {theirs}, this side {own}; {remedy}")
        self.theirs = theirs


class MessageTooLarge(ProtocolError):
    """A message to be sent exceeds the limit of its direction."""


@dataclass(frozen=True, slots=True)
class Protocol:
    """Properties that both directions of a conversation share."""

    version: int
    remedy: str
    """Remedy for a version mismatch."""
    rules: Rules
    as_json: bool = False


class MessageSet(Generic[M]):
    """The messages of one direction."""

    def __init__(
        self,
        protocol: Protocol,
        kinds: Any,
        sender: str,
        *,
        max_bytes: int,
        max_values: int | None,
        deflated: Collection[type] = (),
    ) -> None:
        """Derive the codecs; `kinds` is the type `M`, a union of dataclasses, and a type without a codec fails here.

        `max_values` bounds the number of decoded values however they are nested; None: only bytes are bounded.
        `deflated`: message types whose fields are deflated; msgpack only.
        """
        assert not (deflated and protocol.as_json), "JSON has no bytes"
        self.max_bytes = max_bytes
        self._deflated = frozenset(kind.__name__ for kind in deflated)
        self._protocol = protocol
        self._sender = sender
        self._max_values = max_values
        self._codecs = {kind.__name__: codec_of(kind, protocol.rules) for kind in get_args(kinds)}

    def encode(self, message: M) -> bytes:
        """Return the bytes of a message; of JSON a line.

        Raises `ProtocolError` if a field breaks its own annotation, `MessageTooLarge` above the limit, deflated or not.
        """
        name = type(message).__name__
        try:
            fields = self._codecs[name].write(message, name)
        except Misfit as misfit:
            raise ProtocolError(_problem_text(misfit)) from None
        if name in self._deflated:
            fields = msgpack_bytes(fields)
            self._refuse_too_large(name, len(fields))
            fields = zlib.compress(fields, _DEFLATE_LEVEL)
        envelope = [self._protocol.version, name, fields]
        body = json_bytes(envelope) + b"\n" if self._protocol.as_json else msgpack_bytes(envelope)
        self._refuse_too_large(name, len(body))
        return body

    def decode(self, body: bytes) -> M:
        """Return the message of some bytes. Raises `ProtocolError`, or `VersionMismatch` before the rest is decoded."""
        if len(body) > self.max_bytes:
            raise ProtocolError(
                f"message of {len(body)} bytes; {self._sender} sends at most {self.max_bytes}"
            )
        parse = parse_json if self._protocol.as_json else parse_msgpack
        try:
            envelope = parse(body, self._max_values)
        except Unreadable as error:
            raise ProtocolError(f"not a message: {error}") from None
        if type(envelope) is not list or not envelope or type(envelope[0]) is not int:
            raise ProtocolError(_NO_MESSAGE)
        if envelope[0] != self._protocol.version:
            raise VersionMismatch(envelope[0], self._protocol.version, self._protocol.remedy)
        if len(envelope) != _ENVELOPE_ITEMS:
            raise ProtocolError(_NO_MESSAGE)
        _, name, fields = envelope
        if type(name) is not str or name not in self._codecs:
            raise ProtocolError(f"{self._sender} does not send {describe_value(name)}")
        if name in self._deflated:
            fields = self._inflate(name, fields)
        try:
            return cast("M", self._codecs[name].read(fields, name))
        except Misfit as misfit:
            raise ProtocolError(_problem_text(misfit)) from None

    def _refuse_too_large(self, name: str, size_bytes: int) -> None:
        if size_bytes > self.max_bytes:
            raise MessageTooLarge(
                f"{name}: {size_bytes} bytes; {self._sender} sends at most {self.max_bytes}"
            )

    def _inflate(self, name: str, fields: object) -> Any:
        """Return the fields of a deflated message, with a bound on the inflated bytes."""
        if type(fields) is not bytes:
            raise ProtocolError(f"{name}: expected its fields deflated, got {describe_value(fields)}")
        inflating = zlib.decompressobj()
        try:
            inflated = inflating.decompress(fields, self.max_bytes + 1)
        except zlib.error as error:
            raise ProtocolError(f"{name}: expected its fields deflated (RFC 1950): {error}") from None
        if len(inflated) > self.max_bytes:
            raise ProtocolError(f"{name}: inflates to more than the {self.max_bytes} bytes of a message")
        if not inflating.eof or inflating.unused_data:
            defect = "is cut off" if not inflating.eof else "goes on after its end"
            raise ProtocolError(f"{name}: the deflated data {defect}")
        try:
            return parse_msgpack(inflated, self._max_values)
        except Unreadable as error:
            raise ProtocolError(f"{name}: not the fields of a message: {error}") from None


def _problem_text(misfit: Misfit) -> str:
    more = len(misfit.problems) - _MAX_REPORTED
    texts = [f"{problem.where}: {problem.what}" for problem in misfit.problems[:_MAX_REPORTED]]
    return "; ".join([*texts, f"and {more} more"] if more > 0 else texts)
