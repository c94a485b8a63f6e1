"""Follow a ZMTP 3 handshake (rfc.zeromq.org/spec/23, with CURVE spec/26) in the bytes of one direction. Pure.

A connection is not authenticated until its handshake is over: until both sides have sent their last handshake command.
With keys these are the client's INITIATE and the server's READY, which is sent only for an admitted key; without keys
both send READY. The names of handshake commands are in clear text with keys, too; only their contents are encrypted.
"""

from __future__ import annotations

from typing import Final

SIGNATURE_BYTES: Final = 10
"""Length of the signature that a ZMTP 3 peer sends before it receives anything."""
MOST_HANDSHAKE_BYTES: Final = 65_536
"""Most bytes of a client before its handshake is over: a key, an identity and a few properties take less than 1,000."""
_GREETING_BYTES: Final = 64
_SIGNATURE_ENDS: Final = {0: 0xFF, 9: 0x7F}
_LONG: Final = 0x02
_COMMAND: Final = 0x04
_LONGEST_NAME: Final = 16


def signature_is_possible(first: bytes) -> bool:
    """Return whether these bytes can begin the greeting of a ZMTP 3 peer."""
    return all(first[at] == byte for at, byte in _SIGNATURE_ENDS.items() if at < len(first))


class HandshakeSide:
    """One direction of the handshake; `last` are the command names of which one ends it."""

    def __init__(self, *last: bytes) -> None:
        self._last = last
        self._skip_bytes = _GREETING_BYTES
        """Bytes to skip before the next frame begins."""
        self._head = b""
        """Beginning of a frame whose name has not arrived completely."""
        self.is_over = False
        """Whether one of the last commands has begun."""
        self.is_broken = False
        """Whether the bytes cannot be those of a handshake."""

    def feed(self, data: bytes) -> None:
        """Parse the next bytes of this direction."""
        while data and not (self.is_over or self.is_broken):
            skipped_bytes = min(self._skip_bytes, len(data))
            self._skip_bytes -= skipped_bytes
            if skipped_bytes == len(data):
                return
            self._head, data = self._head + data[skipped_bytes:], b""
            if (frame := _frame(self._head)) is None:
                return
            is_command, name, frame_bytes = frame
            self.is_broken = not is_command
            self.is_over = is_command and name in self._last
            frame_begin, self._head = self._head, b""
            self._skip_bytes, data = frame_bytes, frame_begin


def _frame(head: bytes) -> tuple[bool, bytes, int] | None:
    """Return (is a command, its name, frame length with header) of a frame; None while too few bytes have arrived."""
    flags = head[0]
    start = 9 if flags & _LONG else 2
    if not flags & _COMMAND:
        return False, b"", 0
    if len(head) <= start:
        return None
    name_bytes = head[start]
    if name_bytes > _LONGEST_NAME:
        return False, b"", 0
    if len(head) < start + 1 + name_bytes:
        return None
    return True, head[start + 1 : start + 1 + name_bytes], start + int.from_bytes(head[1:start])
