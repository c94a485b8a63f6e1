"""Read the clocks of this machine."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from etloop.contract.base.clock import NS_PER_S


def monotonic_ns() -> int:
    """Monotonic time; its zero means nothing."""
    return time.monotonic_ns()


def wall_ns() -> int:
    """Wall time since 1970, for others' clocks; durations are `monotonic_ns`'s."""
    return round(datetime.now(UTC).timestamp() * NS_PER_S)


def wall_time_text() -> str:
    """Wall time for people, ISO 8601 in UTC with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
