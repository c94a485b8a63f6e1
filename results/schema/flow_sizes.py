"""Completion of single transfers by their size, as summary.json and the table have it."""

from __future__ import annotations

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.empty_network import LatencySource


@dataclass(frozen=True, slots=True)
class FlowSizeRow:
    """Transfers through the device under test whose sizes lie in one range."""

    above_bytes: int
    """Sizes of the row are above this."""
    upto_bytes: int
    """And at most this."""
    planned: int
    completed: int
    fct_p50_ns: int | None
    """Flow completion time: from when the send was due to the receive's completion."""
    fct_p99_ns: int | None
    alone_p50_ns: int | None
    """Completion time of each flow alone in an empty network, median; None where it is not known."""
    slowdown_p50: float | None
    """Completion time by that; None where it is not known."""
    slowdown_p95: float | None
    slowdown_p99: float | None


@dataclass(frozen=True, slots=True)
class FlowSizes:
    """Transfers of a run of sends and receives alone."""

    rows: tuple[FlowSizeRow, ...]
    """By size, then one over all."""
    latency: LatencySource
    """Where the latency of the empty network comes from."""
    why_no_slowdown: str
    """"" where the slowdown is known."""
