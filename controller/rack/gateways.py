"""The ways to a rack from outside: each lives in a task of its own and outlives its own failures. A shell: tasks."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final, Protocol

from etloop.runtime.task_shutdown import end, is_ending

if TYPE_CHECKING:
    from etloop.controller.rack.log import RackLog

_PAUSE_S: Final = 5.0
"""Between a failure of a gateway and its next attempt."""


class Gateway(Protocol):
    """A way to the rack, such as a broker."""

    async def live(self) -> None:
        """Serves until it is cancelled."""

    async def farewell(self) -> None:
        """Says that the controller ends; takes a moment at most."""


@contextlib.asynccontextmanager
async def serving(gateways: tuple[Gateway, ...], log: RackLog) -> AsyncIterator[None]:
    """Serve gateways while the block lasts, and let each say that the controller ends."""
    tasks = [asyncio.create_task(_served(gateway, log)) for gateway in gateways]
    try:
        yield
    finally:
        await asyncio.gather(*(gateway.farewell() for gateway in gateways), return_exceptions=True)
        await end(tasks)


async def _served(gateway: Gateway, log: RackLog) -> None:
    while True:
        try:
            await gateway.live()
        except Exception as error:  # noqa: BLE001 - a mistake of ours on one gateway must not end runs and agents
            why = f"{type(error).__name__}: {error}"
            log.rack("a gateway failed", gateway=type(gateway).__name__, why=why)
        if is_ending():
            return  # It failed because it was told to end.
        await asyncio.sleep(_PAUSE_S)
