"""Ends tasks, and waits until they have ended. Decides nothing about what they do.

One cancellation is not always enough: `asyncio.wait_for` of Python 3.11 forgets one that comes in the moment in which what
it waits for is there (python/cpython issue 86296), and the broker's client waits by it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any, Final

_AGAIN_S: Final = 1


async def end(tasks: Collection[asyncio.Task[Any]], again_s: float = _AGAIN_S) -> None:
    """Cancel tasks, and those that have not ended `again_s` later once more; return when all have, in whatever way."""
    waiting = set(tasks)
    while waiting:
        for task in waiting:
            task.cancel()
        _, waiting = await asyncio.wait(waiting, timeout=again_s)
    # What they raised has been seen: nobody else asks.
    await asyncio.gather(*tasks, return_exceptions=True)


def is_ending() -> bool:
    """Whether the task that asks was cancelled, though what broke on its way out hides it."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
