"""Congestion control of a run's queue pairs: settings that travel in an assignment.

Only traffic/native/cc/*.cpp knows the algorithms and their parameters (docs/congestion_control.md);
`controller.inputs.scenario.congestion` decides what a scenario may write for them.
"""

from __future__ import annotations

from dataclasses import field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from etloop.contract.base.clock import NS_PER_MS
from etloop.contract.base.late_dataclass import dataclass

MOST_PLUGIN_BYTES = 16 << 20
"""Largest plugin, as source or library, that an assignment carries."""
DEFAULT_CATCH_UP_NS: Final = NS_PER_MS
"""Short, because the bytes made up for leave at the rate of the port, which no network card's pacing allows."""


@dataclass(frozen=True, slots=True)
class CongestionParameter:
    """One parameter of an algorithm that differs from its preset: nanoseconds, bytes, bits per second or a number."""

    name: str
    value: float


@dataclass(frozen=True, slots=True, eq=False)
class CongestionSettings:
    """Rate control of queue pairs that send data; ACKs, grants and notifications are not limited."""

    algorithm: str = "none"
    profile: str = ""
    """Preset of the parameters; "": the algorithm's first."""
    parameters: tuple[CongestionParameter, ...] = ()
    plugin_name: str = ""
    """File name of a plugin, ".cpp" or ".so"; "": the algorithm is built in."""
    plugin: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, np.uint8))
    """Content of the plugin's file."""
    burst_bytes: int = 64 << 10
    """Largest burst that a queue pair below the line rate sends back to back; at least one packet."""
    catch_up_ns: int = DEFAULT_CATCH_UP_NS
    """Longest host delay that a queue pair below the line rate makes up for, by sending at the rate of the port."""
    series_interval_ns: int = 0
    """Interval at which rates and windows are recorded; 0: never."""
    series_queue_pairs: int = 0
    """Number of queue pairs per port that are recorded; 0: all."""
