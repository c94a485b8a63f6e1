"""Which run directories somebody reads now: retention leaves them alone until he is done. Pure.

A reader is bounded by the time that an answer of the HTTP server may take, so nothing is kept for good. What retention has
begun to remove nobody begins to read.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator


class BeingRemoved(Exception):
    """What somebody wants to read is being removed."""


class Readings:
    """Of one rack. One thread: the daemon's loop."""

    def __init__(self) -> None:
        self._readers: Counter[str] = Counter()
        self._removed: set[str] = set()

    @contextlib.contextmanager
    def reading(self, name: str) -> Iterator[None]:
        """Keep something from being removed while the block lasts. Raises `BeingRemoved`."""
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
        """Keep readers away while the block lasts; whether there is none, so that it may be removed."""
        if name in self._readers or name in self._removed:
            yield False
            return
        self._removed.add(name)
        try:
            yield True
        finally:
            self._removed.discard(name)
