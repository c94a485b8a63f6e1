"""One connection that a door relays: the peer's socket, the controller's socket, and the bytes in between. A shell: sockets."""

from __future__ import annotations

import contextlib
import select
import socket
from typing import Final

from etloop.controller.session.door.handshake import (
    MOST_HANDSHAKE_BYTES,
    SIGNATURE_BYTES,
    HandshakeSide,
    signature_is_possible,
)

_ROOM: Final = memoryview(bytearray(1 << 18))
"""Receive buffer, shared by all connections: its bytes are written on or queued before the next read."""
_NOTHING: Final = _ROOM[:0]
_MOST_WAITING_BYTES: Final = 1 << 20
"""Most bytes queued in one direction; beyond it the sender's socket is not read."""
_NO_EVENTS: Final = 0


class ConnectionEnded(Exception):
    """A connection has ended, or must be closed."""


class End:
    """One socket of a connection, and the bytes queued for it."""

    def __init__(self, connection: Connection, own: socket.socket) -> None:
        self.connection = connection
        self.socket = own
        self.waiting = bytearray()
        self.is_read_out = False
        """Whether the peer of this socket has shut down its sending direction."""
        self._events = _NO_EVENTS

    def write(self, data: memoryview | bytes) -> None:
        """Send bytes, and queue what the socket does not take now. Raises `OSError`."""
        sent = 0
        if not self.waiting:
            # A socket that is still connecting raises it, too.
            with contextlib.suppress(BlockingIOError):
                sent = self.socket.send(data)
        if sent < len(data):
            self.waiting += data[sent:]

    def flush(self) -> None:
        """Send queued bytes. Raises `OSError`."""
        with contextlib.suppress(BlockingIOError):
            del self.waiting[: self.socket.send(self.waiting)]

    def watch(self, watching: Watching, wants_read: bool) -> None:
        """Register the events that this socket waits for: readable if `wants_read`, writable if bytes are queued."""
        events = (select.EPOLLIN if wants_read else 0) | (select.EPOLLOUT if self.waiting else 0)
        if events == self._events:
            return
        number = self.socket.fileno()
        if not self._events:
            watching.ends[number] = self
            watching.poll.register(number, events)
        elif events:
            watching.poll.modify(number, events)
        else:
            watching.forget(number)
        self._events = events

    def close(self, watching: Watching) -> None:
        """Close the socket."""
        if self._events:
            watching.forget(self.socket.fileno())
            self._events = _NO_EVENTS
        self.socket.close()


class Watching:
    """The epoll instance of a door, and the socket ends registered in it, by descriptor."""

    def __init__(self) -> None:
        self.poll = select.epoll()
        self.ends: dict[int, End] = {}

    def forget(self, number: int) -> None:
        """Unregister the socket with descriptor `number`."""
        self.poll.unregister(number)
        del self.ends[number]


class Connection:
    """A relayed connection, from its arrival on. Methods raise `OSError` or `ConnectionEnded` if it must be closed."""

    def __init__(self, number: int, own: socket.socket, address: str) -> None:
        self.number = number
        self.address = address
        self.peer = End(self, own)
        self.controller: End | None = None
        """The controller's socket; None until the peer has sent a ZMTP signature."""
        self.seen = ""
        """Address from which the controller sees the connection come; "" until it is passed on."""
        self.is_member = False
        self._first = b""
        self._said = HandshakeSide(b"INITIATE", b"READY")
        self._answered = HandshakeSide(b"READY")
        self._handshake_bytes = 0

    def passes(self, end: End) -> bool:
        """Relay data of a member if all of it can be sent at once, which is the common case.

        Returns whether nothing else remains to be done for this event.
        """
        opposite = self.controller if end is self.peer else self.peer
        if not self.is_member or opposite is None or opposite.waiting or end.waiting:
            return False
        data = _read(end)
        opposite.write(data)
        return not opposite.waiting and not end.is_read_out

    @property
    def is_asking(self) -> bool:
        """Return whether the peer has finished its side of the handshake and awaits admission."""
        return self._said.is_over and not self.is_member

    @property
    def is_over(self) -> bool:
        """Return whether both sides of the handshake are over."""
        return self._said.is_over and self._answered.is_over

    def first_bytes(self) -> bytes | None:
        """Read a peer's first bytes; None while fewer than a signature have arrived."""
        self._first += bytes(_read(self.peer))
        if self.peer.is_read_out or not signature_is_possible(self._first):
            raise ConnectionEnded
        return self._first if len(self._first) >= SIGNATURE_BYTES else None

    def hear_peer(self) -> memoryview:
        """Read what the peer sends, during its handshake or after."""
        data = _read(self.peer)
        if not self._said.is_over:
            self.note_said(bytes(data))
        return data

    def note_said(self, data: bytes) -> None:
        """Parse bytes of the peer's side of the handshake. Raises `ConnectionEnded` if they are invalid or too many."""
        self._handshake_bytes += len(data)
        self._said.feed(data)
        if self._said.is_broken or (self._handshake_bytes > MOST_HANDSHAKE_BYTES and not self._said.is_over):
            raise ConnectionEnded

    def hear_controller(self) -> memoryview:
        """Read what the controller sends, during the handshake or after."""
        assert self.controller is not None
        data = _read(self.controller)
        if not self._answered.is_over:
            self._answered.feed(bytes(data))
        return data

    def watch(self, watching: Watching) -> None:
        """Register both sockets for the events they wait for; raise `ConnectionEnded` once everything is relayed."""
        peer, controller = self.peer, self.controller
        if controller is None:
            peer.watch(watching, wants_read=True)
            return
        if (peer.is_read_out and not controller.waiting) or (controller.is_read_out and not peer.waiting):
            raise ConnectionEnded
        peer.watch(watching, not peer.is_read_out and len(controller.waiting) < _MOST_WAITING_BYTES)
        controller.watch(watching, not controller.is_read_out and len(peer.waiting) < _MOST_WAITING_BYTES)

    def close(self, watching: Watching) -> None:
        """Close both sockets."""
        for end in (self.peer, self.controller):
            if end is not None:
                end.close(watching)


def _read(end: End) -> memoryview:
    try:
        read_bytes = end.socket.recv_into(_ROOM)
    except BlockingIOError:
        return _NOTHING
    end.is_read_out = not read_bytes
    return _ROOM[:read_bytes]
