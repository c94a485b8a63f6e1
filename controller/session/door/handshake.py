"""Follow the handshake of ZMTP 3 (rfc.zeromq.org/spec/23, with CURVE spec/26) in the bytes of one direction. Pure.

A connection is a stranger's until its handshake is over: both sides have then sent their last command of it. With keys
these are the client's INITIATE and the server's READY, which follows only a key that was admitted; without keys both send
READY. The commands of a handshake are readable on the wire with keys, too; only their contents are encrypted.
"""

from __future__ import annotations

from typing import Final

SIGNATURE_BYTES: Final = 10
"""What a peer of ZMTP 3 sends before it has heard anything."""
MOST_HANDSHAKE_BYTES: Final = 65_536
"""Of a client, before its handshake is over: a key, an identity and a few properties are below a thousand."""
_GREETING_BYTES: Final = 64
_SIGNATURE_ENDS: Final = {0: 0xFF, 9: 0x7F}
_LONG: Final = 0x02
_COMMAND: Final = 0x04
_LONGEST_NAME: Final = 16


def signature_is_possible(first: bytes) -> bool:
    """Return whether bytes can be the first ones of a peer of ZMTP 3."""
    return all(first[at] == byte for at, byte in _SIGNATURE_ENDS.items() if at < len(first))


class HandshakeSide:
    """The handshake as one side sends it; `last` are the names of the commands that end it."""

    def __init__(self, *last: bytes) -> None:
        self._last = last
        self._skip_bytes = _GREETING_BYTES
        """What is passed over before the next frame begins."""
        self._head = b""
        """The begin of a frame that has not come as far as its name."""
        self.is_over = False
        """Whether one of the last commands has begun."""
        self.is_broken = False
        """Whether something came that no handshake has."""

    def feed(self, data: bytes) -> None:
        """Take the next bytes of this side."""
        while data and not (self.is_over or self.is_broken):
            passed = min(self._skip_bytes, len(data))
            self._skip_bytes -= passed
            if passed == len(data):
                return
            self._head, data = self._head + data[passed:], b""
            if (read := _frame(self._head)) is None:
                return
            is_command, name, frame_bytes = read
            self.is_broken = not is_command
            self.is_over = is_command and name in self._last
            rest, self._head = self._head, b""
            self._skip_bytes, data = frame_bytes, rest


def _frame(head: bytes) -> tuple[bool, bytes, int] | None:
    """Return whether a frame is a command, its name, and its bytes with its head; None while too few bytes have come."""
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
