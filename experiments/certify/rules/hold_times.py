"""The schedule of queues that hosts hold by pauses: when all ports pause, how much fills a held queue, when rounds begin.

Pure. Every host pauses the priority of data for a time, then leaves it open for a time, without end. A round's barrier passes
while the ports are open; its senders wait until they are paused again. A fixed number of packets then fills each queue, and
the queue drains after the pause: packet after packet leaves a queue of known length. All times are in frames of the slowest
port. The length of a pause frame counts bits of the link, so that faster ports are held for as many frames, but for less time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from etloop.contract.base.late_dataclass import dataclass

if TYPE_CHECKING:
    from numpy.typing import NDArray

DEPTH_PACKETS: Final = 480
"""Packets of 4 KiB that fill a held queue: more than Kmax of most devices."""
HOLD_FRAMES: Final = 900
"""Below the 1,004 frames for which a pause of 65,535 quanta lasts."""
OPEN_FRAMES: Final = 720
"""A held queue drains in `DEPTH_PACKETS` of them; then the barrier passes."""
WAIT_FRAMES: Final = 300
"""Time from the barrier to the sends: these begin 60 to 300 frames after the begin of the next hold."""
MARGIN_FRAMES: Final = 60
"""Arrivals so close to the begin or the end of a pause show nothing: a port may react after 1.5 frames, a host is late."""
_QUANTUM_BITS: Final = 512
_MOST_QUANTA: Final = 65_535


@dataclass(frozen=True, slots=True)
class HoldTimes:
    """When ports are paused: from 0 for `hold_ns` of every `period_ns`, at the slowest rate."""

    rate_bps: int
    """Rate of the slowest port."""
    hold_ns: int
    period_ns: int
    wait_ns: int
    margin_ns: int
    priority: int
    quanta: int

    def hold_ns_at(self, link_bps: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return how long a pause frame holds ports of these rates; nan (unknown) counts as the slowest rate."""
        return self.hold_ns * self.rate_bps / np.where(np.isnan(link_bps), self.rate_bps, link_bps)

    def outlasts_sends(self, hold_ns: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return whether a hold lasts until the senders of a round, which wait for the slowest port, have begun."""
        return hold_ns > self.wait_ns + 2 * self.margin_ns

    @property
    def pause_rule(self) -> dict[str, Any]:
        """Return the rule of `transport.faults` by which all ports pause."""
        every = f"{self.period_ns}ns"
        return {"do": "pause", "priority": self.priority, "quanta": self.quanta, "every": every}


def hold_times(frame_ns: float, rate_bps: int, priority: int) -> HoldTimes:
    """Return the schedule for ports that send a frame in `frame_ns` at `rate_bps`."""
    hold_ns = HOLD_FRAMES * frame_ns
    return HoldTimes(
        rate_bps=rate_bps,
        hold_ns=int(hold_ns),
        period_ns=int((HOLD_FRAMES + OPEN_FRAMES) * frame_ns),
        wait_ns=int(WAIT_FRAMES * frame_ns),
        margin_ns=int(MARGIN_FRAMES * frame_ns),
        priority=priority,
        quanta=min(_MOST_QUANTA, int(hold_ns * rate_bps / 1e9 / _QUANTUM_BITS)),
    )
