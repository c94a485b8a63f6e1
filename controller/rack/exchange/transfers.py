"""The disk's side of what goes in or out over HTTP: a thread of its own for each transfer, and so many at most. A shell.

Reading and writing files never takes the time of the daemon's loop, nor the threads that others wait for.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

T = TypeVar("T")

MOST_TRANSFERS: Final = 8


class TooMany(Exception):
    """As many transfers are under way as may be."""


class Transfer:
    """One transfer: what is called goes through its thread, one call after another."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "transfer")

    async def call(self, step: Callable[[], T]) -> T:
        """Do a step of it in its thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, step)

    def end(self, last: Callable[[], object]) -> None:
        """Have the last step done after whatever is still being done; nobody waits for it."""
        self._thread.submit(last)
        self._thread.shutdown(wait=False)


class Transfers:
    """Those of one rack. One thread: the daemon's loop."""

    def __init__(self, most: int = MOST_TRANSFERS) -> None:
        self._most = most
        self._count = 0

    @contextlib.contextmanager
    def one(self, last: Callable[[], object]) -> Iterator[Transfer]:
        """A transfer while the block lasts, which ends with `last` in its thread. Raises `TooMany`."""
        if self._count >= self._most:
            raise TooMany
        self._count += 1
        transfer = Transfer()
        try:
            yield transfer
        finally:
            self._count -= 1
            transfer.end(last)
