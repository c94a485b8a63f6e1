"""How much and how far an agent sends at most, whatever the controller asks for, and what of it each loop gets. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import format_rate


@dataclass(frozen=True, slots=True)
class SendLimits:
    """Said where the agent is started; 0: no limit of its own."""

    most_bps: int = 0
    """Bits of UDP datagrams a second: of each port, and of all streams of plain UDP together."""
    most_packets_per_s: int = 0
    """The same in packets."""
    hop_limit: int = 0
    """TTL of what is sent; 0: the usual 64."""

    @property
    def limits_rate(self) -> bool:
        """Whether anything is held back."""
        return self.most_bps > 0 or self.most_packets_per_s > 0

    def degraded(self) -> tuple[str, ...]:
        """Return what a run over such an agent must say: its figures may be the agent's own."""
        told = []
        if self.most_bps:
            told.append(f"this agent sends at most {format_rate(self.most_bps)} a port (--most-rate)")
        if self.most_packets_per_s:
            told.append(
                f"this agent sends at most {self.most_packets_per_s} packets/s a port (--most-packet-rate)"
            )
        return tuple(told)


UNLIMITED = SendLimits()


@dataclass(frozen=True, slots=True)
class LoopLimits:
    """Of every loop of the engine, in its order; 0: none."""

    hop_limit: int
    bps: tuple[int, ...]
    packets_per_s: tuple[int, ...]


def loop_limits(limits: SendLimits, port_of: Sequence[int]) -> LoopLimits:
    """Divide the limits of each port among its loops; `port_of` says whose each loop is. Rounded down: never more."""
    loops = [list(port_of).count(port) for port in port_of]
    return LoopLimits(
        limits.hop_limit,
        tuple(_share(limits.most_bps, count) for count in loops),
        tuple(_share(limits.most_packets_per_s, count) for count in loops),
    )


def _share(most: int, loops: int) -> int:
    return max(1, most // loops) if most else 0
