"""One connection that a door relays: a peer's socket, the controller's socket, and the bytes on their way. A shell: sockets."""

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
"""What is read lies here until it is written on, which is before the next is read."""
_NOTHING: Final = _ROOM[:0]
_MOST_WAITING_BYTES: Final = 1 << 20
"""Of one direction; with more its sender is not read, and waits."""
_NO_EVENTS: Final = 0


class ConnectionEnded(Exception):
    """A connection has ended, or has to."""


class End:
    """One socket of a connection, and the bytes that wait to be written to it."""

    def __init__(self, connection: Connection, own: socket.socket) -> None:
        self.connection = connection
        self.socket = own
        self.waiting = bytearray()
        self.is_read_out = False
        """Whether its peer has ended its sending."""
        self._events = _NO_EVENTS

    def write(self, data: memoryview | bytes) -> None:
        """Write bytes, or have them wait. Raises `OSError`."""
        sent = 0
        if not self.waiting:
            # One that is not connected yet says so, too.
            with contextlib.suppress(BlockingIOError):
                sent = self.socket.send(data)
        if sent < len(data):
            self.waiting += data[sent:]

    def flush(self) -> None:
        """Write what waits. Raises `OSError`."""
        with contextlib.suppress(BlockingIOError):
            del self.waiting[: self.socket.send(self.waiting)]

    def watch(self, watching: Watching, wants_read: bool) -> None:
        """Be served when something can be done."""
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
    """The ends that are served when something can be done, by their descriptors."""

    def __init__(self) -> None:
        self.poll = select.epoll()
        self.ends: dict[int, End] = {}

    def forget(self, number: int) -> None:
        """Serve an end no more."""
        self.poll.unregister(number)
        del self.ends[number]


class Connection:
    """A connection from its arrival on. Its methods raise `OSError` and `ConnectionEnded` where it has to be closed."""

    def __init__(self, number: int, own: socket.socket, address: str) -> None:
        self.number = number
        self.address = address
        self.peer = End(self, own)
        self.controller: End | None = None
        """Once the peer has sent what a handshake begins with."""
        self.seen = ""
        """Where it seems to the controller to come from, from then on."""
        self.is_member = False
        self._first = b""
        self._said = HandshakeSide(b"INITIATE", b"READY")
        self._answered = HandshakeSide(b"READY")
        self._handshake_bytes = 0

    def passes(self, end: End) -> bool:
        """Relay what a member's end has sent, where all of it leaves at once: most of what is ever relayed.

        Returns whether that is all that there was to do.
        """
        other = self.controller if end is self.peer else self.peer
        if not self.is_member or other is None or other.waiting or end.waiting:
            return False
        data = _read(end)
        other.write(data)
        return not other.waiting and not end.is_read_out

    @property
    def is_asking(self) -> bool:
        """Whether the controller is to say now if it admits the peer."""
        return self._said.is_over and not self.is_member

    @property
    def is_over(self) -> bool:
        """Whether the handshake is."""
        return self._said.is_over and self._answered.is_over

    def first_bytes(self) -> bytes | None:
        """Read what a peer sends first; None while that is less than a signature."""
        self._first += bytes(_read(self.peer))
        if self.peer.is_read_out or not signature_is_possible(self._first):
            raise ConnectionEnded
        return self._first if len(self._first) >= SIGNATURE_BYTES else None

    def hear_peer(self) -> memoryview:
        """Read what the peer sends in its handshake or after it."""
        data = _read(self.peer)
        if not self._said.is_over:
            self.note_said(bytes(data))
        return data

    def note_said(self, data: bytes) -> None:
        """Follow the peer's side of the handshake."""
        self._handshake_bytes += len(data)
        self._said.feed(data)
        if self._said.is_broken or (self._handshake_bytes > MOST_HANDSHAKE_BYTES and not self._said.is_over):
            raise ConnectionEnded

    def hear_controller(self) -> memoryview:
        """Read what the controller sends."""
        assert self.controller is not None
        data = _read(self.controller)
        if not self._answered.is_over:
            self._answered.feed(bytes(data))
        return data

    def watch(self, watching: Watching) -> None:
        """Be called for what can be done; raises `ConnectionEnded` when all has been relayed that there will be."""
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
