"""Messages in a stream of bytes, each preceded by its length in four bytes, big-endian. Pure."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, Generic, TypeVar

from etloop.contract.base.errors import ProtocolError
from etloop.contract.protocol.message_set import MessageSet

M = TypeVar("M")

_LENGTH: Final = struct.Struct(">I")


def frame_of(messages: MessageSet[M], message: M) -> bytes:
    """Return the bytes of a frame. Raises as `MessageSet.encode`."""
    body = messages.encode(message)
    return _LENGTH.pack(len(body)) + body


class FrameReader(Generic[M]):
    """Cuts a stream of bytes into messages."""

    def __init__(self, messages: MessageSet[M]) -> None:
        self._messages = messages
        self._held = bytearray()

    def feed(self, received: bytes) -> Iterator[M]:
        """Yield the messages that are complete with `received`. Raises `ProtocolError` if a frame or message is invalid."""
        self._held += received
        while len(self._held) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._held)
            if length > self._messages.max_bytes:
                raise ProtocolError(
                    f"a frame of {length} bytes; at most {self._messages.max_bytes} are allowed"
                )
            frame_end = _LENGTH.size + length
            if len(self._held) < frame_end:
                return
            body = bytes(memoryview(self._held)[_LENGTH.size : frame_end])
            del self._held[:frame_end]
            yield self._messages.decode(body)
