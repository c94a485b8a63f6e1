"""Congestion control of a run's queue pairs: settings that travel in an assignment.

Which algorithms there are, with their parameters, is known to traffic/native/cc/*.cpp alone (docs/congestion_control.md);
what a scenario may write for them is decided in `controller.scenario_congestion`.
"""

from __future__ import annotations

from dataclasses import field
from typing import Final

import numpy as np
from etloop.contract.base.clock import NS_PER_MS
from etloop.contract.base.late_dataclass import dataclass
from numpy.typing import NDArray

MOST_PLUGIN_BYTES = 16 << 20
"""Largest plugin, as source or library, that an assignment carries."""
DEFAULT_CATCH_UP_NS: Final = NS_PER_MS
"""Little, for what is made up for leaves at the speed of the port, which no network card's pacing does."""


@dataclass(frozen=True, slots=True)
class CongestionParameter:
    """One parameter of an algorithm that differs from its preset: nanoseconds, bytes, bits per second or a number."""

    name: str
    value: float


@dataclass(frozen=True, slots=True, eq=False)
class CongestionSettings:
    """What controls the rate of queue pairs that send data; acknowledgements, grants and notifications are not limited."""

    algorithm: str = "none"
    profile: str = ""
    """"": the algorithm's first."""
    parameters: tuple[CongestionParameter, ...] = ()
    plugin_name: str = ""
    """File name of a plugin, ".cpp" or ".so"; "": the algorithm is built in."""
    plugin: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, np.uint8))
    """Its content."""
    burst_bytes: int = 64 << 10
    """Most that a queue pair below the line rate sends back to back; at least one packet."""
    catch_up_ns: int = DEFAULT_CATCH_UP_NS
    """So much lateness of its host a queue pair below the line rate makes up for, at the speed of the port."""
    series_interval_ns: int = 0
    """Rates and windows are written down so often; 0: not at all."""
    series_queue_pairs: int = 0
    """Of so many queue pairs of every port; 0: of all."""
