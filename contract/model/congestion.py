"""Congestion control of a run's queue pairs: settings that travel in an assignment.

Only traffic/native/cc/*.cpp knows the algorithms and their parameters (docs/congestion_control.md);
`controller.inputs.scenario.congestion` decides what a scenario may write for them.
"""

from __future__ import annotations

from dataclasses import field

import numpy as np
from numpy.typing import NDArray

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.setting import setting
from etloop.contract.base.units import (
    NS_PER_S,
    format_bytes,
    format_duration,
    format_rate,
    parse_bytes,
    parse_duration_ns,
    parse_rate_bps,
)
from etloop.contract.base.value_form import DURATION, ZERO, either, with_form
from etloop.contract.base.value_parsers import integer, with_bounds

MOST_PLUGIN_BYTES = 16 << 20
"""Largest plugin, as source or library, that an assignment carries."""


@with_form(either(DURATION, ZERO, "duration or 0"))
def _duration_or_zero_ns(text: str) -> int:
    return 0 if text.strip() == "0" else parse_duration_ns(text)


@dataclass(frozen=True, slots=True)
class PacingSettings:
    """Departures of packets at queue pairs below the line rate."""

    burst_bytes: int = setting("burst", with_bounds(parse_bytes, 1, 1 << 30, format_bytes), 64 << 10)
    """Largest burst that a queue pair below the line rate sends back to back; at least one packet."""
    # Short, because the bytes made up for leave at the rate of the port, which no NIC's pacing allows.
    catch_up_ns: int = setting(
        "catch_up", with_bounds(_duration_or_zero_ns, 0, NS_PER_S, format_duration), 1_000_000
    )
    """Longest host delay that a queue pair below the line rate makes up for, by sending at the rate of the port."""
    limit_bps: int = setting(
        "limit", with_bounds(parse_rate_bps, 1_000_000, 3_200_000_000_000, format_rate), 0
    )
    """Highest rate of a queue pair, whatever the algorithm allows, in link bytes; none if left out."""


@dataclass(frozen=True, slots=True)
class SeriesSettings:
    """Rates and windows that are recorded over time."""

    interval_ns: int = setting(
        "interval", with_bounds(parse_duration_ns, 1_000, 3600 * NS_PER_S, format_duration), 0
    )
    """Interval at which rates and windows are recorded; never if left out."""
    queue_pairs: int = setting("queue_pairs", integer(0, 1 << 24), 0)
    """Queue pairs of a port that are recorded; 0 records all."""


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
    pacing: PacingSettings = PacingSettings()
    series: SeriesSettings = SeriesSettings()
