"""The ops that slowed a job down, by their names in the trace, as summary.json and the table show them."""

from __future__ import annotations

from typing import Final

from etloop.contract.base.late_dataclass import dataclass

MOST_SLOW_NAMES: Final = 16
"""Most names in summary.json; collectives.parquet has all of them, in the column `name`."""


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
    """Time that the busiest port needs for their bytes at its line rate."""
    beyond_ns: int
    """Sum of max(joined - least, 0): time lost to the network and to the latency of steps."""
    worst_iteration: int
    """The iteration in which one of them lost most."""
    worst_beyond_ns: int


@dataclass(frozen=True, slots=True)
class SlowNames:
    """Names ordered by the time they lost."""

    total: int
    """Number of different names and kinds."""
    first: tuple[SlowName, ...]
    """The `MOST_SLOW_NAMES` that lost most, the worst first."""
