"""Gateways to a rack: each runs in a task of its own and is restarted after a failure. A shell: tasks."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final, Protocol

from etloop.runtime.task_shutdown import end, is_ending

if TYPE_CHECKING:
    from etloop.controller.rack.log import RackLog

_PAUSE_S: Final = 5.0
"""Pause between a failure of a gateway and its next attempt."""


class Gateway(Protocol):
    """A way for clients to reach the rack, such as a broker."""

    async def serve(self) -> None:
        """Serve until cancelled."""

    async def farewell(self) -> None:
        """Announce that the controller ends; takes a moment at most."""


@contextlib.asynccontextmanager
async def serving(gateways: tuple[Gateway, ...], log: RackLog) -> AsyncIterator[None]:
    """Serve gateways for the block, then let each announce that the controller ends."""
    tasks = [asyncio.create_task(_serve(gateway, log)) for gateway in gateways]
    try:
        yield
    finally:
        await asyncio.gather(*(gateway.farewell() for gateway in gateways), return_exceptions=True)
        await end(tasks)


async def _serve(gateway: Gateway, log: RackLog) -> None:
    while True:
        try:
            await gateway.serve()
        except Exception as error:  # noqa: BLE001 - a bug in one gateway must not end runs and agents
            why = f"{type(error).__name__}: {error}"
            log.rack("a gateway failed", gateway=type(gateway).__name__, why=why)
        if is_ending():
            return  # It failed because it is being cancelled.
        await asyncio.sleep(_PAUSE_S)
