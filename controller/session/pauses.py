"""The pauses of the processes that carry a session, as a cause of failures after them. Pure."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from etloop.contract.base.clock import NS_PER_S, seconds_text

_RECENT_NS: Final = 10 * NS_PER_S
"""How long after a pause a failure may follow from it."""
_MOST: Final = 4


class _Pause(NamedTuple):
    paused: str
    pause_ns: int
    end_ns: int


class Pauses:
    """The last pauses."""

    def __init__(self) -> None:
        self._last: deque[_Pause] = deque(maxlen=_MOST)

    def note(self, paused: str, pause_ns: int, now_ns: int) -> None:
        """Note that `paused` did not run for `pause_ns` until now."""
        self._last.append(_Pause(paused, pause_ns, now_ns))

    def text(self, now_ns: int) -> str:
        """Return the recent pauses in words; "" if there were none."""
        return "; ".join(
            f"{pause.paused} did not run for {seconds_text(pause.pause_ns)} until {seconds_text(now_ns - pause.end_ns)} before"
            for pause in self._last
            if now_ns - pause.end_ns <= _RECENT_NS
        )
