"""The shape of the device's own counters in summary.json (`dut`). `results/device/summary.py` fills it."""

from __future__ import annotations

from enum import StrEnum

from etloop.contract.base.late_dataclass import dataclass


class Direction(StrEnum):
    """Direction of frames, seen from the agents."""

    TO_DEVICE = "to_device"
    FROM_DEVICE = "from_device"


class Agreement(StrEnum):
    """Whether two counts of the same frames agree."""

    EXACT = "exact"
    WITHIN = "within"
    """The counts differ by at most the tolerance."""
    BEYOND = "beyond"
    UNKNOWN = "unknown"
    """One of the two was not counted; `why` names it."""


@dataclass(frozen=True, slots=True)
class ReconciledPort:
    """One direction of one cable: the agent's count and the device's count."""

    port: str
    """Port of the rig, AGENT/PORT."""
    source: str
    device_port: str
    direction: Direction
    agent_frames: int | None
    """Frames sent onto the wire, or received from it: read by the agent plus lost in its own receive buffers."""
    device_frames: int | None
    difference_frames: int | None
    """Device's count minus agent's."""
    agent_bytes: int | None
    """Counted as frames with check sequence, if every packet of the port has the same headers; else None."""
    device_bytes: int | None
    difference_bytes: int | None
    difference_share: float | None
    """The larger of both differences divided by the agent's count, without sign."""
    agreement: Agreement
    why: str
    """The missing count, or other traffic that the difference may contain; "" otherwise."""


@dataclass(frozen=True, slots=True)
class DeviceGap:
    """A span in which a device's counters were not read, in nanoseconds since the start of the run."""

    source: str
    begin_ns: int
    end_ns: int
    why: str


@dataclass(frozen=True, slots=True)
class DeviceSource:
    """One source of the device's counters."""

    name: str
    reader: str
    interval_ns: int
    readings: int
    series: int
    whole: bool
    """Read before and after the run, and never reset: its increases are those of the run."""
    at_rest: bool
    """Whether the last two readings were the same."""
    is_host_side: bool
    """Whether the rig's own interfaces were read instead of the device's ports."""
    error_ns: int
    """Half the longest reading: the uncertainty of a value's time."""
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeviceSummary:
    """Everything that the device itself counted in a run."""

    profile: str
    tolerance_per_million: int
    sources: tuple[DeviceSource, ...]
    gaps: tuple[DeviceGap, ...]
    """The first `MOST_GAPS` by time."""
    gaps_total: int
    counters: dict[str, int]
    """Sums over all ports and queues of the counters of congestion and loss; only those that the device has."""
    reconciliation: tuple[ReconciledPort, ...]
    notes: tuple[str, ...] = ()
