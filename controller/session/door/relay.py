"""The process of a door: takes connections of a control port, relays those of agents, and ends strangers' in time. A shell.

A process of its own, since a limit of descriptors is a process's: however many strangers come, the controller has all of
its own but one for each connection that is relayed, and `places` bounds those. Bytes pass as they are; ZeroMQ, on the
other side, decides who is admitted. It ends when the controller does.
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
"""Before those that are there get their turn."""
_TICK_NS: Final = 50 * NS_PER_MS
_COUNTED_NS: Final = 200 * NS_PER_MS
_RESTING_NS: Final = 100 * NS_PER_MS
"""Without a look at new connections where the system has no room for one."""
_FLUSHED_NS: Final = NS_PER_S
"""How long last words may take to leave when the controller has gone."""
_IGNORED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""Whatever they mean is the controller's to do, and this ends with it."""
_PASSING: Final = frozenset(
    {errno.ECONNABORTED, errno.EPROTO, errno.ENETDOWN, errno.EHOSTUNREACH, errno.ENETUNREACH}
)
"""What accept(2) says about one connection that has gone."""


class Relay:
    """The connections of one door."""

    def __init__(
        self, listener: socket.socket, control: socket.socket, passage: Passage, budget: DoorBudget
    ) -> None:
        self._listener: socket.socket | None = listener
        self._control = control
        self._passage = passage
        self._places = Places(budget)
        self._connections: dict[int, Connection] = {}
        self._watching = Watching()
        self._watching.poll.register(listener, select.EPOLLIN)
        self._watching.poll.register(control, select.EPOLLIN)
        self._rests_until_ns: int | None = None
        self._ends_at_ns: int | None = None
        self._counted: Counter[str] = Counter()
        self._next_counted_ns = 0

    def live(self) -> None:
        """Relay until the controller has gone and its last words have left, or had their time."""
        numbers = itertools.count()
        ends, poll = self._watching.ends, self._watching.poll
        next_tick_ns = 0
        while self._ends_at_ns is None or (self._connections and monotonic_ns() < self._ends_at_ns):
            for number, events in poll.poll(_TICK_NS / NS_PER_S):
                end = ends.get(number)  # None: ended by what came before it in this turn, or no connection's.
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
                accepted, (host, *_) = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _PASSING:
                    continue
                # The system has no room. It would say so without end.
                self._watching.poll.unregister(self._listener)
                self._rests_until_ns = monotonic_ns() + _RESTING_NS
                return
            accepted.setblocking(False)
            with suppress(OSError):
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = Connection(next(numbers), accepted, host)
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
            if events & ~select.EPOLLOUT:  # To read, or broken: reading tells.
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
            made, connection.seen = self._passage.connect()
            connection.controller = End(connection, made)
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
        """The controller says nothing: it has gone."""
        self._watching.poll.unregister(self._control)
        self._ends_at_ns = monotonic_ns() + _FLUSHED_NS
        if self._listener is not None:
            if self._rests_until_ns is None:
                self._watching.poll.unregister(self._listener)
            self._listener.close()
            self._listener = None

    def _report(self, kind: str, *words: object) -> None:
        with suppress(OSError):  # It is busy, or has gone; what it would have read is for people.
            self._control.send(report_of(kind, *words), socket.MSG_DONTWAIT)


def source_of(host: str) -> str:
    """Return whom an address counts to: itself, of IPv6 its network of 64 bits, which one host may have to itself."""
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((int(address) >> 64 << 64, 64)))


def main() -> None:
    """Run in a process of its own: LISTENER CONTROL INSIDE PORT MEMBERS STRANGERS, the first two as descriptors."""
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    raise_descriptor_limit()
    gc.disable()  # It makes no cycles that matter, and each look would delay what passes.
    listener, control, inside, port, members, strangers = map(int, sys.argv[1:])
    with socket.socket(fileno=control) as reporting:
        try:
            passage, budget = Passage(inside, port), DoorBudget(members, strangers)
            Relay(socket.socket(fileno=listener), reporting, passage, budget).live()
        except Exception:
            reporting.send(report_of(BROKE, traceback.format_exc()[-2000:]))
            raise


if __name__ == "__main__":
    main()
