"""Converts a lab's answer to `counters` into readings under canonical names. Pure.

Decides which of its values are counters of which object; they have the canonical names already
(contract/model/switch_counters.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.model.counters import (
    CountedObject,
    CounterObject,
    CounterReading,
    CounterUse,
    counters_of,
)
from etloop.contract.model.switch_counters import (
    GROUP_COUNTERS,
    OVERLOAD_COUNTERS,
    QUEUE_COUNTERS,
    SWITCH_PORT_COUNTERS,
)
from etloop.counters.base.protocol import sift

if TYPE_CHECKING:
    from etloop.contract.protocol.lab import LabCounters

_PORT, _PRIORITY = (
    tuple(definition.name for definition in counters_of(owner, CounterUse.MODELLED))
    for owner in (CounterObject.PORT, CounterObject.PRIORITY)
)

_NUMBERED: Final = (
    ("queues", CounterObject.QUEUE, QUEUE_COUNTERS),
    ("groups", CounterObject.GROUP, GROUP_COUNTERS),
)


def lab_readings(counters: LabCounters) -> tuple[tuple[CounterReading, ...], tuple[str, ...]]:
    """Return the valid readings of a lab, and complaints."""
    return sift(_readings(counters))


def switch_port_readings(name: str, row: np.void) -> tuple[CounterReading, ...]:
    """Return the readings of one port from its row of `SWITCH_PORT_COUNTERS`."""
    readings, complaints = sift(_port_readings(name, row))
    assert not complaints, complaints
    return readings


def _readings(counters: LabCounters) -> Iterator[CounterReading]:
    for switch in counters.switches:
        pool = CountedObject(CounterObject.POOL, switch.name)
        yield CounterReading(pool, "current_bytes", switch.pool_bytes)
        yield CounterReading(pool, "watermark_bytes", switch.pool_watermark_bytes)
        for port in switch.ports:
            yield from _port_readings(f"{switch.name}/{port.name}", port.counters)
    for attachment in counters.attachments:
        # Counted by the soft switch itself, not by the switch model.
        attached_port = CountedObject(CounterObject.PORT, attachment.end)
        soft_switch_counters = attachment.soft_switch
        yield CounterReading(
            attached_port,
            "overload_frames",
            sum(int(soft_switch_counters[name]) for name in OVERLOAD_COUNTERS),
        )
        yield CounterReading(attached_port, "late_frames", int(soft_switch_counters["late_frames"]))


def _port_readings(name: str, row: np.void) -> Iterator[CounterReading]:
    objects, counters = _port_counters(name)
    values = [int(row[counter]) for counter in _PORT]
    for counter in _PRIORITY:
        values += row[counter].tolist()
    for key, _, _ in _NUMBERED:
        for numbered in row[key].tolist():
            values += numbered
    assert len(values) == len(objects)
    return map(CounterReading, objects, counters, values)


@lru_cache(maxsize=4096)
def _port_counters(name: str) -> tuple[tuple[CountedObject, ...], tuple[str, ...]]:
    """Return the object and the counter of each value of a port, in the order of its readings."""
    port = CountedObject(CounterObject.PORT, name)
    pairs = [(port, counter) for counter in _PORT]
    for counter in _PRIORITY:
        numbers = range(SWITCH_PORT_COUNTERS[counter].shape[0])
        pairs += [(CountedObject(CounterObject.PRIORITY, name, number), counter) for number in numbers]
    for key, kind, layout in _NUMBERED:
        for number in range(SWITCH_PORT_COUNTERS[key].shape[0]):
            counted = CountedObject(kind, name, number)
            pairs += [(counted, counter) for counter in layout.names or ()]
    objects, counters = zip(*pairs, strict=True)
    return objects, counters
