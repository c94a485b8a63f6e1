"""The process of a door: accepts a control port's connections, relays agents' and drops strangers in time. A shell.

It is a process of its own because descriptor limits are per process: however many strangers connect, they take no more
of the controller's descriptors than one for each relayed connection, and `places` bounds those. Bytes are relayed
unchanged; ZeroMQ, at the other end, decides which peers are admitted. The process ends when the controller does.
"""

from __future__ import annotations

import errno
import gc
import ipaddress
import itertools
import select
import signal
import socket
import sys
import traceback
from collections import Counter
from contextlib import suppress
from typing import Final

from etloop.contract.base.clock import NS_PER_MS, NS_PER_S
from etloop.controller.session.door.budget import DoorBudget
from etloop.controller.session.door.connection import Connection, ConnectionEnded, End, Watching
from etloop.controller.session.door.passage import Passage
from etloop.controller.session.door.places import Places
from etloop.controller.session.door.reports import (
    ANSWERED,
    ASKING,
    BROKE,
    FULL,
    STRANGERS,
    report_of,
)
from etloop.runtime.clock import monotonic_ns
from etloop.runtime.descriptors import raise_descriptor_limit

_ACCEPTED_AT_ONCE: Final = 64
"""Connections accepted before those already open are served."""
_TICK_NS: Final = 50 * NS_PER_MS
_COUNTED_NS: Final = 200 * NS_PER_MS
_RESTING_NS: Final = 100 * NS_PER_MS
"""Pause in accepting after the system had no room for a connection."""
_FLUSHED_NS: Final = NS_PER_S
"""Longest time for queued bytes to leave after the controller has ended."""
_IGNORED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""Signals that the controller acts on; the door ends with it."""
_PASSING: Final = frozenset(
    {errno.ECONNABORTED, errno.EPROTO, errno.ENETDOWN, errno.EHOSTUNREACH, errno.ENETUNREACH}
)
"""Errors of accept(2) that concern one connection that is already gone."""


class Relay:
    """The connections of one door, and the loop that serves them."""

    def __init__(
        self, listener: socket.socket, control: socket.socket, passage: Passage, budget: DoorBudget
    ) -> None:
        self._listener: socket.socket | None = listener
        self._control = control
        self._passage = passage
        self._places = Places(budget, monotonic_ns())
        self._connections: dict[int, Connection] = {}
        self._watching = Watching()
        self._watching.poll.register(listener, select.EPOLLIN)
        self._watching.poll.register(control, select.EPOLLIN)
        self._rests_until_ns: int | None = None
        self._ends_at_ns: int | None = None
        self._counted: Counter[str] = Counter()
        self._next_counted_ns = 0

    def live(self) -> None:
        """Relay until the controller has ended and its queued bytes have left, or their time is over."""
        numbers = itertools.count()
        ends, poll = self._watching.ends, self._watching.poll
        next_tick_ns = 0
        while self._ends_at_ns is None or (self._connections and monotonic_ns() < self._ends_at_ns):
            ready = poll.poll(_TICK_NS / NS_PER_S)
            self._places.turn(monotonic_ns())
            for number, events in ready:
                end = ends.get(number)  # None: closed earlier in this turn, or not a connection's descriptor.
                if end is not None:
                    self._serve(end, events)
                elif self._listener is not None and number == self._listener.fileno():
                    self._accept(numbers)
                elif number == self._control.fileno():
                    self._hear_control()
            if (now_ns := monotonic_ns()) >= next_tick_ns:
                next_tick_ns = now_ns + _TICK_NS
                self._on_tick(now_ns)

    def _on_tick(self, now_ns: int) -> None:
        for number in self._places.overdue(now_ns):
            self._end(self._connections[number])
        if self._rests_until_ns is not None and now_ns >= self._rests_until_ns:
            self._rests_until_ns = None
            if self._listener is not None:
                self._watching.poll.register(self._listener, select.EPOLLIN)
        if self._counted and now_ns >= self._next_counted_ns:
            self._next_counted_ns = now_ns + _COUNTED_NS
            for kind, count in self._counted.items():
                self._report(kind, count)
            self._counted.clear()

    def _accept(self, numbers: itertools.count[int]) -> None:
        assert self._listener is not None
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                peer_socket, (host, *_) = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _PASSING:
                    continue
                # Out of descriptors or memory: epoll would report the listener again and again.
                self._watching.poll.unregister(self._listener)
                self._rests_until_ns = monotonic_ns() + _RESTING_NS
                return
            peer_socket.setblocking(False)
            with suppress(OSError):
                peer_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = Connection(next(numbers), peer_socket, host)
            leaver = self._places.arrive(connection.number, source_of(host), monotonic_ns())
            if leaver is not None:
                self._end(self._connections[leaver])
            self._connections[connection.number] = connection
            connection.watch(self._watching)

    def _serve(self, end: End, events: int) -> None:
        connection = end.connection
        try:
            if events == select.EPOLLIN and connection.passes(end):
                return
            if events & select.EPOLLOUT:
                end.flush()
            if events & ~select.EPOLLOUT:  # Readable or failed; reading raises the error.
                self._relay(connection, end)
            connection.watch(self._watching)
        except (OSError, ConnectionEnded):
            self._end(connection)

    def _relay(self, connection: Connection, end: End) -> None:
        if connection.controller is None:
            first = connection.first_bytes()
            if first is None:
                return
            connection.note_said(first)
            controller_socket, connection.seen = self._passage.connect()
            connection.controller = End(connection, controller_socket)
            self._places.begin(connection.number)
            connection.controller.write(first)
        elif end is connection.peer:
            was_asking = connection.is_asking
            data = connection.hear_peer()
            if connection.is_asking and not was_asking:
                self._report(ASKING, connection.seen, connection.address)
            connection.controller.write(data)
        else:
            data = connection.hear_controller()
            if connection.is_over and not connection.is_member:
                self._admit(connection)
            connection.peer.write(data)

    def _admit(self, connection: Connection) -> None:
        self._report(ANSWERED, connection.seen)
        if not self._places.admit(connection.number):
            self._counted[FULL] += 1
            raise ConnectionEnded
        connection.is_member = True

    def _end(self, connection: Connection) -> None:
        del self._connections[connection.number]
        if connection.controller is None:
            self._counted[STRANGERS] += 1
        elif connection.is_asking:
            self._report(ANSWERED, connection.seen)
        self._places.leave(connection.number)
        connection.close(self._watching)

    def _hear_control(self) -> None:
        """Begin to end: the controller never writes here, so a readable socket means that it has closed it."""
        self._watching.poll.unregister(self._control)
        self._ends_at_ns = monotonic_ns() + _FLUSHED_NS
        if self._listener is not None:
            if self._rests_until_ns is None:
                self._watching.poll.unregister(self._listener)
            self._listener.close()
            self._listener = None

    def _report(self, kind: str, *words: object) -> None:
        with suppress(OSError):  # The controller is busy or gone; reports only inform the operator.
            self._control.send(report_of(kind, *words), socket.MSG_DONTWAIT)


def source_of(host: str) -> str:
    """Return the source that an address counts as: itself in IPv4, its /64 in IPv6, which one host may have to itself."""
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((int(address) >> 64 << 64, 64)))


def main() -> None:
    """Run the door's process with arguments LISTENER CONTROL INSIDE PORT MEMBERS STRANGERS, the first two as descriptors."""
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    raise_descriptor_limit()
    gc.disable()  # There are few reference cycles, and each collection would delay relayed data.
    listener, control, inside, port, members, strangers = map(int, sys.argv[1:])
    with socket.socket(fileno=control) as control_socket:
        try:
            passage, budget = Passage(inside, port), DoorBudget(members, strangers)
            Relay(socket.socket(fileno=listener), control_socket, passage, budget).live()
        except Exception:
            control_socket.send(report_of(BROKE, traceback.format_exc()[-2000:]))
            raise


if __name__ == "__main__":
    main()
