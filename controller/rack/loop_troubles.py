"""Errors of the daemon's event loop outside of any task, as a bounded number of lines in the rack's log.

asyncio writes a traceback for each failure, which fills a disk when descriptors run out: it tries 128 times a second.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from etloop.contract.base.clock import NS_PER_S
from etloop.controller.rack.log import RackLog
from etloop.runtime.clock import monotonic_ns

_SILENT_NS: Final = 10 * NS_PER_S
_MOST_KINDS: Final = 32
"""Kinds of error that are logged separately; all further ones count as one kind."""
_LONGEST: Final = 500


class LoopTroubles:
    """Logs each kind of error at most once in ten seconds, with the count of those left out since."""

    def __init__(self, log: RackLog) -> None:
        self._log = log
        self._written_ns: dict[str, int] = {}
        self._left_out: dict[str, int] = {}

    def install(self) -> None:
        """Become the exception handler of the running loop."""
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: self.hear(context, monotonic_ns())
        )

    def hear(self, context: dict[str, Any], now_ns: int) -> None:
        """Log an error of the loop, unless one of its kind was logged recently. See `asyncio.loop.call_exception_handler`."""
        error = context.get("exception")
        text = f"{context.get('message', 'no message')}: {error!r}"[:_LONGEST]
        is_known = text in self._written_ns or len(self._written_ns) < _MOST_KINDS
        kind = text if is_known else "others"
        if now_ns - self._written_ns.get(kind, now_ns - _SILENT_NS) < _SILENT_NS:
            self._left_out[kind] = self._left_out.get(kind, 0) + 1
            return
        self._written_ns[kind] = now_ns
        self._log.rack("loop trouble", what=text, left_out=self._left_out.pop(kind, 0))
