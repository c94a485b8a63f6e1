"""Threads for the disk I/O of HTTP transfers: one per transfer, and a bounded number. A shell.

Reading and writing files takes no time of the daemon's loop, nor of the default executor's threads.
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
    """The highest number of transfers is running already."""


class Transfer:
    """One transfer: its calls run in its own thread, one after another."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "transfer")

    async def call(self, step: Callable[[], T]) -> T:
        """Run a step in the transfer's thread and return its result."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, step)

    def end(self, last: Callable[[], object]) -> None:
        """Schedule the last step after all pending ones, without waiting for it."""
        self._thread.submit(last)
        self._thread.shutdown(wait=False)


class Transfers:
    """The transfers of one rack. Single-threaded: the daemon's loop."""

    def __init__(self, most: int = MOST_TRANSFERS) -> None:
        self._most = most
        self._count = 0

    @contextlib.contextmanager
    def begin(self, last: Callable[[], object]) -> Iterator[Transfer]:
        """Open a transfer for the block; `last` runs in its thread at the end. Raises `TooMany`."""
        if self._count >= self._most:
            raise TooMany
        self._count += 1
        transfer = Transfer()
        try:
            yield transfer
        finally:
            self._count -= 1
            transfer.end(last)
