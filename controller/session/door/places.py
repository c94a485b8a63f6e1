"""Decide which connections of a control port keep their place when there are too many, and until when. Pure.

A connection is a stranger until its handshake is over, then a member. There is always room for one stranger more: whoever
has most strangers loses one, so that a flood from one address takes no place from another's, and those who have sent
nothing go first, so that a flood that says nothing takes none from an agent behind the same address.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from etloop.contract.base.clock import NS_PER_S
from etloop.contract.base.late_dataclass import dataclass
from etloop.controller.session.door.budget import DoorBudget

SILENT_NS: Final = 3 * NS_PER_S
"""How long a connection may take to send its first ten bytes, which an agent does at once: one lost packet fits in."""
HANDSHAKE_NS: Final = 5 * NS_PER_S
"""How long its whole handshake may take."""


class Standing(IntEnum):
    """How far a connection has come."""

    SILENT = 0
    """Its first ten bytes have not come."""
    SHAKING = 1
    MEMBER = 2


@dataclass(frozen=True, slots=True)
class _Stranger:
    source: str
    came_ns: int
    standing: Standing


class Places:
    """The connections of one control port, by a number that the caller gives each."""

    def __init__(self, budget: DoorBudget) -> None:
        self._budget = budget
        self._strangers: dict[int, _Stranger] = {}
        """In the order in which they came."""
        self._of_source: dict[str, dict[int, None]] = {}
        self._members: set[int] = set()

    def arrive(self, number: int, source: str, now_ns: int) -> int | None:
        """Give a new connection a place; return the one that loses its place for it, None if there was room."""
        leaver = self._least_wanted() if len(self._strangers) >= self._budget.strangers else None
        if leaver is not None:
            self.leave(leaver)
        self._strangers[number] = _Stranger(source, now_ns, Standing.SILENT)
        self._of_source.setdefault(source, {})[number] = None
        return leaver

    def begin(self, number: int) -> None:
        """Note that a connection began its handshake."""
        known = self._strangers[number]
        self._strangers[number] = _Stranger(known.source, known.came_ns, Standing.SHAKING)

    def admit(self, number: int) -> bool:
        """Note that a handshake is over; return whether there is room for one more member. Where there is none it leaves."""
        self.leave(number)
        if len(self._members) >= self._budget.members:
            return False
        self._members.add(number)
        return True

    def leave(self, number: int) -> None:
        """Forget a connection, which may be forgotten already."""
        self._members.discard(number)
        known = self._strangers.pop(number, None)
        if known is not None:
            same = self._of_source[known.source]
            del same[number]
            if not same:
                del self._of_source[known.source]

    def overdue(self, now_ns: int) -> tuple[int, ...]:
        """Return the strangers that had their time."""
        late = []
        for number, stranger in self._strangers.items():
            waited_ns = now_ns - stranger.came_ns
            if waited_ns < SILENT_NS:
                break  # Those that follow came later.
            if waited_ns >= HANDSHAKE_NS or stranger.standing is Standing.SILENT:
                late.append(number)
        return tuple(late)

    def _least_wanted(self) -> int:
        same = max(self._of_source.values(), key=len)
        # min() takes the first of equals, here the one that came first.
        return min(same, key=lambda number: self._strangers[number].standing)
