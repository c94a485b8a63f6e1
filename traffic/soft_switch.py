"""The soft switch: a topology's switches in real time between interfaces. A thin wrapper of
traffic/native/bare/soft_switch.

This module decides how a snapshot of the counters is presented to Python. The lab (`lab/`) creates the interfaces and
requests snapshots.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.switch_counters import (
    CARD_COUNTERS,
    OVERLOAD_COUNTERS,
    SOFT_PORT_COUNTERS,
    SWITCH_PORT_COUNTERS,
    rows,
)
from etloop.contract.model.topology import SwitchEnd, Topology
from etloop.traffic import _native
from etloop.traffic.outcome import outcome_of
from etloop.traffic.topology.routes import routes

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class SoftPort:
    """Where one attachment of the topology is: an interface, and the host behind it."""

    interface: str
    """In the network namespace of the thread that opens the switch."""
    mac: bytes
    """MAC address of the host, 6 bytes; all zeros: unknown."""
    addresses: tuple[str, ...]
    """IP addresses of the host; packets are forwarded by these first, then by MAC address."""


@dataclass(frozen=True, slots=True)
class SoftLimits:
    """Resource limits of the soft switch, and its threshold for late frames."""

    mtu_bytes: int = 4200
    """Longest IP packet; longer frames that cannot be segmented are dropped and counted."""
    memory_bytes: int = 256 << 20
    """Maximum memory of all frames inside; frames beyond it are dropped and counted as overload."""
    card_bytes: int = 64 << 20
    """Maximum bytes queued in the NIC of one attachment; frames beyond it are dropped and counted as overload."""
    late_ns: int = 1_000_000
    """Frames handed over later than this after their modelled time are counted as late."""
    spin_ns: int = 0
    """How long before a deadline the switch's thread polls. 0: it sleeps until the deadline."""
    learns: bool = False
    """Whether it learns the stations behind its ports, as a bridge does (at most 4,096): every frame is accepted, and
    one for an unknown station is flooded to all other ports. If false, such frames are dropped and counted."""


@dataclass(frozen=True, slots=True)
class SoftSnapshot:
    """All counters of a soft switch at one moment."""

    at_ns: int
    """Steady clock of this machine at the snapshot."""
    begin_ns: int
    switch_ports: tuple[NDArray[np.void], ...]
    """SWITCH_PORT_COUNTERS rows, by switch."""
    down: frozenset[tuple[int, int]]
    """(switch, port) of every end whose link is down."""
    pools: tuple[tuple[int, int], ...]
    """(buffer bytes in use, maximum in use so far), by switch."""
    cards: NDArray[np.void]
    """CARD_COUNTERS rows, by attachment."""
    ports: NDArray[np.void]
    """SOFT_PORT_COUNTERS rows, by attachment."""
    lateness: tuple[tuple[int, int], ...]
    """Histogram of how much later than modelled frames were handed over: (lower bound in ns, frames), ascending."""
    worst_lateness_ns: int
    processor_ns: int
    """CPU time of the switch's thread."""
    turns: int
    frames_inside: int
    real_time: bool
    """Whether the switch's thread has real-time priority (this needs root)."""

    @property
    def overload_frames(self) -> int:
        """Return the frames lost by the soft switch itself. If not 0, results do not show the modelled switch alone."""
        return int(sum(self.ports[name].sum() for name in OVERLOAD_COUNTERS))

    def lateness_ns(self, percent: float) -> int:
        """Return the lateness percentile `percent` in ns, as the lower bound of its bucket; 0 without frames."""
        total = sum(count for _, count in self.lateness)
        seen = 0
        for floor_ns, count in self.lateness:
            seen += count
            if seen * 100 >= total * percent:
                return floor_ns
        return 0


class SoftSwitch:
    """A running soft switch. Open it in a thread that is in the network namespace of its interfaces."""

    def __init__(
        self, topology: Topology, ports: tuple[SoftPort, ...], limits: SoftLimits | None = None
    ) -> None:
        """Open the sockets and start the thread; `ports` are in the order of the topology's attachments.

        Raises RuntimeError if an interface cannot be opened, ValueError for a topology that cannot be run.
        """
        self._native = _native.SoftSwitch(topology, routes(topology), ports, limits or SoftLimits())
        self._native.start()

    def stop(self) -> None:
        """Stop the switch's thread; its last counters remain readable."""
        self._native.stop()

    def failure(self) -> str:
        """Return why the switch stopped by itself, or "" if it did not."""
        return self._native.failure()

    def set_link(self, end: SwitchEnd, *, up: bool) -> None:
        """Take the link at a switch port down or up."""
        self._native.set_link(end.switch, end.port, up)

    def snapshot(self) -> SoftSnapshot:
        """Return all counters as of now. Blocks until the switch's thread answers between two turns."""
        raw: dict[str, Any] = self._native.snapshot()
        return outcome_of(
            SoftSnapshot,
            raw,
            switch_ports=tuple(rows(content, SWITCH_PORT_COUNTERS) for content in raw["switch_ports"]),
            down=frozenset(raw["down"]),
            pools=tuple(raw["pools"]),
            cards=rows(raw["cards"], CARD_COUNTERS),
            ports=rows(raw["ports"], SOFT_PORT_COUNTERS),
            lateness=tuple(raw["lateness"]),
        )
