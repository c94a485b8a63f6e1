"""The one notion of time that pure code knows: integer nanoseconds of a monotonic clock, handed in as an argument.

Wall time appears only in file names and reports. Who reads a clock is an I/O shell; who decides with it is not.
"""

from __future__ import annotations

from typing import Final

NS_PER_US: Final = 1_000
NS_PER_MS: Final = 1_000_000
NS_PER_S: Final = 1_000_000_000


def seconds_text(duration_ns: int) -> str:
    """A duration for a sentence, in seconds with one decimal ("3.0 s"), rounded down to the tenth."""
    tenths = duration_ns * 10 // NS_PER_S
    return f"{tenths // 10}.{tenths % 10} s"
