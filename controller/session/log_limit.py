"""Bound how many lines peers can cause in a log: a few of each kind per window, then a count. Pure: time is an argument."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from etloop.contract.base.clock import NS_PER_S

MOST_LINES: Final = 8
"""Lines of one kind per window: enough to show every slot of an agent and a second attempt of each."""
WINDOW_NS: Final = 60 * NS_PER_S
MOST_KINDS: Final = 512
"""Kinds that have a window of their own: enough for a rack of 256 agents. All further kinds share one."""
_OTHERS: Final = "others"


@dataclass(slots=True)
class _Window:
    since_ns: int
    written: int = 0
    left_out: int = 0


class LogLimit:
    """Count recent lines of each kind. A kind names the event and its subject, such as "joined a"."""

    def __init__(self) -> None:
        self._windows: dict[str, _Window] = {}

    def takes(self, kind: str, now_ns: int) -> bool:
        """Return whether to write one more line of this kind; count it as left out otherwise."""
        if kind not in self._windows and len(self._windows) >= MOST_KINDS:
            kind = _OTHERS
        window = self._windows.setdefault(kind, _Window(now_ns))
        if window.written < MOST_LINES:
            window.written += 1
            return True
        window.left_out += 1
        return False

    def left_out(self, now_ns: int) -> tuple[tuple[str, int], ...]:
        """Return (kind, lines left out) for each kind whose window has passed, and start its window anew."""
        passed_kinds = [
            kind for kind, window in self._windows.items() if now_ns - window.since_ns >= WINDOW_NS
        ]
        left_out_of_kind = [(kind, self._windows.pop(kind).left_out) for kind in passed_kinds]
        return tuple((kind, count) for kind, count in left_out_of_kind if count)
