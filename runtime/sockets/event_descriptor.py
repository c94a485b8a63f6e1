"""An event descriptor (eventfd(2)) in the event loop: other threads add to it, and a call in the loop follows."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable


class EventDescriptor:
    """A descriptor of the running event loop, whose `on_event` is called after additions to its counter."""

    def __init__(self, on_event: Callable[[], None]) -> None:
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._on_event = on_event
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self.descriptor, self._on_readable)

    def close(self) -> None:
        """Close the descriptor; no thread may add to it any more."""
        self._loop.remove_reader(self.descriptor)
        os.close(self.descriptor)

    def _on_readable(self) -> None:
        os.eventfd_read(self.descriptor)
        self._on_event()
