"""Defines a device by its rates, and how long it takes for one operator: the roofline, or a measured time.

Williams, Waterman, Patterson: "Roofline", CACM 52(4), 2009. An operator takes the longer of its FLOPs at the rate of its data
type and its bytes at the memory's rate, each times an efficiency. Launches, caches and clocks are not modelled.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.setting import mapping_setting, required_setting
from etloop.contract.base.units import parse_duration_ns, parse_factor, parse_flops, parse_rate_bps
from etloop.contract.base.value_parsers import words
from etloop.workload.recording.events import Compute

_NS_PER_S: Final = 10**9
_MOST_NAMES: Final = 100_000


def _operator(text: str) -> str:
    return text


@dataclass(frozen=True, slots=True)
class Device:
    """A device file: rates as the vendor states them, and the shares of them that programs reach."""

    name: str = required_setting("name", words, "", "write the name of the device")
    source: str = required_setting("source", words, "", "write where the rates are stated")
    memory_bandwidth_bps: int = required_setting(
        "memory_bandwidth", parse_rate_bps, 1, 'write the rate of its memory, such as "3350GB/s"'
    )
    flops_efficiency: Fraction = required_setting(
        "flops_efficiency",
        parse_factor,
        Fraction(1),
        "write the share of the rate that large products reach, such as 0.6",
    )
    memory_efficiency: Fraction = required_setting(
        "memory_efficiency",
        parse_factor,
        Fraction(1),
        "write the share of the bandwidth that copies reach, such as 0.8",
    )
    flops: Mapping[str, int] = mapping_setting(
        parse_flops, "flops", _operator, "Dense rate by data type of PyTorch.", most=64
    )


@dataclass(frozen=True, slots=True)
class MeasuredTimes:
    """A table of measured times: `operators` maps an operator, or an operator with shapes, to its time."""

    operators: Mapping[str, int] = mapping_setting(
        parse_duration_ns,
        "operators",
        _operator,
        "Time of one call, in place of the roofline.",
        most=_MOST_NAMES,
    )


class OperatorTimes:
    """The times of operators on one device."""

    def __init__(self, device: Device, measured: MeasuredTimes, scale: Fraction) -> None:
        """`scale` multiplies every time."""
        self._device, self._measured, self._scale = device, measured, scale
        self.unrated_types: set[str] = set()
        """Data types with FLOPs that the device file has no rate for; float32's was used."""
        self.measured_count = 0

    def of(self, event: Compute) -> Fraction:
        """Return the time of one call in ns, exactly."""
        name = event.operator.partition("(")[0]
        for key in (event.operator, name):
            if key in self._measured.operators:
                self.measured_count += 1
                return self._measured.operators[key] * self._scale
        device = self._device
        time_ns = Fraction(event.moved_bytes * 8 * _NS_PER_S) / (
            device.memory_bandwidth_bps * device.memory_efficiency
        )
        if event.flops:
            rate = device.flops.get(event.data_type)
            if rate is None:
                self.unrated_types.add(event.data_type)
                rate = device.flops["float32"]
            time_ns = max(time_ns, Fraction(event.flops * _NS_PER_S) / (rate * device.flops_efficiency))
        return time_ns * self._scale
