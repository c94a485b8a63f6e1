"""Read the clocks of this machine."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from etloop.contract.base.clock import NS_PER_S


def monotonic_ns() -> int:
    """Return monotonic time; only differences have a meaning."""
    return time.monotonic_ns()


def wall_ns() -> int:
    """Return wall time since 1970, to compare with other machines' clocks; use `monotonic_ns` for durations."""
    return round(datetime.now(UTC).timestamp() * NS_PER_S)


def wall_time_text() -> str:
    """Return the wall time as text, ISO 8601 in UTC with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
