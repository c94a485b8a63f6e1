"""Increases of a device's counters over a run, indexed by object and name: the first source that has a counter is used.
Pure.

Decides the readings between which an increase is counted, how the wrap-around of a 32-bit counter is handled, and when a
counter was reset, so that its increase is not known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.counters import BY_OBJECT_AND_NAME, CountedObject, CounterNature, CounterObject
from etloop.contract.model.device_counts import CountedDevice, CountedSource, CounterGap, SamplePhase
from etloop.results.device.reconcile import DevicePort

if TYPE_CHECKING:
    from numpy.typing import NDArray

NARROW_BITS: Final = 32


@dataclass(frozen=True, slots=True, eq=False)
class IndexedSource:
    """One source with the increases of its counters."""

    source: CountedSource
    increases: Increases
    numbers: dict[tuple[CountedObject, str], int]
    order: NDArray[np.int64]
    """Row numbers sorted by series, then by time."""
    first: NDArray[np.int64]
    """Start of each series in `order`, followed by the total length."""

    def rows(self, number: int) -> NDArray[np.int64]:
        """Return the row numbers of one series, by time."""
        return self.order[self.first[number] : self.first[number + 1]]

    def increase(self, counted_object: CountedObject, counter: str) -> int | None:
        """Return the increase of a counter over the run; None if it is not known for all of it."""
        number = self.numbers.get((counted_object, counter))
        if number is None or not self.increases.whole[number]:
            return None
        return int(self.increases.increase[number])

    def place(self, port: str) -> tuple[str, str]:
        """Return device and port of a port name."""
        if self.source.several_devices and "/" in port:
            device, _, name = port.partition("/")
            return device, name
        return self.source.name, port


def index_device(device: CountedDevice) -> tuple[IndexedSource, ...]:
    """Return all sources with their increases, in their order."""
    return tuple(_index_source(source) for source in device.sources)


def _index_source(source: CountedSource) -> IndexedSource:
    order = np.argsort(source.row_series, kind="stable")
    return IndexedSource(
        source,
        increases_of(source),
        {(series.object, series.counter): number for number, series in enumerate(source.series)},
        order,
        np.searchsorted(source.row_series[order], np.arange(len(source.series) + 1)),
    )


def device_ports(sources: tuple[IndexedSource, ...], rig_ports: frozenset[str]) -> tuple[DevicePort, ...]:
    """Return the counts of every device port connected to one of `rig_ports`, source by source."""
    ports = []
    for source in sources:
        for port, peer in source.source.peers:
            if peer not in rig_ports:
                continue
            port_object = CountedObject(CounterObject.PORT, port)
            with_fcs = (port_object, "rx_bytes") in source.numbers or (
                port_object,
                "tx_bytes",
            ) in source.numbers
            octets = "bytes" if with_fcs else "bytes_without_fcs"
            ports.append(
                DevicePort(
                    source.source.name,
                    port,
                    peer,
                    source.increase(port_object, "rx_packets"),
                    source.increase(port_object, "tx_packets"),
                    source.increase(port_object, f"rx_{octets}"),
                    source.increase(port_object, f"tx_{octets}"),
                    with_fcs=with_fcs,
                    is_ours=source.source.is_host_side,
                )
            )
    return tuple(ports)


@dataclass(frozen=True, slots=True, eq=False)
class Increases:
    """One row per series of a source, in their order."""

    samples: NDArray[np.int64]
    increase: NDArray[np.int64]
    """Over the run if `whole`, else over the readings that exist. 0 for counters that are not cumulative."""
    whole: NDArray[np.bool_]
    """Read before and after the run, and never reset."""
    last: NDArray[np.uint64]
    most: NDArray[np.uint64]
    """Greatest value read since the run began."""
    cumulative: NDArray[np.bool_]
    set_back: tuple[CounterGap, ...]


def increases_of(source: CountedSource) -> Increases:
    """Return the increase of every series of a source. Every series has at least one sample."""
    count = len(source.series)
    order = np.argsort(source.row_series, kind="stable")
    number, value = source.row_series[order], source.row_value[order]
    phase, time_ns = source.row_phase[order], source.row_time_ns[order]
    samples = np.bincount(number, minlength=count).astype(np.int64)
    end = np.cumsum(samples)
    natures = [BY_OBJECT_AND_NAME[series.object.kind, series.counter].nature for series in source.series]
    cumulative = np.array([nature is CounterNature.CUMULATIVE for nature in natures], bool)
    narrow = np.array([series.width_bits == NARROW_BITS for series in source.series], bool)
    before, after = phase == SamplePhase.BEFORE, phase >= SamplePhase.AFTER
    has_before = np.bincount(number[before], minlength=count) > 0
    has_after = np.bincount(number[after], minlength=count) > 0
    # Step i is from row i to row i + 1 of the same series. It counts unless both were before the run.
    same = number[1:] == number[:-1]
    counts = same & ~before[1:]
    step = (value[1:] - value[:-1]).view(np.int64)
    wrapped = (step < 0) & narrow[number[1:]] & (step + (1 << NARROW_BITS) < 1 << (NARROW_BITS - 1))
    step = np.where(wrapped, step + (1 << NARROW_BITS), step)
    back = counts & (step < 0) & cumulative[number[1:]]
    gained = np.where(counts, np.maximum(step, 0), 0)
    increase = np.zeros(count, np.int64)
    np.add.at(increase, number[1:], gained)
    was_set_back = np.bincount(number[1:][back], minlength=count) > 0
    most = np.zeros(count, np.uint64)
    np.maximum.at(most, number[~before], value[~before])
    return Increases(
        samples=samples,
        increase=np.where(cumulative, increase, 0),
        whole=has_before & has_after & ~was_set_back,
        last=value[end - 1] if count else np.empty(0, np.uint64),
        most=most,
        cumulative=cumulative,
        set_back=_reset_gaps(source, number[1:][back], time_ns[:-1][back], time_ns[1:][back]),
    )


def _reset_gaps(
    source: CountedSource, number: NDArray[np.int32], begin_ns: NDArray[np.int64], end_ns: NDArray[np.int64]
) -> tuple[CounterGap, ...]:
    """Return one gap for every span in which counters were reset, however many were."""
    numbers_by_span: dict[tuple[int, int], list[int]] = {}
    for series_number, begin, end in zip(number.tolist(), begin_ns.tolist(), end_ns.tolist(), strict=True):
        numbers_by_span.setdefault((begin, end), []).append(series_number)
    gaps = []
    for (begin, end), numbers in sorted(numbers_by_span.items()):
        first = source.series[numbers[0]]
        more = f" and {len(numbers) - 1} more" if len(numbers) > 1 else ""
        why = f"{first.object} {first.counter}{more} went back: the device was restarted, or its counters cleared"
        gaps.append(CounterGap(source.name, begin, end, why))
    return tuple(gaps)
