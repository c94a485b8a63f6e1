"""A lab's answer to `counters` -> readings under canonical names. Pure.

Decides which of its values are counters of which object; their names are the canonical ones already
(contract/model/switch_counters.py). The answer comes over a socket and is believed value by value.
"""

from __future__ import annotations

from typing import Any, Final

from etloop.contract.model.counters import (
    BY_OBJECT_AND_NAME,
    CountedObject,
    CounterObject,
    CounterReading,
    reading_mistake,
)
from etloop.contract.model.switch_counters import (
    GROUP_COUNTERS,
    OVERLOAD_COUNTERS,
    QUEUE_COUNTERS,
    SWITCH_PORT_COUNTERS,
)

MOST_COMPLAINTS: Final = 8
_PORT: Final = tuple(
    name for name in SWITCH_PORT_COUNTERS.names or () if (CounterObject.PORT, name) in BY_OBJECT_AND_NAME
)


class NotALab(Exception):
    """An answer that has not even the shape of a lab's."""


def lab_readings(answer: object) -> tuple[tuple[CounterReading, ...], tuple[str, ...]]:
    """The readings, and what could not be understood. Raises `NotALab` where the answer is not a lab's at all."""
    if not isinstance(answer, dict) or not isinstance(answer.get("switches"), list):
        raise NotALab("no switches in it")
    found = _Found()
    for switch in answer["switches"]:
        if not isinstance(switch, dict) or not isinstance(switch.get("name"), str):
            raise NotALab("a switch without a name")
        pool = CountedObject(CounterObject.POOL, switch["name"])
        found.add(pool, "current_bytes", switch.get("pool_bytes"))
        found.add(pool, "watermark_bytes", switch.get("pool_watermark_bytes"))
        for port in _list(switch, "ports"):
            if not isinstance(port, dict) or not isinstance(port.get("name"), str):
                raise NotALab(f"a port of {switch['name'][:64]} without a name")
            found.port(f"{switch['name']}/{port['name']}", port)
    for attachment in _list(answer, "attachments"):
        found.attachment(attachment)
    return tuple(found.readings), tuple(found.complaints)


def switch_port_readings(name: str, values: dict[str, Any]) -> tuple[CounterReading, ...]:
    """Of a port by its counters of `SWITCH_PORT_COUNTERS` as plain values: not from a socket, so all of them must be there."""
    found = _Found()
    found.port(name, values)
    assert not found.complaints, found.complaints
    return tuple(found.readings)


def _list(values: dict[str, Any], key: str) -> list[Any]:
    found = values.get(key)
    return found if isinstance(found, list) else []


class _Found:
    def __init__(self) -> None:
        self.readings: list[CounterReading] = []
        self.complaints: list[str] = []

    def add(self, one: CountedObject, counter: str, value: object) -> None:
        """One value, or a complaint."""
        if not isinstance(value, int) or isinstance(value, bool):
            self._complain(f"{one}: {counter} is missing or no whole number")
            return
        reading = CounterReading(one, counter, value)
        mistake = reading_mistake(reading)
        if mistake:
            self._complain(mistake)
        else:
            self.readings.append(reading)

    def port(self, name: str, values: dict[str, Any]) -> None:
        """All of one switch port."""
        port = CountedObject(CounterObject.PORT, name)
        for counter in _PORT:
            self.add(port, counter, values.get(counter))
        for counter in ("pfc_rx", "pfc_tx"):
            for number, value in enumerate(_list(values, counter)):
                self.add(CountedObject(CounterObject.PRIORITY, name, number), counter, value)
        for key, kind, layout in (
            ("queues", CounterObject.QUEUE, QUEUE_COUNTERS),
            ("groups", CounterObject.GROUP, GROUP_COUNTERS),
        ):
            for number, row in enumerate(_list(values, key)):
                for counter in layout.names or ():
                    value = row.get(counter) if isinstance(row, dict) else None
                    self.add(CountedObject(kind, name, number), counter, value)

    def attachment(self, values: object) -> None:
        """What the soft switch did at a port beside running the model."""
        own = values.get("soft_switch") if isinstance(values, dict) else None
        end = values.get("end") if isinstance(values, dict) else None
        if not isinstance(own, dict) or not isinstance(end, str):
            self._complain("an attachment without its counters")
            return
        lost = [own.get(name) for name in OVERLOAD_COUNTERS]
        total = sum(lost) if all(isinstance(one, int) for one in lost) else None  # type: ignore[arg-type]
        port = CountedObject(CounterObject.PORT, end)
        self.add(port, "overload_frames", total)
        self.add(port, "late_frames", own.get("late_frames"))

    def _complain(self, text: str) -> None:
        if len(self.complaints) < MOST_COMPLAINTS:
            self.complaints.append(text)
