"""Values of a device's counters during a run: samples by series, gaps, notes.

The controller samples them (counters/sampling.py), results evaluate them (results/device_*.py).
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
    """Before the first order to an agent: the base of increases."""
    DURING = 1
    AFTER = 2
    """Immediately after the end of the session."""
    DRAINED = 3
    """Later, to see whether the device's queues have drained. Increases are counted up to the last reading."""


@dataclass(frozen=True, slots=True)
class CounterGap:
    """A span of a run in which a device's counters were not read. Times are the controller's monotonic clock."""

    source: str
    begin_ns: int
    """Time of the last successful reading, or of the intended begin."""
    end_ns: int
    """Time of the next successful reading, or of the end of reading."""
    why: str


@dataclass(frozen=True, slots=True)
class Series:
    """One counter of one object."""

    object: CountedObject
    counter: str
    width_bits: int


@dataclass(frozen=True, slots=True, eq=False)
class CountedSource:
    """All readings of one source. Row i of the columns is one value at one moment."""

    name: str
    reader: str
    interval_ns: int
    peers: tuple[tuple[str, str], ...]
    """Pairs of a device's port and the other end of its cable: a rig's AGENT/PORT, or another device's port."""
    several_devices: bool
    """True if ports are named DEVICE/PORT; otherwise they all belong to one device, which has the name of the source."""
    is_host_side: bool
    """True if the rig's own interfaces were read: bytes sent by such a port enter the device."""
    series: tuple[Series, ...]
    row_series: NDArray[np.int32]
    row_time_ns: NDArray[np.int64]
    """Middle of the reading, controller's monotonic clock."""
    row_error_ns: NDArray[np.int64]
    row_phase: NDArray[np.int8]
    row_value: NDArray[np.uint64]
    readings: int
    """Number of batches."""
    gaps: tuple[CounterGap, ...]
    notes: tuple[str, ...]
    at_rest: bool
    """True if the last two readings of ports towards the rig were equal: no packets were in flight any more."""


@dataclass(frozen=True, slots=True, eq=False)
class CountedDevice:
    """All sources of a run to the device under test."""

    profile: str
    tolerance_per_million: int
    """Allowed difference between the device's and the agents' counts, from the device profile."""
    sources: tuple[CountedSource, ...]
