"""What was read of a device's counters during a run, as values: samples by series, gaps, notes. The controller samples
(counters/sampling.py), results work with it (results/device_*.py).
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.counters import CountedObject

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class SamplePhase(IntEnum):
    """When a reading was made."""

    BEFORE = 0
    """Before any agent was asked for anything: what increases are counted from."""
    DURING = 1
    AFTER = 2
    """At once after the session's end."""
    DRAINED = 3
    """Later, to see whether the device had come to rest. The last reading is what increases are counted to."""


@dataclass(frozen=True, slots=True)
class CounterGap:
    """A span of a run in which a device's counters were not read. Times are the controller's monotonic clock."""

    source: str
    begin_ns: int
    """The last reading that succeeded, or when reading was to begin."""
    end_ns: int
    """The next one that did, or when reading ended."""
    why: str


@dataclass(frozen=True, slots=True)
class Series:
    """One counter of one object."""

    object: CountedObject
    counter: str
    width_bits: int


@dataclass(frozen=True, slots=True, eq=False)
class CountedSource:
    """All that one source told. Row i of the columns is one value at one moment."""

    name: str
    reader: str
    interval_ns: int
    peers: tuple[tuple[str, str], ...]
    """Device's port, and what is at the other end of its cable: a rig's AGENT/PORT, or another device's port."""
    several_devices: bool
    """Whether ports are named DEVICE/PORT; otherwise they all belong to one device, which is called as the source."""
    is_host_side: bool
    """Whether the rig's own interfaces were read: what such a port sends goes to the device."""
    series: tuple[Series, ...]
    row_series: NDArray[np.int32]
    row_time_ns: NDArray[np.int64]
    """Middle of the reading, controller's monotonic clock."""
    row_error_ns: NDArray[np.int64]
    row_phase: NDArray[np.int8]
    row_value: NDArray[np.uint64]
    readings: int
    """How many batches."""
    gaps: tuple[CounterGap, ...]
    notes: tuple[str, ...]
    at_rest: bool
    """Whether the last two readings of ports that lead to the rig were the same: nothing was under way any more."""


@dataclass(frozen=True, slots=True, eq=False)
class CountedDevice:
    """All sources of a run to the device under test."""

    profile: str
    tolerance_per_million: int
    """Of the device's counts against the agents', of the profile."""
    sources: tuple[CountedSource, ...]
