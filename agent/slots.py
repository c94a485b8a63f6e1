"""How many connections an agent keeps: one per run it takes part in, and one idle, as far as the controller offers slots.

Starts and ends slots; what a slot does is service.py's. Slot 0 is the agent itself: when it ends, all end.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from etloop.contract.base.errors import ExitCode

_LOOK_S: Final = 0.05


class Slot(Protocol):
    """A connection with its life and engine."""

    @property
    def slots(self) -> int:
        """How many the controller offers, as told on this connection."""

    @property
    def in_run(self) -> bool:
        """Whether it is taken."""

    async def live(self, stops: list[str]) -> ExitCode:
        """Lives until it ends by itself or a reason to end appears in `stops`."""

    async def end(self) -> None:
        """Closes what is open."""


class Slots:
    """The slots of one agent process. `once`: one run, so one slot."""

    def __init__(self, open_slot: Callable[[int], Slot], once: bool) -> None:
        self._open_slot = open_slot
        self._once = once
        self._slots: dict[int, Slot] = {}
        self._tasks: dict[int, asyncio.Task[ExitCode]] = {}
        self._stops: dict[int, list[str]] = {}

    async def live(self, stops: list[str]) -> ExitCode:
        """Lives until slot 0 has ended, and returns its exit code."""
        self._open(0)
        first = self._tasks[0]
        try:
            while not first.done():
                while stops:
                    reason = stops.pop()
                    for reasons in self._stops.values():
                        reasons.append(reason)
                self._balance()
                await asyncio.wait([first], timeout=_LOOK_S)
            return first.result()
        finally:
            await self._end()

    def _open(self, number: int) -> None:
        slot = self._open_slot(number)
        self._slots[number] = slot
        self._stops[number] = []
        self._tasks[number] = asyncio.create_task(self._live(number, slot))

    async def _live(self, number: int, slot: Slot) -> ExitCode:
        try:
            return await slot.live(self._stops[number])
        finally:
            await slot.end()

    def _balance(self) -> None:
        for number in [number for number, task in self._tasks.items() if number and task.done()]:
            task = self._tasks.pop(number)
            del self._slots[number], self._stops[number]
            task.result()  # A slot that broke is a bug of ours, and must not go unseen.
        offered = 1 if self._once else self._slots[0].slots
        idle = sorted(number for number, slot in self._slots.items() if not slot.in_run)
        if not idle and len(self._slots) < offered:
            self._open(next(number for number in range(offered) if number not in self._slots))
        for number in idle[1:]:
            if not self._stops[number]:
                self._stops[number].append("not needed any more")

    async def _end(self) -> None:
        for reasons in self._stops.values():
            reasons.append("the agent ends")
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
