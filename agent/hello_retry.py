"""Decides when an agent without a controller sends Hello again, and which lines it logs. Pure: time is an argument.

The controller may not answer, or may refuse for a cause that can change without the agent. The agent then retries with
growing pauses.
"""

from __future__ import annotations

import zlib
from typing import Final

from etloop.contract.base.clock import NS_PER_MS, NS_PER_S

_HELLO_NS: Final = 500 * NS_PER_MS
_REMIND_NS: Final = 30 * NS_PER_S
"""Interval at which an agent without an answer logs what it waits for."""
_REFUSED_NS: Final = 60 * NS_PER_S
"""Interval at which a refused agent logs the refusal."""
_LEAST_PAUSE_NS: Final = NS_PER_S
_MOST_PAUSE_NS: Final = 5 * NS_PER_S
"""Longest pause between two attempts of a refused agent, so that it joins within seconds once its key is allowed."""


class Asking:
    """Schedule of an agent's attempts to join."""

    def __init__(self, who: str, now_ns: int) -> None:
        self._who = who
        """Seed of the jitter, so that hundreds of agents refused at once do not retry at once."""
        self._next_hello_ns = now_ns
        self._next_reminder_ns = now_ns + _REMIND_NS // 6
        self._refusals = 0
        """Consecutive refusals."""
        self._refused_for = ""
        self._say_again_ns = 0
        self._reconnect_ns: int | None = None

    def begin(self, now_ns: int) -> None:
        """Restart the schedule on a new connection: Hello is sent at once."""
        self._next_hello_ns = now_ns
        self._next_reminder_ns = now_ns + _REMIND_NS
        self._reconnect_ns = None

    def note_welcome(self) -> None:
        """Reset the back-off after the controller accepted the agent."""
        self._refusals = 0
        self._refused_for = ""

    def unsent(self) -> None:
        """Schedule Hello for the next call, since it could not be sent without a connection."""
        self._next_hello_ns = 0

    def note_refusal(self, why: str, now_ns: int) -> bool:
        """Schedule the next Hello on the same connection after a refusal; return whether to log the refusal now."""
        self._next_hello_ns = now_ns + self._pause_ns()
        return self._is_news(why, now_ns)

    def turned_away(self, why: str, now_ns: int) -> bool:
        """Schedule a new connection after this one was refused; return whether to log the refusal now."""
        if self._reconnect_ns is not None:
            return False
        self._reconnect_ns = now_ns + self._pause_ns()
        return self._is_news(why, now_ns)

    def connect_anew(self, now_ns: int) -> None:
        """Schedule a new connection now: the cause of the refusal may have been removed on this side."""
        self._refusals = 0
        self._reconnect_ns = now_ns

    def wants_connection(self, now_ns: int) -> bool:
        """Return whether to open a new connection now; True is returned once per scheduled connection."""
        if self._reconnect_ns is None or now_ns < self._reconnect_ns:
            return False
        self._reconnect_ns = None
        self._next_hello_ns = now_ns
        return True

    def says_hello(self, now_ns: int) -> bool:
        """Return whether to send Hello now; if so, schedule the next one."""
        if now_ns < self._next_hello_ns:
            return False
        self._next_hello_ns = now_ns + _HELLO_NS
        return True

    def reminds(self, now_ns: int) -> bool:
        """Return whether to log now that the controller does not answer; if so, schedule the next reminder."""
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
