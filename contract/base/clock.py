"""Defines time for pure code: integer nanoseconds of a monotonic clock, passed as an argument.

Wall time appears only in file names and reports. Only I/O shells read a clock; the code that decides does not.
"""

from __future__ import annotations

from typing import Final

NS_PER_US: Final = 1_000
NS_PER_MS: Final = 1_000_000
NS_PER_S: Final = 1_000_000_000


def seconds_text(duration_ns: int) -> str:
    """Return a duration in seconds with one decimal ("3.0 s"), rounded down to the tenth."""
    tenths = duration_ns * 10 // NS_PER_S
    return f"{tenths // 10}.{tenths % 10} s"
