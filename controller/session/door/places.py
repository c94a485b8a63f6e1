"""Decides which connections of a control port are kept when there are too many, and until when. Pure.

A connection is a stranger until its handshake is over, then a member. There is always room for another stranger: the
source with the most strangers loses one, so a flood from one address displaces no connection of another address. Those
that have not sent anything are dropped first, so a silent flood does not displace an agent behind the same address.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from etloop.contract.base.clock import NS_PER_S
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.listening_clock import ListeningClock
from etloop.controller.session.door.budget import DoorBudget

SILENT_NS: Final = 3 * NS_PER_S
"""Longest time for a connection to send its first ten bytes. An agent sends them at once; one lost packet fits in."""
HANDSHAKE_NS: Final = 30 * NS_PER_S
"""Longest time for the whole handshake, as ZeroMQ's own (ZMQ_HANDSHAKE_IVL, zmq_setsockopt(3)). It includes the
controller's answers, for which a process of a busy host may wait many seconds for a processor."""


class Stage(IntEnum):
    """State of a connection on its way to membership."""

    SILENT = 0
    """The first ten bytes of its connection have not arrived."""
    SHAKING = 1
    MEMBER = 2


@dataclass(frozen=True, slots=True)
class _Stranger:
    source: str
    came_ns: int
    stage: Stage


class Places:
    """The connections of one control port, by numbers that the caller assigns."""

    def __init__(self, budget: DoorBudget, now_ns: int = 0) -> None:
        self._budget = budget
        self._listening = ListeningClock(now_ns)
        self._missed_ns = 0
        """Time in which the door's process did not run: no stranger's silence."""
        self._strangers: dict[int, _Stranger] = {}
        """In order of arrival."""
        self._of_source: dict[str, dict[int, None]] = {}
        self._members: set[int] = set()

    def turn(self, now_ns: int) -> None:
        """Note a turn of the door's loop."""
        self._missed_ns += self._listening.turn(now_ns)

    def arrive(self, number: int, source: str, now_ns: int) -> int | None:
        """Add a new connection; return the number of the stranger dropped for it, None if there was room."""
        leaver = self._least_wanted() if len(self._strangers) >= self._budget.strangers else None
        if leaver is not None:
            self.leave(leaver)
        self._strangers[number] = _Stranger(source, now_ns - self._missed_ns, Stage.SILENT)
        self._of_source.setdefault(source, {})[number] = None
        return leaver

    def begin(self, number: int) -> None:
        """Note that a connection began its handshake."""
        stranger = self._strangers[number]
        self._strangers[number] = _Stranger(stranger.source, stranger.came_ns, Stage.SHAKING)

    def admit(self, number: int) -> bool:
        """Make a stranger a member and return true; if all member places are taken, drop it and return false."""
        self.leave(number)
        if len(self._members) >= self._budget.members:
            return False
        self._members.add(number)
        return True

    def leave(self, number: int) -> None:
        """Remove a connection if it is still known."""
        self._members.discard(number)
        stranger = self._strangers.pop(number, None)
        if stranger is not None:
            of_source = self._of_source[stranger.source]
            del of_source[number]
            if not of_source:
                del self._of_source[stranger.source]

    def overdue(self, now_ns: int) -> tuple[int, ...]:
        """Return the strangers whose time is over."""
        overdue_numbers = []
        for number, stranger in self._strangers.items():
            waited_ns = now_ns - self._missed_ns - stranger.came_ns
            if waited_ns < SILENT_NS:
                break  # All further ones arrived later.
            if waited_ns >= HANDSHAKE_NS or stranger.stage is Stage.SILENT:
                overdue_numbers.append(number)
        return tuple(overdue_numbers)

    def _least_wanted(self) -> int:
        of_source = max(self._of_source.values(), key=len)
        # min() returns the first of equals, here the one that arrived first.
        return min(of_source, key=lambda number: self._strangers[number].stage)
