"""The soft switch: a topology's switches in real time between interfaces. A thin face over traffic/native/bare/soft_switch.

Decides what a snapshot of its counters looks like to Python. Where the interfaces come from and who asks for snapshots is
decided by the lab (controller/lab_*.py).
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
    """Where one attachment of the topology is: an interface, and who is behind it."""

    interface: str
    """In the network namespace of the thread that opens the switch."""
    mac: bytes
    """Of the host, 6 bytes; zeros: not known."""
    addresses: tuple[str, ...]
    """IP addresses of the host, by which packets find it before its MAC is looked at."""


@dataclass(frozen=True, slots=True)
class SoftLimits:
    """What the soft switch may use, and what it counts as late."""

    mtu_bytes: int = 4200
    """Longest IP packet; longer frames that cannot be cut are lost and counted."""
    memory_bytes: int = 256 << 20
    """Of all frames inside. What does not fit is lost and counted as overload."""
    card_bytes: int = 64 << 20
    """The most that waits in the card of one attachment, likewise."""
    late_ns: int = 1_000_000
    """Frames handed over so long after their modelled time are counted as late."""
    spin_ns: int = 0
    """How long before a deadline the switch's thread stays awake. 0: it sleeps until then."""
    learns: bool = False
    """Whether it finds out by itself who is behind its ports, as a bridge: every frame is taken in, its sender's place learned
    (of 4,096 stations), and one for nobody known goes to all other ports. Else such frames are lost and counted."""


@dataclass(frozen=True, slots=True)
class SoftSnapshot:
    """All counters of a soft switch at one moment."""

    at_ns: int
    """Steady clock of this machine."""
    begin_ns: int
    switch_ports: tuple[NDArray[np.void], ...]
    """By switch: rows of SWITCH_PORT_COUNTERS."""
    down: frozenset[tuple[int, int]]
    """Switch and port of every end whose link is down."""
    pools: tuple[tuple[int, int], ...]
    """By switch: bytes of the buffer in use, and the most that were."""
    cards: NDArray[np.void]
    """By attachment: CARD_COUNTERS."""
    ports: NDArray[np.void]
    """By attachment: SOFT_PORT_COUNTERS."""
    lateness: tuple[tuple[int, int], ...]
    """How much later than modelled frames were handed over: (from so many ns, frames), rising."""
    worst_lateness_ns: int
    processor_ns: int
    """Time that the switch's thread spent on a processor."""
    turns: int
    frames_inside: int
    real_time: bool
    """Whether the kernel runs the switch's thread before ordinary ones (it needs root)."""

    @property
    def overload_frames(self) -> int:
        """Frames lost by the soft switch itself. Above 0, what was measured is not the modelled switch alone."""
        return int(sum(self.ports[name].sum() for name in OVERLOAD_COUNTERS))

    def lateness_ns(self, percent: float) -> int:
        """The lateness that so many percent of the frames did not exceed (lower end of its bucket); 0 without frames."""
        total = sum(count for _, count in self.lateness)
        seen = 0
        for floor_ns, count in self.lateness:
            seen += count
            if seen * 100 >= total * percent:
                return floor_ns
        return 0


class SoftSwitch:
    """A running soft switch. Open it in a thread that stands in the network namespace of its interfaces."""

    def __init__(
        self, topology: Topology, ports: tuple[SoftPort, ...], limits: SoftLimits | None = None
    ) -> None:
        """Opens the sockets; `ports` are in the order of the topology's attachments.

        Raises RuntimeError where an interface cannot be opened, ValueError for a topology that cannot be run.
        """
        self._native = _native.SoftSwitch(topology, routes(topology), ports, limits or SoftLimits())
        self._native.start()

    def stop(self) -> None:
        """Ends its thread; the last counters can still be asked for."""
        self._native.stop()

    def failure(self) -> str:
        """Why it ended by itself; empty otherwise."""
        return self._native.failure()

    def set_link(self, end: SwitchEnd, *, up: bool) -> None:
        """Takes the link at a switch port down or up."""
        self._native.set_link(end.switch, end.port, up)

    def snapshot(self) -> SoftSnapshot:
        """All counters as of now. Waits for the switch's thread, which answers between two turns."""
        taken: dict[str, Any] = self._native.snapshot()
        return outcome_of(
            SoftSnapshot,
            taken,
            switch_ports=tuple(rows(content, SWITCH_PORT_COUNTERS) for content in taken["switch_ports"]),
            down=frozenset(taken["down"]),
            pools=tuple(taken["pools"]),
            cards=rows(taken["cards"], CARD_COUNTERS),
            ports=rows(taken["ports"], SOFT_PORT_COUNTERS),
            lateness=tuple(taken["lateness"]),
        )
