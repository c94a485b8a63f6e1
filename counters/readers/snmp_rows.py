"""What an SNMP agent answered -> interfaces, and readings of canonical counters. Pure; every value in it is hostile.

Decides which instances are asked for and what their values mean. When and in how many requests is `snmp`'s business.
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
"""Of an interface (RFC 2863, InterfaceIndex)."""
_TICKS_PER_S: Final = 100
_WITHOUT_FCS: Final = {"rx_bytes": "rx_bytes_without_fcs", "tx_bytes": "tx_bytes_without_fcs"}

SnmpValue = str | bytes | int | float | None
"""What a library makes of one value."""


@dataclass(frozen=True, slots=True)
class Interface:
    """One row of IF-MIB."""

    index: int
    name: str


@dataclass(frozen=True, slots=True)
class Instance:
    """One value that is asked for, and what it is the value of."""

    oid: str
    object: CountedObject
    column: Column


def interfaces_of(rows: Iterable[tuple[str, SnmpValue]], column: str) -> tuple[Interface, ...]:
    """The interfaces that a walk of a column of names found. Rows that name nothing are left out."""
    found = []
    for oid, value in rows:
        index = oid.removeprefix(f"{column}.")
        name = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
        if not (index.isascii() and index.isdecimal() and len(index) <= 10 and 0 < int(index) <= MOST_INDEX):
            continue
        if isinstance(name, str) and 0 < len(name) <= MOST_NAME_CHARACTERS and name.isprintable():
            found.append(Interface(int(index), name))
    return tuple(found)


def chosen(interfaces: Sequence[Interface], wanted: Sequence[str]) -> tuple[tuple[Interface, ...], str]:
    """The interfaces of the wanted names (of none: all), and what is wrong, "" if nothing.

    A name that several interfaces have can mean none of them (an alias may be given twice).
    """
    times: dict[str, int] = {}
    for one in interfaces:
        times[one.name] = times.get(one.name, 0) + 1
    if not wanted:
        return tuple(one for one in interfaces if times[one.name] == 1), ""
    for name in wanted:
        if times.get(name, 0) != 1:
            known = ", ".join(one.name for one in interfaces[:8]) + (", ..." if len(interfaces) > 8 else "")
            how_many = f"{times[name]} interfaces are" if name in times else "no interface is"
            return (), f'{how_many} called "{name}"; it has {known or "none"}'
    return tuple(one for one in interfaces if one.name in wanted), ""


def asked_first(interfaces: Sequence[Interface]) -> tuple[Interface, ...]:
    """A few of them, from the first to the last: loopbacks, bundles and VLANs have less than ports, and stand at the ends."""
    last = len(interfaces) - 1
    places = dict.fromkeys(last * part // (MOST_ASKED_FIRST - 1) for part in range(MOST_ASKED_FIRST))
    return tuple(interfaces[place] for place in places)


def candidates(interface: Interface) -> tuple[Instance, ...]:
    """Everything that an interface may have, in the order of `COLUMNS`."""
    numbers = dict(NUMBERED)
    return tuple(
        Instance(
            column.oid(interface.index, number), CountedObject(column.kind, interface.name, number), column
        )
        for column in COLUMNS
        for number in (range(numbers[column.kind]) if column.kind in numbers else (-1,))
    )


def served(instances: Sequence[Instance], answers: Mapping[str, SnmpValue]) -> tuple[tuple[Column, int], ...]:
    """Columns and numbers for which a device has a value; of columns that hold the same counter the first."""
    found: dict[tuple[CounterObject, str, int], tuple[Column, int]] = {}
    for one in instances:
        if isinstance(answers.get(one.oid), int):
            found.setdefault(
                (one.column.kind, one.column.counter, one.object.number), (one.column, one.object.number)
            )
    return tuple(found.values())


def instances_of(
    interfaces: Iterable[Interface], columns: Sequence[tuple[Column, int]]
) -> tuple[Instance, ...]:
    """What is asked for in every reading, interface by interface; no more than a batch may have."""
    every = (
        Instance(column.oid(one.index, number), CountedObject(column.kind, one.name, number), column)
        for one in interfaces
        for column, number in columns
    )
    # A batch also has the sums, two an interface.
    return tuple(one for one, _ in zip(every, range(MOST_READINGS - MOST_READINGS // 8), strict=False))


def readings_of(
    instances: Iterable[Instance], answers: Mapping[str, SnmpValue], *, octets_include_fcs: bool
) -> tuple[tuple[CounterReading, ...], tuple[str, ...]]:
    """Readings of what was answered, sums included, and complaints about what cannot be a value."""
    readings: list[CounterReading] = []
    complaints: dict[str, None] = {}
    packets: dict[CountedObject, dict[str, int]] = {}
    for one in instances:
        value = answers.get(one.oid)
        if value is None:
            continue
        where = f"{one.column.mib} {one.column.name} of {one.object}"
        if not isinstance(value, int):
            complaints.setdefault(f"{where} is no number")
            continue
        name = one.column.counter
        if not octets_include_fcs:
            name = _WITHOUT_FCS.get(name, name) if one.object.kind is CounterObject.PORT else name
        reading = CounterReading(one.object, name, value, one.column.width_bits)
        if mistake := reading_mistake(reading):
            complaints.setdefault(f"{where}: {mistake}")
            continue
        readings.append(reading)
        packets.setdefault(one.object, {})[name] = value
    for counted, values in packets.items():
        for total, parts in SUMS:
            if all(part in values for part in parts):
                # Modulo, so that a part that begins anew makes the sum begin anew with it.
                value = sum(values[part] for part in parts) % (1 << 64)
                readings.append(CounterReading(counted, total, value))
    return tuple(readings), tuple(complaints)[:MOST_COMPLAINTS]


def restart_complaint(before: SnmpValue, now: SnmpValue) -> str:
    """What to say when the agent's uptime went back between two readings; "" if it did not."""
    if not (isinstance(before, int) and isinstance(now, int) and now < before):
        return ""
    since = now // _TICKS_PER_S
    return f"the SNMP agent began anew {since} s ago, and its counters may have: {SYS_UPTIME} went back"
