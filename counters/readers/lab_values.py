"""Converts a lab's answer to `counters` into readings under canonical names. Pure.

Decides which of its values are counters of which object; they have the canonical names already
(contract/model/switch_counters.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from etloop.contract.model.counters import (
    CountedObject,
    CounterObject,
    CounterReading,
    CounterUse,
    counters_of,
)
from etloop.contract.model.switch_counters import GROUP_COUNTERS, OVERLOAD_COUNTERS, QUEUE_COUNTERS
from etloop.counters.base.protocol import sifted

if TYPE_CHECKING:
    from etloop.contract.protocol.lab import LabCounters

_PORT, _PRIORITY = (
    tuple(definition.name for definition in counters_of(owner, CounterUse.MODELLED))
    for owner in (CounterObject.PORT, CounterObject.PRIORITY)
)


def lab_readings(counters: LabCounters) -> tuple[tuple[CounterReading, ...], tuple[str, ...]]:
    """Return the valid readings of a lab, and complaints."""
    return sifted(_readings(counters))


def switch_port_readings(name: str, row: np.void) -> tuple[CounterReading, ...]:
    """Return the readings of one port from its row of `SWITCH_PORT_COUNTERS`."""
    readings, complaints = sifted(_port_readings(name, row))
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
    port = CountedObject(CounterObject.PORT, name)
    for counter in _PORT:
        yield CounterReading(port, counter, int(row[counter]))
    for counter in _PRIORITY:
        for number, value in enumerate(row[counter].tolist()):
            yield CounterReading(CountedObject(CounterObject.PRIORITY, name, number), counter, value)
    for key, kind, layout in (
        ("queues", CounterObject.QUEUE, QUEUE_COUNTERS),
        ("groups", CounterObject.GROUP, GROUP_COUNTERS),
    ):
        for number, values in enumerate(row[key].tolist()):
            counted = CountedObject(kind, name, number)
            for counter, value in zip(layout.names or (), values, strict=True):
                yield CounterReading(counted, counter, value)
