"""Decides how many connections an agent keeps: one per run it takes part in, and one idle, as far as the controller
offers slots.

Starts and ends slots; service.py runs each slot. Slot 0 is the agent itself: when it ends, all end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Final, Protocol

from etloop.contract.base.errors import ExitCode
from etloop.contract.protocol.machine import advance

_LOOK_S: Final = 0.05


class Slot(Protocol):
    """A connection with its life and engine."""

    @property
    def slots(self) -> int:
        """Return the number of slots that the controller offers, as received on this connection."""

    @property
    def in_run(self) -> bool:
        """Return whether a run has this slot."""

    async def live(self, stops: list[str]) -> ExitCode:
        """Run until the slot ends by itself or a reason to end appears in `stops`; return the exit code."""

    async def end(self) -> None:
        """Close the connection and the engine."""


class SlotState(Enum):
    """State of a slot."""

    OPEN = auto()
    """The slot waits for a run or has one (`Slot.in_run`)."""
    ENDING = auto()
    """The slot was ordered to end and is leaving the controller."""
    ENDED = auto()


class SlotEvent(Enum):
    """Events that change the state of a slot."""

    STOPPED = auto()
    ENDED = auto()


SLOT_TRANSITIONS: Final[Mapping[SlotState, Mapping[SlotEvent, SlotState]]] = {
    SlotState.OPEN: {SlotEvent.STOPPED: SlotState.ENDING, SlotEvent.ENDED: SlotState.ENDED},
    # A second reason to stop does not cut the goodbye short.
    SlotState.ENDING: {SlotEvent.STOPPED: SlotState.ENDING, SlotEvent.ENDED: SlotState.ENDED},
    SlotState.ENDED: {},
}


class _Open:
    """A slot and the task that runs it."""

    def __init__(self, slot: Slot) -> None:
        self.slot = slot
        self.state = SlotState.OPEN
        self._stops: list[str] = []
        self.task = asyncio.create_task(self._live())

    def stop(self, reason: str) -> None:
        """Order the slot to end for a reason."""
        self._advance(SlotEvent.STOPPED)
        self._stops.append(reason)

    async def _live(self) -> ExitCode:
        try:
            try:
                return await self.slot.live(self._stops)
            finally:
                await self.slot.end()
        finally:
            self._advance(SlotEvent.ENDED)

    def _advance(self, event: SlotEvent) -> None:
        self.state = advance("slot", SLOT_TRANSITIONS, self.state, event)


class Slots:
    """The slots of one agent process. `once`: one run, so one slot."""

    def __init__(
        self, open_slot: Callable[[int], Slot], once: bool, on_turn: Callable[[], None] = lambda: None
    ) -> None:
        self._open_slot = open_slot
        self._once = once
        self._on_turn = on_turn
        """Called every turn of `live`."""
        self._slots: dict[int, _Open] = {}

    async def live(self, stops: list[str]) -> ExitCode:
        """Run until slot 0 has ended, and return its exit code."""
        first = self._slots[0] = _Open(self._open_slot(0))
        try:
            while first.state is not SlotState.ENDED:
                while stops:
                    self._stop_all(stops.pop())
                self._balance(first)
                self._on_turn()
                await asyncio.wait([first.task], timeout=_LOOK_S)
            return await first.task
        finally:
            self._stop_all("the agent is stopping")
            tasks = [slot.task for slot in self._slots.values()]
            await asyncio.gather(*tasks, return_exceptions=True)

    def _balance(self, first: _Open) -> None:
        for number, slot in list(self._slots.items()):
            if slot is not first and slot.task.done():
                del self._slots[number]
                slot.task.result()  # An exception of a slot is a bug and must not be lost.
        offered = 1 if self._once else first.slot.slots
        idle = sorted(number for number, slot in self._slots.items() if not slot.slot.in_run)
        if not idle and len(self._slots) < offered:
            number = next(number for number in range(offered) if number not in self._slots)
            self._slots[number] = _Open(self._open_slot(number))
        for number in idle[1:]:
            if self._slots[number].state is SlotState.OPEN:
                self._slots[number].stop("no longer needed")

    def _stop_all(self, reason: str) -> None:
        for slot in self._slots.values():
            if slot.state is not SlotState.ENDED:
                slot.stop(reason)
