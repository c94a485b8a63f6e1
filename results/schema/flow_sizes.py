"""Completion of single transfers by their size, as summary.json and the table show it."""

from __future__ import annotations

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.empty_network import LatencySource


@dataclass(frozen=True, slots=True)
class FlowSizeRow:
    """Transfers through the device under test whose sizes lie in one range."""

    above_bytes: int
    """Exclusive lower bound of the sizes in the row."""
    upto_bytes: int
    """Inclusive upper bound."""
    planned: int
    completed: int
    fct_p50_ns: int | None
    """Flow completion time: from the time at which the send was to start until the receive completed."""
    fct_p99_ns: int | None
    alone_p50_ns: int | None
    """Median completion time of each flow alone in an empty network; None if it is not known."""
    slowdown_p50: float | None
    """Completion time divided by the time alone; None if that is not known."""
    slowdown_p95: float | None
    slowdown_p99: float | None


@dataclass(frozen=True, slots=True)
class FlowSizes:
    """Transfers of a run that has only sends and receives."""

    rows: tuple[FlowSizeRow, ...]
    """By size, followed by one row over all sizes."""
    latency: LatencySource
    """Source of the latency of the empty network."""
    why_no_slowdown: str
    """Why there is no slowdown; "" if it is known."""
