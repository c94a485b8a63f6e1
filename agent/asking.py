"""When an agent without a controller asks for one, and what it says meanwhile. Pure: time is an argument.

Nobody may answer, or somebody may refuse for a cause that can change without the agent: then it asks on with growing pauses.
"""

from __future__ import annotations

import zlib
from typing import Final

from etloop.contract.base.clock import NS_PER_MS, NS_PER_S

_HELLO_NS: Final = 500 * NS_PER_MS
_REMIND_NS: Final = 30 * NS_PER_S
"""How often an agent that nobody answers says what it waits for."""
_REFUSED_NS: Final = 60 * NS_PER_S
"""How often one that is refused says so."""
_LEAST_PAUSE_NS: Final = NS_PER_S
_MOST_PAUSE_NS: Final = 5 * NS_PER_S
"""Between two attempts of one that is refused: who is let in by a new key joins within seconds."""


class Asking:
    """The attempts of one connection's life."""

    def __init__(self, who: str, now_ns: int) -> None:
        self._who = who
        """Tells this agent from others, so that hundreds that were refused at once do not ask again at once."""
        self._next_hello_ns = now_ns
        self._next_reminder_ns = now_ns + _REMIND_NS // 6
        self._refusals = 0
        """In a row."""
        self._refused_for = ""
        self._say_again_ns = 0
        self._reconnect_ns: int | None = None

    def begin(self, now_ns: int) -> None:
        """A new connection is there to ask on."""
        self._next_hello_ns = now_ns
        self._next_reminder_ns = now_ns + _REMIND_NS
        self._reconnect_ns = None

    def welcomed(self) -> None:
        """It was let in."""
        self._refusals = 0
        self._refused_for = ""

    def unsent(self) -> None:
        """There was no connection yet to say Hello on; it is said again at the next look."""
        self._next_hello_ns = 0

    def refused(self, why: str, now_ns: int) -> bool:
        """It was refused on a connection that lasts; whether to say so now."""
        self._next_hello_ns = now_ns + self._pause_ns()
        return self._is_news(why, now_ns)

    def turned_away(self, why: str, now_ns: int) -> bool:
        """Its connection was refused, and another has to be made; whether to say so now."""
        if self._reconnect_ns is not None:
            return False
        self._reconnect_ns = now_ns + self._pause_ns()
        return self._is_news(why, now_ns)

    def connect_anew(self, now_ns: int) -> None:
        """What it was refused for may have changed on this side."""
        self._refusals = 0
        self._reconnect_ns = now_ns

    def wants_connection(self, now_ns: int) -> bool:
        """Whether another connection is to be made now."""
        if self._reconnect_ns is None or now_ns < self._reconnect_ns:
            return False
        self._reconnect_ns = None
        self._next_hello_ns = now_ns
        return True

    def says_hello(self, now_ns: int) -> bool:
        """Whether Hello is to be said now."""
        if now_ns < self._next_hello_ns:
            return False
        self._next_hello_ns = now_ns + _HELLO_NS
        return True

    def reminds(self, now_ns: int) -> bool:
        """Whether people should be told now that nobody answers."""
        if now_ns < self._next_reminder_ns:
            return False
        self._next_reminder_ns = now_ns + _REMIND_NS
        return True

    def _is_news(self, why: str, now_ns: int) -> bool:
        self._next_reminder_ns = now_ns + _REFUSED_NS
        if why == self._refused_for and now_ns < self._say_again_ns:
            return False
        self._refused_for, self._say_again_ns = why, now_ns + _REFUSED_NS
        return True

    def _pause_ns(self) -> int:
        pause_ns = min(_LEAST_PAUSE_NS << min(self._refusals, 8), _MOST_PAUSE_NS)
        spread = zlib.crc32(f"{self._who} {self._refusals}".encode()) % 256
        self._refusals += 1
        return pause_ns + pause_ns * spread // 1024
