"""Tracks which run directories are being read, so that retention leaves them alone meanwhile. Pure.

A read lasts at most as long as an answer of the HTTP server may take, so no directory is kept for good. A directory
that retention is removing cannot be opened for reading.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator


class BeingRemoved(Exception):
    """Retention is removing the directory to be read."""


class Readings:
    """Readers and removals of one rack. Single-threaded: the daemon's loop."""

    def __init__(self) -> None:
        self._readers: Counter[str] = Counter()
        self._removed: set[str] = set()

    @contextlib.contextmanager
    def reading(self, name: str) -> Iterator[None]:
        """Prevent the removal of `name` for the block. Raises `BeingRemoved`."""
        if name in self._removed:
            raise BeingRemoved(name)
        self._readers[name] += 1
        try:
            yield
        finally:
            self._readers[name] -= 1
            if not self._readers[name]:
                del self._readers[name]

    @contextlib.contextmanager
    def removing(self, name: str) -> Iterator[bool]:
        """Prevent reads of `name` for the block; yield whether it has no reader and may be removed."""
        if name in self._readers or name in self._removed:
            yield False
            return
        self._removed.add(name)
        try:
            yield True
        finally:
            self._removed.discard(name)
