"""A lab's answer to `counters` -> readings under canonical names. Pure.

Decides which of its values are counters of which object; their names are the canonical ones already
(contract/model/switch_counters.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from etloop.contract.model.counters import (
    CountedObject,
    CounterObject,
    CounterReading,
    CounterUse,
    counters_of,
    reading_mistake,
)
from etloop.contract.model.switch_counters import (
    GROUP_COUNTERS,
    OVERLOAD_COUNTERS,
    QUEUE_COUNTERS,
)

if TYPE_CHECKING:
    from etloop.contract.protocol.lab import LabCounters

MOST_COMPLAINTS: Final = 8
_PORT, _PRIORITY = (
    tuple(one.name for one in counters_of(owner, CounterUse.MODELLED))
    for owner in (CounterObject.PORT, CounterObject.PRIORITY)
)


def lab_readings(counters: LabCounters) -> tuple[tuple[CounterReading, ...], tuple[str, ...]]:
    """Return the readings, and what could not be one."""
    found = _Found()
    for switch in counters.switches:
        pool = CountedObject(CounterObject.POOL, switch.name)
        found.add(pool, "current_bytes", switch.pool_bytes)
        found.add(pool, "watermark_bytes", switch.pool_watermark_bytes)
        for port in switch.ports:
            found.port(f"{switch.name}/{port.name}", port.counters)
    for attachment in counters.attachments:
        # What the soft switch did at a port beside running the model.
        end = CountedObject(CounterObject.PORT, attachment.end)
        own = attachment.soft_switch
        found.add(end, "overload_frames", sum(int(own[name]) for name in OVERLOAD_COUNTERS))
        found.add(end, "late_frames", int(own["late_frames"]))
    return tuple(found.readings), tuple(found.complaints)


def switch_port_readings(name: str, row: np.void) -> tuple[CounterReading, ...]:
    """Return those of a port by its row of `SWITCH_PORT_COUNTERS`."""
    found = _Found()
    found.port(name, row)
    assert not found.complaints, found.complaints
    return tuple(found.readings)


class _Found:
    def __init__(self) -> None:
        self.readings: list[CounterReading] = []
        self.complaints: list[str] = []

    def add(self, one: CountedObject, counter: str, value: int) -> None:
        """One value, or a complaint."""
        reading = CounterReading(one, counter, value)
        mistake = reading_mistake(reading)
        if not mistake:
            self.readings.append(reading)
        elif len(self.complaints) < MOST_COMPLAINTS:
            self.complaints.append(mistake)

    def port(self, name: str, row: np.void) -> None:
        """All of one switch port."""
        port = CountedObject(CounterObject.PORT, name)
        for counter in _PORT:
            self.add(port, counter, int(row[counter]))
        for counter in _PRIORITY:
            for number, value in enumerate(row[counter].tolist()):
                self.add(CountedObject(CounterObject.PRIORITY, name, number), counter, value)
        for key, kind, layout in (
            ("queues", CounterObject.QUEUE, QUEUE_COUNTERS),
            ("groups", CounterObject.GROUP, GROUP_COUNTERS),
        ):
            for number, values in enumerate(row[key].tolist()):
                one = CountedObject(kind, name, number)
                for counter, value in zip(layout.names or (), values, strict=True):
                    self.add(one, counter, value)
