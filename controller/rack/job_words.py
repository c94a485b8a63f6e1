"""Ports and duration of a job in words, for lists of jobs. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from etloop.contract.base.clock import NS_PER_S
from etloop.contract.base.units import approximate_duration

LIST_HEADS: Final = ("job", "state", "code", "scenario", "ports", "duration", "submitted", "reason")
_PORTS_SHOWN: Final = 2


def port_words(ports: Sequence[str]) -> str:
    """Return how many ports a job holds or held and the first of them, as "4: a/p0, b/p0, ..."; "" without ports."""
    if not ports:
        return ""
    more = ", ..." if len(ports) > _PORTS_SHOWN else ""
    return f"{len(ports)}: {', '.join(ports[:_PORTS_SHOWN])}{more}"


def duration_words(started_at: str, ended_at: str) -> str:
    """Return the time from the start of a job to its end; "" while it waits or runs."""
    time_ns = duration_ns(started_at, ended_at)
    return approximate_duration(time_ns) if time_ns > 0 else ""


def duration_ns(started_at: str, ended_at: str) -> int:
    """Return the time between two times in ISO 8601; 0 if one is missing or invalid."""
    try:
        duration = datetime.fromisoformat(ended_at) - datetime.fromisoformat(started_at)
    except (ValueError, TypeError):
        return 0
    return int(duration.total_seconds() * NS_PER_S)
