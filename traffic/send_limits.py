"""Limits on rate and hop count of an agent's packets, whatever the controller requests, and their share per loop. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import format_rate


@dataclass(frozen=True, slots=True)
class SendLimits:
    """Send limits from the agent's command line; 0: unlimited."""

    most_bps: int = 0
    """Bits of UDP datagrams per second: of each port, and of all plain UDP streams together."""
    most_packets_per_s: int = 0
    """The same limit in packets per second."""
    hop_limit: int = 0
    """TTL or hop limit of packets sent; 0: the default of 64."""

    @property
    def limits_rate(self) -> bool:
        """Return whether the rate is limited."""
        return self.most_bps > 0 or self.most_packets_per_s > 0

    def degraded_notes(self) -> tuple[str, ...]:
        """Return the notes that a run with this agent must report: its results may show the agent's limits."""
        notes = []
        if self.most_bps:
            notes.append(f"this agent sends at most {format_rate(self.most_bps)} a port (--most-rate)")
        if self.most_packets_per_s:
            notes.append(
                f"this agent sends at most {self.most_packets_per_s} packets/s a port (--most-packet-rate)"
            )
        return tuple(notes)


UNLIMITED = SendLimits()


@dataclass(frozen=True, slots=True)
class LoopLimits:
    """Send limits of every loop of the engine, in loop order; 0: unlimited."""

    hop_limit: int
    bps: tuple[int, ...]
    packets_per_s: tuple[int, ...]


def loop_limits(limits: SendLimits, port_of: Sequence[int]) -> LoopLimits:
    """Divide the limits of each port among its loops, rounded down; `port_of[i]` is the port of loop i."""
    loops = [list(port_of).count(port) for port in port_of]
    return LoopLimits(
        limits.hop_limit,
        tuple(_share(limits.most_bps, count) for count in loops),
        tuple(_share(limits.most_packets_per_s, count) for count in loops),
    )


def _share(most: int, loops: int) -> int:
    """Return one loop's share of a limit, at least 1; 0 if unlimited."""
    return max(1, most // loops) if most else 0
