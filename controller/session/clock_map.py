"""Maps an agent's monotonic clock to the controller's from ping and pong times.

One sample says: when the agent's clock showed the middle of (receive, send), the controller's showed the middle of
(ping left, pong came), give or take half of what the round trip took outside the agent. Only delay that differs by
direction can hide in that half, so the sample with the least round trip bounds the error best (NTP's clock filter,
RFC 5905 section 10). Older samples lose worth at the rate at which two crystals may drift apart.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from etloop.contract.base.late_dataclass import dataclass

DRIFT_PER_MILLION: Final = 100
"""How fast two clocks may part: 50 ppm each, the usual limit of a board's crystal."""
_KEPT_SAMPLES: Final = 64


@dataclass(frozen=True, slots=True)
class ClockSample:
    """Times of one ping: `sent_ns` and `returned_ns` on the controller, the others on the agent."""

    sent_ns: int
    receive_ns: int
    send_ns: int
    returned_ns: int

    @property
    def round_trip_ns(self) -> int:
        """Time spent on the way, without what the agent took to answer."""
        return (self.returned_ns - self.sent_ns) - (self.send_ns - self.receive_ns)

    @property
    def offset_ns(self) -> int:
        """Agent clock minus controller clock, rounded down."""
        return (self.receive_ns + self.send_ns - self.sent_ns - self.returned_ns) // 2


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """Agent clock minus controller clock, and the bound on its error."""

    offset_ns: int
    error_ns: int

    def to_agent(self, controller_ns: int) -> int:
        """The agent's clock when the controller's shows `controller_ns`."""
        return controller_ns + self.offset_ns


class ClockMap:
    """The last samples of one agent."""

    def __init__(self) -> None:
        self._samples: deque[ClockSample] = deque(maxlen=_KEPT_SAMPLES)

    def __len__(self) -> int:
        return len(self._samples)

    def add(self, sample: ClockSample) -> bool:
        """Keeps a sample, unless its times are impossible (an agent that answers before it is asked)."""
        sane = sample.receive_ns <= sample.send_ns and sample.sent_ns <= sample.returned_ns
        if sane and sample.round_trip_ns >= 0:
            self._samples.append(sample)
            return True
        return False

    def offset(self, now_ns: int) -> ClockOffset | None:
        """The offset with the least error bound at `now_ns`; None without samples."""
        estimates = [ClockOffset(sample.offset_ns, _error_ns(sample, now_ns)) for sample in self._samples]
        return min(estimates, key=lambda estimate: estimate.error_ns, default=None)


def _error_ns(sample: ClockSample, now_ns: int) -> int:
    age_ns = max(0, now_ns - sample.returned_ns)
    return -(-sample.round_trip_ns // 2) + -(-age_ns * DRIFT_PER_MILLION // 1_000_000)
