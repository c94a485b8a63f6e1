"""Bound what others can make a log say: a few lines of a kind, then how many more there were. Pure: time is an argument."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from etloop.contract.base.clock import NS_PER_S

MOST_LINES: Final = 8
"""Of one kind in a window: enough that every slot of an agent and a second attempt are seen."""
WINDOW_NS: Final = 60 * NS_PER_S
MOST_KINDS: Final = 512
"""Followed one by one: what a rack of 256 agents needs. Those beyond share one window."""
_OTHERS: Final = "others"


@dataclass(slots=True)
class _Window:
    since_ns: int
    written: int = 0
    left_out: int = 0


class LogLimit:
    """How often each kind of line was written lately. A kind says what happened and to whom, such as "joined a"."""

    def __init__(self) -> None:
        self._windows: dict[str, _Window] = {}

    def takes(self, kind: str, now_ns: int) -> bool:
        """Whether one more line of that kind is to be written; one that is not is counted."""
        if kind not in self._windows and len(self._windows) >= MOST_KINDS:
            kind = _OTHERS
        window = self._windows.setdefault(kind, _Window(now_ns))
        if window.written < MOST_LINES:
            window.written += 1
            return True
        window.left_out += 1
        return False

    def left_out(self, now_ns: int) -> tuple[tuple[str, int], ...]:
        """Kinds whose window has passed, with how many lines were not written; they begin anew."""
        passed = [kind for kind, window in self._windows.items() if now_ns - window.since_ns >= WINDOW_NS]
        ended = [(kind, self._windows.pop(kind).left_out) for kind in passed]
        return tuple((kind, count) for kind, count in ended if count)


def left_out_text(kind: str, count: int) -> str:
    """What a log says of lines that it left out."""
    return f"{count} more lines left out in {WINDOW_NS // NS_PER_S} s: {kind}"
