"""The shape of what a run tells of the device's own counters: `dut` of summary.json. `device_summary` fills it."""

from __future__ import annotations

from enum import StrEnum

from etloop.contract.base.late_dataclass import dataclass


class Direction(StrEnum):
    """Which way frames went, seen from the agents."""

    TO_DEVICE = "to_device"
    FROM_DEVICE = "from_device"


class Agreement(StrEnum):
    """Whether two counts of the same frames agree."""

    EXACT = "exact"
    WITHIN = "within"
    """They differ by no more than the tolerance."""
    BEYOND = "beyond"
    UNKNOWN = "unknown"
    """One of the two was not counted; `why` says which."""


@dataclass(frozen=True, slots=True)
class ReconciledPort:
    """One direction of one cable: what the agent counted and what the device did."""

    port: str
    """Of the rig, AGENT/PORT."""
    source: str
    device_port: str
    direction: Direction
    agent_frames: int | None
    """Sent onto the wire, or come off it: read by the agent and lost in its own receive buffers."""
    device_frames: int | None
    difference_frames: int | None
    """Device's less agent's."""
    agent_bytes: int | None
    """As frames with check sequence, where every packet of the port has the same headers."""
    device_bytes: int | None
    difference_bytes: int | None
    difference_share: float | None
    """The greater of both differences by the agent's count, without sign."""
    agreement: Agreement
    why: str
    """What is missing, or what else may be in the difference; "" otherwise."""


@dataclass(frozen=True, slots=True)
class DeviceGap:
    """A span in which a device's counters were not read, in nanoseconds of the run."""

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
    """Read before the run and after it, and never set back: increases are those of the run."""
    at_rest: bool
    """The last two readings were the same."""
    is_host_side: bool
    """The rig's own interfaces were read, not the device's ports."""
    error_ns: int
    """Half the longest reading: how well the moment of a value is known."""
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeviceSummary:
    """All of a run that the device itself counted."""

    profile: str
    tolerance_per_million: int
    sources: tuple[DeviceSource, ...]
    gaps: tuple[DeviceGap, ...]
    """The first `MOST_GAPS` in the order of time."""
    gaps_total: int
    counters: dict[str, int]
    """Sums over all ports and queues of what tells of congestion and loss; only what the device counts."""
    reconciliation: tuple[ReconciledPort, ...]
    notes: tuple[str, ...] = ()
