"""Converts an SNMP agent's answers into interfaces and into readings of canonical counters. Pure; every value is hostile.

Decides which instances are requested, and interprets their values. `snmp` decides when, and in how many requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.counters import (
    MOST_NAME_CHARACTERS,
    MOST_READINGS,
    CountedObject,
    CounterObject,
    CounterReading,
    reading_mistake,
)
from etloop.counters.base.protocol import MOST_COMPLAINTS
from etloop.counters.readers.snmp_objects import COLUMNS, NUMBERED, SUMS, SYS_UPTIME, Column

MOST_ASKED_FIRST: Final = 4
MOST_INDEX: Final = (1 << 31) - 1
"""Largest index of an interface (RFC 2863, InterfaceIndex)."""
_TICKS_PER_S: Final = 100
_WITHOUT_FCS: Final = {"rx_bytes": "rx_bytes_without_fcs", "tx_bytes": "tx_bytes_without_fcs"}

SnmpValue = str | bytes | int | float | None
"""Types of a value as the library decodes it."""


@dataclass(frozen=True, slots=True)
class Interface:
    """One row of IF-MIB."""

    index: int
    name: str


@dataclass(frozen=True, slots=True)
class Instance:
    """One value to request, and the object and column that it belongs to."""

    oid: str
    object: CountedObject
    column: Column


def interfaces_of(rows: Iterable[tuple[str, SnmpValue]], column: str) -> tuple[Interface, ...]:
    """Return the interfaces in a walk of a column of names. Rows without a valid index and name are left out."""
    interfaces = []
    for oid, value in rows:
        index = oid.removeprefix(f"{column}.")
        name = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
        if not (index.isascii() and index.isdecimal() and len(index) <= 10 and 0 < int(index) <= MOST_INDEX):
            continue
        if isinstance(name, str) and 0 < len(name) <= MOST_NAME_CHARACTERS and name.isprintable():
            interfaces.append(Interface(int(index), name))
    return tuple(interfaces)


def choose_interfaces(
    interfaces: Sequence[Interface], wanted: Sequence[str]
) -> tuple[tuple[Interface, ...], str]:
    """Return the interfaces with the wanted names (all if none is wanted), and the problem, "" if there is none.

    A name that several interfaces share selects none of them (an alias may be given twice).
    """
    occurrences: dict[str, int] = {}
    for interface in interfaces:
        occurrences[interface.name] = occurrences.get(interface.name, 0) + 1
    if not wanted:
        return tuple(interface for interface in interfaces if occurrences[interface.name] == 1), ""
    for name in wanted:
        if occurrences.get(name, 0) != 1:
            known_names = ", ".join(interface.name for interface in interfaces[:8]) + (
                ", ..." if len(interfaces) > 8 else ""
            )
            how_many = f"{occurrences[name]} interfaces are" if name in occurrences else "no interface is"
            return (), f'{how_many} named "{name}"; it has {known_names or "none"}'
    return tuple(interface for interface in interfaces if interface.name in wanted), ""


def asked_first(interfaces: Sequence[Interface]) -> tuple[Interface, ...]:
    """Return a few interfaces to probe, evenly spaced from the first to the last.

    Loopbacks, bundles and VLANs serve fewer columns than ports, and are at the ends of the table.
    """
    last_place = len(interfaces) - 1
    places = dict.fromkeys(last_place * step // (MOST_ASKED_FIRST - 1) for step in range(MOST_ASKED_FIRST))
    return tuple(interfaces[place] for place in places)


def candidates(interface: Interface) -> tuple[Instance, ...]:
    """Return every instance that an interface may have, in the order of `COLUMNS`."""
    numbers = dict(NUMBERED)
    return tuple(
        Instance(
            column.oid(interface.index, number), CountedObject(column.kind, interface.name, number), column
        )
        for column in COLUMNS
        for number in (range(numbers[column.kind]) if column.kind in numbers else (-1,))
    )


def served_columns(
    instances: Sequence[Instance], answers: Mapping[str, SnmpValue]
) -> tuple[tuple[Column, int], ...]:
    """Return the columns and numbers for which a device has a value; of columns with the same counter, the first."""
    columns: dict[tuple[CounterObject, str, int], tuple[Column, int]] = {}
    for instance in instances:
        if isinstance(answers.get(instance.oid), int):
            columns.setdefault(
                (instance.column.kind, instance.column.counter, instance.object.number),
                (instance.column, instance.object.number),
            )
    return tuple(columns.values())


def instances_of(
    interfaces: Iterable[Interface], columns: Sequence[tuple[Column, int]]
) -> tuple[Instance, ...]:
    """Return the instances to request in every reading, interface by interface, at most as many as a batch may hold."""
    instances = (
        Instance(
            column.oid(interface.index, number), CountedObject(column.kind, interface.name, number), column
        )
        for interface in interfaces
        for column, number in columns
    )
    # A batch also holds the sums, two per interface.
    return tuple(
        instance for instance, _ in zip(instances, range(MOST_READINGS - MOST_READINGS // 8), strict=False)
    )


def readings_of(
    instances: Iterable[Instance], answers: Mapping[str, SnmpValue], *, octets_include_fcs: bool
) -> tuple[tuple[CounterReading, ...], tuple[str, ...]]:
    """Return the readings of the answers, sums included, and complaints about invalid values."""
    readings: list[CounterReading] = []
    complaints: dict[str, None] = {}
    packets: dict[CountedObject, dict[str, int]] = {}
    for instance in instances:
        value = answers.get(instance.oid)
        if value is None:
            continue
        column_text = f"{instance.column.mib} {instance.column.name} of {instance.object}"
        if not isinstance(value, int):
            complaints.setdefault(f"{column_text} is not a number")
            continue
        name = instance.column.counter
        if not octets_include_fcs:
            name = _WITHOUT_FCS.get(name, name) if instance.object.kind is CounterObject.PORT else name
        reading = CounterReading(instance.object, name, value, instance.column.width_bits)
        if mistake := reading_mistake(reading):
            complaints.setdefault(f"{column_text}: {mistake}")
            continue
        readings.append(reading)
        packets.setdefault(instance.object, {})[name] = value
    for counted, values in packets.items():
        for total, parts in SUMS:
            if all(part in values for part in parts):
                # Modulo 2^64, so that the sum restarts when one of its parts restarts.
                value = sum(values[part] for part in parts) % (1 << 64)
                readings.append(CounterReading(counted, total, value))
    return tuple(readings), tuple(complaints)[:MOST_COMPLAINTS]


def restart_complaint(before: SnmpValue, now: SnmpValue) -> str:
    """Return a complaint if the agent's uptime went back between two readings, "" otherwise."""
    if not (isinstance(before, int) and isinstance(now, int) and now < before):
        return ""
    uptime_s = now // _TICKS_PER_S
    return (
        f"the SNMP agent restarted {uptime_s} s ago and may have reset its counters: {SYS_UPTIME} decreased"
    )
