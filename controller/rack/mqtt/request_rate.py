"""Limit how many requests a rack serves per second, and how many more it answers as busy. Pure: time is an argument.

Beyond the first bound a request is not carried out, beyond the second not even answered, so a flood costs the rack a
bounded amount of work, whatever its source.
"""

from __future__ import annotations

from enum import Enum

from etloop.contract.base.clock import NS_PER_MS, NS_PER_S


class Turn(Enum):
    """How a request is treated."""

    SERVED = "served"
    BUSY = "answered with: retry later"
    DROPPED = "not answered"


class RequestRate:
    """Counts requests in windows of one second; the first window begins with the first request."""

    def __init__(self, per_s: int) -> None:
        self._per_s = per_s
        self._began_ns: int | None = None
        self._served = 0

    def count(self, now_ns: int) -> Turn:
        """Count a request and return how to treat it."""
        if self._began_ns is None or now_ns - self._began_ns >= NS_PER_S:
            self._began_ns, self._served = now_ns, 0
        self._served += 1
        if self._served <= self._per_s:
            return Turn.SERVED
        return Turn.BUSY if self._served <= 2 * self._per_s else Turn.DROPPED

    def wait_ns(self, now_ns: int) -> int:
        """Return how long a request that may wait has to wait to be served, in nanoseconds; 0: not at all."""
        if self._began_ns is None or self._served < self._per_s:
            return 0
        return max(0, self._began_ns + NS_PER_S - now_ns)

    def retry_after_ms(self, now_ns: int) -> int:
        """Return the time until requests are served again, in milliseconds: the rest of the window, at least 1."""
        assert self._began_ns is not None
        rest_ns = self._began_ns + NS_PER_S - now_ns
        return max(1, -(-rest_ns // NS_PER_MS))
