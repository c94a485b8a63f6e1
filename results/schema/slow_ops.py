"""What made a job slow by the trace's own names, as summary.json and the table have it."""

from __future__ import annotations

from typing import Final

from etloop.contract.base.late_dataclass import dataclass

MOST_SLOW_NAMES: Final = 16
"""Names that summary.json has; all are in collectives.parquet, column name."""


@dataclass(frozen=True, slots=True)
class SlowName:
    """The collectives, and sends with their receives, of one name and kind that crossed the device and completed."""

    name: str
    """As the trace has it, such as "mb0.layer0.attention.sum"."""
    kind: str
    count: int
    """Over all iterations."""
    joined_avg_ns: int
    """From the last member's issue to the last one's completion."""
    least_avg_ns: int
    """What the busiest port needs for their bytes at its line rate."""
    beyond_ns: int
    """Joined less least, all of them added up, where that is above 0: lost to the network, and to the latency of steps."""
    worst_iteration: int
    """In which one of them lost most."""
    worst_beyond_ns: int


@dataclass(frozen=True, slots=True)
class SlowNames:
    """Names by what they lost."""

    total: int
    """Different names and kinds."""
    first: tuple[SlowName, ...]
    """Of those the `MOST_SLOW_NAMES` that lost most, the gravest first."""
