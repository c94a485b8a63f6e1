"""Ends tasks, and waits until they have ended. Decides nothing about their work.

One cancellation is not always enough: `asyncio.wait_for` of Python 3.11 loses one that arrives at the moment when the
awaited future completes (python/cpython issue 86296), and the broker's client uses it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any, Final

_AGAIN_S: Final = 1


async def end(tasks: Collection[asyncio.Task[Any]], again_s: float = _AGAIN_S) -> None:
    """Cancel tasks, again after `again_s` those that have not ended; return when all have ended in any way."""
    waiting = set(tasks)
    while waiting:
        for task in waiting:
            task.cancel()
        _, waiting = await asyncio.wait(waiting, timeout=again_s)
    # Retrieve the exceptions, so that asyncio does not log them as never retrieved.
    await asyncio.gather(*tasks, return_exceptions=True)


def is_ending() -> bool:
    """Return whether the current task was cancelled, even if another exception during its cleanup hides it."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
