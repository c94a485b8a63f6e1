"""Future events of a modelled card, in virtual time."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from typing import Final

from etloop.contract.base.errors import RunAborted

MOST_TURNS: Final = 1 << 17
"""Events at one instant beyond which time is held not to advance: far above those of all packets of an experiment."""


class VirtualTime:
    """A clock, and events in the order of their times; those of one time in the order in which they came."""

    def __init__(self) -> None:
        self.now_ns = 0
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._turns = 0
        """Events at this instant, without the first."""

    def at(self, at_ns: int, happen: Callable[[], None]) -> None:
        """Have something happen at `at_ns`, or now if that is past."""
        heapq.heappush(self._events, (at_ns, next(self._order), happen))

    def put_off(self, by_ns: int) -> None:
        """Have all that is still to happen be later by so much, in the same order."""
        self._events = [(at_ns + by_ns, order, happen) for at_ns, order, happen in self._events]

    def next(self, until_ns: int) -> bool:
        """Have the next event happen; return False if there is none until `until_ns`, which it is then.

        Raises `RunAborted` with the name of an event if time does not advance.
        """
        if not self._events or self._events[0][0] > until_ns:
            self.now_ns = max(self.now_ns, until_ns)
            return False
        at_ns, _, happen = heapq.heappop(self._events)
        self._turns = self._turns + 1 if at_ns <= self.now_ns else 0
        if self._turns > MOST_TURNS:
            name = getattr(happen, "__qualname__", repr(happen)).replace(".<locals>.<lambda>", "")
            raise RunAborted(
                f"time does not advance: {name} of the simulated card is scheduled at {at_ns} ns again after "
                f"{MOST_TURNS} turns at that instant; this is a defect of etloop: report it with the model of the card"
            )
        self.now_ns = max(self.now_ns, at_ns)
        happen()
        return True
