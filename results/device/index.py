"""Finds a device's counters by object and name, over all sources that were read: the first source that has one, counts. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from etloop.contract.model.counters import CountedObject, CounterObject
from etloop.contract.model.device_counts import CountedDevice, CountedSource
from etloop.results.device.increase import Increases, increases_of
from etloop.results.device.reconcile import DevicePort

if TYPE_CHECKING:
    from numpy.typing import NDArray


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
