"""Flows that share links max-min fairly, with the bits that each has left, as columns by flow. Pure.

The caller moves time: it ends a flow when `sent_ns` says so, and settles after flows began or ended.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import NS_PER_S
from etloop.traffic import _native

NEVER_NS: Final = 1 << 62
_FIRST_ROWS: Final = 64


@dataclass(slots=True, eq=False)
class LastingFlows:
    """The flows on their way. A flow's number is its row, and that of a later flow after its end."""

    shares: _native.FairShares
    left_bits: NDArray[np.float64]
    """At `since_ns`."""
    rate_bps: NDArray[np.float64]
    since_ns: NDArray[np.int64]
    sent_ns: NDArray[np.int64]
    """When the last bit is sent at the current rate; `NEVER_NS` in rows without a flow."""
    after_ns: NDArray[np.int64]
    """Time from then to the arrival."""

    @staticmethod
    def over(link_bps: NDArray[np.int64]) -> LastingFlows:
        """Return no flows over links of these rates."""
        times = np.zeros(_FIRST_ROWS, np.int64)
        return LastingFlows(
            _native.FairShares(link_bps.tolist()),
            np.zeros(_FIRST_ROWS),
            np.zeros(_FIRST_ROWS),
            times,
            np.full(_FIRST_ROWS, NEVER_NS),
            times.copy(),
        )

    def copy(self) -> LastingFlows:
        """Return an independent copy."""
        return LastingFlows(
            _native.FairShares(self.shares),
            self.left_bits.copy(),
            self.rate_bps.copy(),
            self.since_ns.copy(),
            self.sent_ns.copy(),
            self.after_ns.copy(),
        )

    @property
    def first_sent_ns(self) -> int:
        """Return when the next flow is sent; `NEVER_NS` if there is none."""
        return int(self.sent_ns.min())

    @property
    def first_arrival_ns(self) -> int:
        """Return the earliest arrival of a last bit; `NEVER_NS` if there is none."""
        return int((self.sent_ns + self.after_ns).min())

    def begin(
        self, links: NDArray[np.int32], parts: NDArray[np.float32], bits: int, after_ns: int, now_ns: int
    ) -> int:
        """Begin a flow, whose rate is known after the next `settle`; return its number."""
        flow = self.shares.begin(links, parts)
        if flow >= len(self.left_bits):
            self._double()
        self.left_bits[flow], self.rate_bps[flow] = bits, 0
        self.since_ns[flow], self.after_ns[flow] = now_ns, after_ns
        return flow

    def end(self, flow: int) -> None:
        """End a flow."""
        self.shares.end(flow)
        self.sent_ns[flow], self.after_ns[flow] = NEVER_NS, 0

    def settle(self, now_ns: int) -> None:
        """Recompute the rates after flows began or ended at `now_ns`, and when each flow with a new rate is sent."""
        raw_flows, raw_rates = self.shares.settle()
        flows, rates = np.frombuffer(raw_flows, np.uint32), np.frombuffer(raw_rates, np.float64)
        sent_bits = self.rate_bps[flows] * (now_ns - self.since_ns[flows]) / NS_PER_S
        self.left_bits[flows] = np.maximum(self.left_bits[flows] - sent_bits, 0)
        self.since_ns[flows] = now_ns
        self.rate_bps[flows] = rates
        # Beyond any time of the protocol, so that sums stay below NEVER_NS.
        takes_ns = np.minimum(np.ceil(self.left_bits[flows] / rates * NS_PER_S), NEVER_NS / 4)
        self.sent_ns[flows] = now_ns + takes_ns.astype(np.int64)

    def left_bytes(self, flow: int, now_ns: int) -> int:
        """Return the bytes that a flow has not yet sent, rounded up."""
        sent_bits = self.rate_bps[flow] * (now_ns - self.since_ns[flow]) / NS_PER_S
        return max(int(np.ceil((self.left_bits[flow] - sent_bits) / 8)), 0)

    def _double(self) -> None:
        rows = len(self.left_bits)
        self.left_bits = np.append(self.left_bits, np.zeros(rows))
        self.rate_bps = np.append(self.rate_bps, np.zeros(rows))
        self.since_ns = np.append(self.since_ns, np.zeros(rows, np.int64))
        self.sent_ns = np.append(self.sent_ns, np.full(rows, NEVER_NS))
        self.after_ns = np.append(self.after_ns, np.zeros(rows, np.int64))
