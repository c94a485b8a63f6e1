"""How much counters of a device moved during a run, found by object and name: the first source that has one, counts. Pure.

Decides what an increase is counted from and to, what a counter of few bits that began anew means, and when a counter was set
back, so that its increase is not known.
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
    """One source with its increases."""

    source: CountedSource
    increases: Increases
    numbers: dict[tuple[CountedObject, str], int]
    order: NDArray[np.int64]
    """Rows by series, in time."""
    first: NDArray[np.int64]
    """Where each series begins in `order`, and the end."""

    def rows(self, number: int) -> NDArray[np.int64]:
        """Rows of one series, in time."""
        return self.order[self.first[number] : self.first[number + 1]]

    def increase(self, one: CountedObject, counter: str) -> int | None:
        """Of the run; None where it is not known for the whole of it."""
        number = self.numbers.get((one, counter))
        if number is None or not self.increases.whole[number]:
            return None
        return int(self.increases.increase[number])

    def place(self, port: str) -> tuple[str, str]:
        """Device and port of a name."""
        if self.source.several_devices and "/" in port:
            device, _, name = port.partition("/")
            return device, name
        return self.source.name, port


def indexed(device: CountedDevice) -> tuple[IndexedSource, ...]:
    """All sources in their order."""
    return tuple(_indexed(source) for source in device.sources)


def _indexed(source: CountedSource) -> IndexedSource:
    order = np.argsort(source.row_series, kind="stable")
    return IndexedSource(
        source,
        increases_of(source),
        {(one.object, one.counter): number for number, one in enumerate(source.series)},
        order,
        np.searchsorted(source.row_series[order], np.arange(len(source.series) + 1)),
    )


def device_ports(sources: tuple[IndexedSource, ...], rig_ports: frozenset[str]) -> tuple[DevicePort, ...]:
    """What the ports that lead to the rig moved, source by source."""
    found = []
    for one in sources:
        for port, peer in one.source.peers:
            if peer not in rig_ports:
                continue
            at = CountedObject(CounterObject.PORT, port)
            with_fcs = (at, "rx_bytes") in one.numbers or (at, "tx_bytes") in one.numbers
            octets = "bytes" if with_fcs else "bytes_without_fcs"
            found.append(
                DevicePort(
                    one.source.name,
                    port,
                    peer,
                    one.increase(at, "rx_packets"),
                    one.increase(at, "tx_packets"),
                    one.increase(at, f"rx_{octets}"),
                    one.increase(at, f"tx_{octets}"),
                    with_fcs=with_fcs,
                    is_ours=one.source.is_host_side,
                )
            )
    return tuple(found)


@dataclass(frozen=True, slots=True, eq=False)
class Increases:
    """One row a series of a source, in their order."""

    samples: NDArray[np.int64]
    increase: NDArray[np.int64]
    """Of the run, where it is `whole`; of what was seen, where not. Counters of amounts, not of moments, only."""
    whole: NDArray[np.bool_]
    """Read before the run and after it, and never set back."""
    last: NDArray[np.uint64]
    most: NDArray[np.uint64]
    """Greatest value that was read since the run began."""
    cumulative: NDArray[np.bool_]
    set_back: tuple[CounterGap, ...]


def increases_of(source: CountedSource) -> Increases:
    """Every series of a source; one without any sample does not exist."""
    count = len(source.series)
    order = np.argsort(source.row_series, kind="stable")
    number, value = source.row_series[order], source.row_value[order]
    phase, time_ns = source.row_phase[order], source.row_time_ns[order]
    samples = np.bincount(number, minlength=count).astype(np.int64)
    end = np.cumsum(samples)
    natures = [BY_OBJECT_AND_NAME[one.object.kind, one.counter].nature for one in source.series]
    cumulative = np.array([nature is CounterNature.CUMULATIVE for nature in natures], bool)
    narrow = np.array([one.width_bits == NARROW_BITS for one in source.series], bool)
    before, after = phase == SamplePhase.BEFORE, phase >= SamplePhase.AFTER
    has_before = np.bincount(number[before], minlength=count) > 0
    has_after = np.bincount(number[after], minlength=count) > 0
    # Step i leads from row i to row i + 1 of the same series, and counts unless both were before the run.
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
        set_back=_set_back(source, number[1:][back], time_ns[:-1][back], time_ns[1:][back]),
    )


def _set_back(
    source: CountedSource, number: NDArray[np.int32], begin_ns: NDArray[np.int64], end_ns: NDArray[np.int64]
) -> tuple[CounterGap, ...]:
    """One gap for every moment at which counters went back, however many did."""
    found: dict[tuple[int, int], list[int]] = {}
    for one, begin, end in zip(number.tolist(), begin_ns.tolist(), end_ns.tolist(), strict=True):
        found.setdefault((begin, end), []).append(one)
    gaps = []
    for (begin, end), numbers in sorted(found.items()):
        first = source.series[numbers[0]]
        more = f" and {len(numbers) - 1} more" if len(numbers) > 1 else ""
        why = f"{first.object} {first.counter}{more} went back: the device was restarted, or its counters cleared"
        gaps.append(CounterGap(source.name, begin, end, why))
    return tuple(gaps)
