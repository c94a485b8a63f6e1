"""Maps an agent's monotonic clock to the controller's, from the times of pings and pongs.

A sample assumes that the middle of (receive, send) on the agent's clock and the middle of (ping sent, pong received) on
the controller's clock are the same instant. The error is at most half of the round trip, measured without the agent's
own processing time: only a difference between the two one-way delays can cause it. So the sample with the shortest
round trip has the least error bound (NTP's clock filter, RFC 5905 section 10). The bound of an older sample grows with
the rate at which two crystals may drift apart.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from etloop.contract.base.late_dataclass import dataclass

DRIFT_PER_MILLION: Final = 100
"""Highest relative drift of two clocks in ppm: 50 ppm each, the usual limit of a board's crystal."""
_KEPT_SAMPLES: Final = 64


@dataclass(frozen=True, slots=True)
class ClockSample:
    """Times of one ping: `sent_ns` and `returned_ns` on the controller's clock, `receive_ns` and `send_ns` on the agent's."""

    sent_ns: int
    receive_ns: int
    send_ns: int
    returned_ns: int

    @property
    def round_trip_ns(self) -> int:
        """Return the round trip without the agent's processing time, in nanoseconds."""
        return (self.returned_ns - self.sent_ns) - (self.send_ns - self.receive_ns)

    @property
    def offset_ns(self) -> int:
        """Return agent clock minus controller clock in nanoseconds, rounded down."""
        return (self.receive_ns + self.send_ns - self.sent_ns - self.returned_ns) // 2


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """Agent clock minus controller clock, and the bound on its error."""

    offset_ns: int
    error_ns: int

    def to_agent(self, controller_ns: int) -> int:
        """Return the agent's clock at the instant at which the controller's shows `controller_ns`."""
        return controller_ns + self.offset_ns


class ClockMap:
    """The most recent samples of one agent, at most 64."""

    def __init__(self) -> None:
        self._samples: deque[ClockSample] = deque(maxlen=_KEPT_SAMPLES)

    def __len__(self) -> int:
        return len(self._samples)

    def add(self, sample: ClockSample) -> bool:
        """Add a sample and return true; return false if its times are impossible (the pong left before its ping came)."""
        is_ordered = sample.receive_ns <= sample.send_ns and sample.sent_ns <= sample.returned_ns
        if is_ordered and sample.round_trip_ns >= 0:
            self._samples.append(sample)
            return True
        return False

    def offset(self, now_ns: int) -> ClockOffset | None:
        """Return the offset with the least error bound at `now_ns`; None without samples."""
        estimates = [ClockOffset(sample.offset_ns, _error_ns(sample, now_ns)) for sample in self._samples]
        return min(estimates, key=lambda estimate: estimate.error_ns, default=None)


def _error_ns(sample: ClockSample, now_ns: int) -> int:
    age_ns = max(0, now_ns - sample.returned_ns)
    return -(-sample.round_trip_ns // 2) + -(-age_ns * DRIFT_PER_MILLION // 1_000_000)
