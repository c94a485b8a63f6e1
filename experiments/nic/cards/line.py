"""Computes when a modelled transmitter has sent its frames. Pure; time comes with every call.

Ends are whole nanoseconds, rounded up; the rounding error is carried into the next frame of the same busy period, so that
it does not accumulate.
"""

from __future__ import annotations

import math


class LineClock:
    """One transmitter."""

    def __init__(self) -> None:
        self.free_ns = 0
        """When all that was taken has left."""
        self._early_ns = 0.0
        """By so much the last bit leaves before `free_ns`."""

    def take(self, takes_ns: float, now_ns: int) -> int:
        """Take a frame as soon as the line is free; return when its last bit has left."""
        if self.free_ns < now_ns:
            self.free_ns, self._early_ns = now_ns, 0.0
        return self._add(takes_ns)

    def take_at(self, takes_ns: float, now_ns: int) -> int:
        """Take a frame at `now_ns`, whatever was to be waited for; return when its last bit has left."""
        if self.free_ns != now_ns:
            self.free_ns, self._early_ns = now_ns, 0.0
        return self._add(takes_ns)

    def _add(self, takes_ns: float) -> int:
        exact_ns = takes_ns - self._early_ns
        whole_ns = math.ceil(exact_ns)
        self._early_ns = whole_ns - exact_ns
        self.free_ns += whole_ns
        return self.free_ns
