"""Measures for how long a listener did not run, so that its own pause is not counted as silence of its peers. Pure.

A process that was stopped, starved of processor time or frozen with its machine hears nothing meanwhile. Its peers may
have sent all the time, and their messages wait in its sockets. `turn` is called once a turn of the listener's loop.
"""

from __future__ import annotations

from typing import Final

from etloop.contract.base.clock import NS_PER_MS, NS_PER_S

LONGEST_TURN_NS: Final = 250 * NS_PER_MS
"""Longest turn of a loop that runs: an idle agent waits 200 ms for a message."""
PAUSE_NS: Final = NS_PER_S
"""Shortest time without a turn that is reported as a pause."""


class ListeningClock:
    """The time during which a listener did not run."""

    def __init__(self, now_ns: int) -> None:
        self._turned_ns = now_ns

    def turn(self, now_ns: int) -> int:
        """Note a turn of the loop; return for how many ns the listener did not run since the last one."""
        missed_ns = max(0, now_ns - self._turned_ns - LONGEST_TURN_NS)
        self._turned_ns = max(self._turned_ns, now_ns)
        return missed_ns
