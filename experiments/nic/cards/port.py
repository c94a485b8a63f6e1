"""The port of a modelled card: packets leave in order, and stop when the port is paused. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from etloop.experiments.nic.cards.line import LineClock

if TYPE_CHECKING:
    from etloop.experiments.nic.link.wire import Arrival

At = Callable[[int, Callable[[], None]], None]
"""Schedules a call at a time in ns."""


class CardPort:
    """Egress queue of a port, and the end of its pause. Time is an argument of every call."""

    def __init__(
        self, at: At, now_ns: Callable[[], int], deliver: Callable[[Arrival], None], latency_ns: int
    ) -> None:
        self._at, self._now_ns, self._deliver = at, now_ns, deliver
        self._latency_ns = latency_ns
        self._waiting: deque[tuple[float, Arrival]] = deque()
        """The first of it is on its way, with how long each takes."""
        self._line = LineClock()
        self._stopped_until_ns = 0

    def leave(self, takes_ns: float, packet: Arrival) -> None:
        """Queue a packet that takes `takes_ns` to send; it arrives when its transmission ends."""
        self._waiting.append((takes_ns, packet))
        if len(self._waiting) == 1:
            self._begin_when_open()

    def stop(self, duration_ns: int) -> None:
        """Pause the port for `duration_ns`: it begins no packet in that time."""
        self._stopped_until_ns = self._now_ns() + duration_ns

    def _begin_when_open(self) -> None:
        open_ns = self._stopped_until_ns
        self._at(max(self._now_ns(), open_ns), lambda: self._begin(open_ns))

    def _begin(self, open_ns: int) -> None:
        if self._stopped_until_ns != open_ns and self._stopped_until_ns > self._now_ns():
            self._begin_when_open()
            return
        takes_ns, packet = self._waiting[0]
        left_ns = self._line.take(takes_ns, self._now_ns())
        at_ns = left_ns + self._latency_ns
        self._at(at_ns, lambda: self._deliver(replace(packet, at_ns=at_ns)))
        self._at(left_ns, self._end_departure)

    def _end_departure(self) -> None:
        self._waiting.popleft()
        if self._waiting:
            self._begin_when_open()
