"""SONiC's COUNTERS_DB over gNMI, both ways: its tables of SAI's names to readings, and readings to its tables. Pure.

Decides which SAI counter is which canonical one, and what the target COUNTERS_DB answers to a path: the name maps, and
`COUNTERS` by port (`Ethernet*` is every port, whatever their names), by field, by queue, and by object identifier
(sonic-net/SONiC: doc/system-telemetry/grpc_telemetry.md; sonic-net/sonic-gnmi: sonic_data_client/virtual_db.go). Values are
texts, as redis has them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from etloop.contract.model.counters import CountedObject, CounterObject, CounterReading
from etloop.counters.gnmi.paths import Element, GnmiPath
from etloop.counters.gnmi.values import Value, counter_value

TARGET: Final = "COUNTERS_DB"
COUNTERS: Final = "COUNTERS"
EVERY_PORT: Final = "Ethernet*"
QUEUES: Final = "Queues"
PORT_MAP: Final = "COUNTERS_PORT_NAME_MAP"
QUEUE_MAP: Final = "COUNTERS_QUEUE_NAME_MAP"
GROUP_MAP: Final = "COUNTERS_PG_NAME_MAP"
POOL_MAP: Final = "COUNTERS_BUFFER_POOL_NAME_MAP"
_MAPS: Final = {
    CounterObject.PORT: PORT_MAP,
    CounterObject.QUEUE: QUEUE_MAP,
    CounterObject.GROUP: GROUP_MAP,
    CounterObject.POOL: POOL_MAP,
}
_OID: Final = re.compile(r"oid:0x[0-9a-f]{1,16}")
_NUMBERED: Final = re.compile(r"(.+):([0-9]{1,2})")
_PFC: Final = re.compile(r"SAI_PORT_STAT_PFC_([0-7])_([RT]X)_PKTS")

FIELDS: Final[Mapping[CounterObject, Mapping[str, str]]] = {
    CounterObject.PORT: {
        "SAI_PORT_STAT_IF_IN_OCTETS": "rx_bytes",
        "SAI_PORT_STAT_IF_IN_UCAST_PKTS": "rx_unicast_packets",
        "SAI_PORT_STAT_IF_IN_MULTICAST_PKTS": "rx_multicast_packets",
        "SAI_PORT_STAT_IF_IN_BROADCAST_PKTS": "rx_broadcast_packets",
        "SAI_PORT_STAT_IF_IN_DISCARDS": "rx_dropped_packets",
        "SAI_PORT_STAT_IF_IN_ERRORS": "rx_error_packets",
        "SAI_PORT_STAT_IF_OUT_OCTETS": "tx_bytes",
        "SAI_PORT_STAT_IF_OUT_UCAST_PKTS": "tx_unicast_packets",
        "SAI_PORT_STAT_IF_OUT_MULTICAST_PKTS": "tx_multicast_packets",
        "SAI_PORT_STAT_IF_OUT_BROADCAST_PKTS": "tx_broadcast_packets",
        "SAI_PORT_STAT_IF_OUT_DISCARDS": "tx_dropped_packets",
        "SAI_PORT_STAT_IF_OUT_ERRORS": "tx_error_packets",
        "SAI_PORT_STAT_ETHER_STATS_RX_NO_ERRORS": "rx_packets",
        "SAI_PORT_STAT_ETHER_STATS_TX_NO_ERRORS": "tx_packets",
        "SAI_PORT_STAT_PAUSE_RX_PKTS": "rx_pause_frames",
        "SAI_PORT_STAT_PAUSE_TX_PKTS": "tx_pause_frames",
        "SAI_PORT_STAT_ECN_MARKED_PACKETS": "ecn_marked_packets",
        "SAI_PORT_STAT_TRIM_PACKETS": "trimmed_packets",
    },
    CounterObject.QUEUE: {
        "SAI_QUEUE_STAT_PACKETS": "packets",
        "SAI_QUEUE_STAT_BYTES": "bytes",
        "SAI_QUEUE_STAT_DROPPED_PACKETS": "dropped_packets",
        "SAI_QUEUE_STAT_DROPPED_BYTES": "dropped_bytes",
        "SAI_QUEUE_STAT_WRED_ECN_MARKED_PACKETS": "ecn_marked_packets",
        "SAI_QUEUE_STAT_WRED_ECN_MARKED_BYTES": "ecn_marked_bytes",
        "SAI_QUEUE_STAT_TRIM_PACKETS": "trimmed_packets",
        "SAI_QUEUE_STAT_TX_TRIM_PACKETS": "trim_sent_packets",
        "SAI_QUEUE_STAT_DROPPED_TRIM_PACKETS": "trim_dropped_packets",
        "SAI_QUEUE_STAT_CURR_OCCUPANCY_BYTES": "current_bytes",
        "SAI_QUEUE_STAT_SHARED_WATERMARK_BYTES": "watermark_bytes",
        "PFC_WD_QUEUE_STATS_DEADLOCK_DETECTED": "watchdog_storms",
        "PFC_WD_QUEUE_STATS_TX_DROPPED_PACKETS": "watchdog_dropped_packets",
    },
    CounterObject.GROUP: {
        "SAI_INGRESS_PRIORITY_GROUP_STAT_PACKETS": "packets",
        "SAI_INGRESS_PRIORITY_GROUP_STAT_BYTES": "bytes",
        "SAI_INGRESS_PRIORITY_GROUP_STAT_DROPPED_PACKETS": "dropped_packets",
        "SAI_INGRESS_PRIORITY_GROUP_STAT_CURR_OCCUPANCY_BYTES": "current_bytes",
        "SAI_INGRESS_PRIORITY_GROUP_STAT_SHARED_WATERMARK_BYTES": "shared_watermark_bytes",
        "SAI_INGRESS_PRIORITY_GROUP_STAT_XOFF_ROOM_CURR_OCCUPANCY_BYTES": "headroom_bytes",
        "SAI_INGRESS_PRIORITY_GROUP_STAT_XOFF_ROOM_WATERMARK_BYTES": "headroom_watermark_bytes",
    },
    CounterObject.POOL: {
        "SAI_BUFFER_POOL_STAT_CURR_OCCUPANCY_BYTES": "current_bytes",
        "SAI_BUFFER_POOL_STAT_WATERMARK_BYTES": "watermark_bytes",
        "SAI_BUFFER_POOL_STAT_DROPPED_PACKETS": "dropped_packets",
    },
}
"""SAI's name -> the canonical one, by object. A port's priorities are fields of the port, `SAI_PORT_STAT_PFC_n_RX_PKTS`."""
_SAI: Final = {(kind, counter): field for kind, fields in FIELDS.items() for field, counter in fields.items()}
_TOTALS: Final = (
    ("rx_packets", ("SAI_PORT_STAT_IF_IN_UCAST_PKTS", "SAI_PORT_STAT_IF_IN_NON_UCAST_PKTS")),
    ("tx_packets", ("SAI_PORT_STAT_IF_OUT_UCAST_PKTS", "SAI_PORT_STAT_IF_OUT_NON_UCAST_PKTS")),
)
"""How SONiC's own portstat counts all packets; where a device has these, they win over SAI's count without errors."""

Row = Mapping[str, str]


# ---- readings as tables


def object_identifier(one: CountedObject, place: int) -> str:
    """The identifier of the `place`-th object of its kind; the upper part is SAI's type of it (saitypes.h)."""
    types = {
        CounterObject.PORT: 0x1,
        CounterObject.QUEUE: 0x15,
        CounterObject.GROUP: 0x1A,
        CounterObject.POOL: 0x18,
    }
    return f"oid:0x{types[one.kind] << 48 | place + 1:x}"


def tables_of(readings: Iterable[CounterReading]) -> dict[str, dict[str, Row]]:
    """The name maps, and `COUNTERS` by object identifier: table -> key ("" for the maps, which have none) -> fields."""
    rows: dict[CountedObject, dict[str, str]] = {}
    for reading in readings:
        one = reading.object
        if one.kind is CounterObject.PRIORITY:
            if reading.counter in ("pfc_rx", "pfc_tx"):
                port = CountedObject(CounterObject.PORT, one.name)
                field = f"SAI_PORT_STAT_PFC_{one.number}_{reading.counter[4:].upper()}_PKTS"
                rows.setdefault(port, {})[field] = str(reading.value)
        elif (field := _SAI.get((one.kind, reading.counter), "")) != "":
            rows.setdefault(one, {})[field] = str(reading.value)
    tables: dict[str, dict[str, Row]] = {COUNTERS: {}}
    for kind, table in _MAPS.items():
        names = {}
        for place, one in enumerate(each for each in rows if each.kind is kind):
            identifier = object_identifier(one, place)
            names[one.name if one.number < 0 else f"{one.name}:{one.number}"] = identifier
            tables[COUNTERS][identifier] = rows[one]
        tables[table] = {"": names}
    return tables


def answer(tables: Mapping[str, Mapping[str, Row]], names: Sequence[str]) -> Value | None:
    """What COUNTERS_DB answers to a path of these names; None if it has nothing there."""
    if not names or names[0] not in tables:
        return None
    if names[0] != COUNTERS:
        fields = tables[names[0]][""]
        return dict(fields) if len(names) == 1 else fields.get("/".join(names[1:]))
    rows = tables[COUNTERS]
    if len(names) == 1:
        return {identifier: dict(row) for identifier, row in rows.items()}
    if names[1] in rows:
        row = rows[names[1]]
        return dict(row) if len(names) == 2 else (row.get(names[2]) if len(names) == 3 else None)
    ports = tables[PORT_MAP][""]
    queues = tables[QUEUE_MAP][""]
    if names[1].endswith("*"):
        wanted, rest = tuple(ports), tuple(names[2:])
    else:
        wanted, rest = _port_in(ports, names[1:])
    if not wanted or len(rest) > 1:
        return None
    if rest == (QUEUES,):
        return {
            queue: dict(rows[identifier])
            for queue, identifier in queues.items()
            if queue.rpartition(":")[0] in wanted
        }
    found = {port: _chosen(rows[ports[port]], rest) for port in wanted}
    if names[1].endswith("*"):
        return {port: row for port, row in found.items() if row} or None
    only = found[wanted[0]]
    return (only.get(rest[0]) if rest else only) if only else None


def _chosen(row: Row, rest: Sequence[str]) -> dict[str, Value]:
    """A row, or one field of it."""
    return {field: value for field, value in row.items() if not rest or field == rest[0]}


def _port_in(ports: Row, names: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The port that names begin with, and what follows. A port's own name may have slashes, which a client writes as such."""
    for length in range(len(names), 0, -1):
        if (name := "/".join(names[:length])) in ports:
            return (name,), tuple(names[length:])
    return (), ()


# ---- what a device sent


def path(*names: str) -> GnmiPath:
    """A path below COUNTERS_DB."""
    return GnmiPath(tuple(Element(name) for name in names), TARGET)


def identifiers(value: Value) -> dict[str, str]:
    """A name map: the device's names -> object identifiers. What cannot be one is left out."""
    if not isinstance(value, dict):
        return {}
    return {name: one for name, one in value.items() if isinstance(one, str) and _OID.fullmatch(one)}


def wanted(ports: Sequence[str], groups: Mapping[str, str], pools: Mapping[str, str]) -> Iterator[GnmiPath]:
    """The paths of one reading, those of every port if none is named. `groups` and `pools` are names -> identifiers."""
    for port in ports or (EVERY_PORT,):
        yield path(COUNTERS, port)
        yield path(COUNTERS, port, QUEUES)
    for name, identifier in (*groups.items(), *pools.items()):
        if name in pools or not ports or name.rpartition(":")[0] in ports:
            yield path(COUNTERS, identifier)


def readings_of(
    updates: Iterable[tuple[GnmiPath, Value]], identified: Mapping[str, CountedObject]
) -> tuple[tuple[CounterReading, ...], tuple[str, ...]]:
    """Readings of what came for the paths of `wanted`, and complaints. `identified` says what identifiers stand for."""
    readings: dict[tuple[CountedObject, str], CounterReading] = {}
    complaints: dict[str, None] = {}
    for where, value in updates:
        rows = dict(_rows(where.names, value, identified)) if isinstance(value, dict) else {}
        if not rows:
            complaints.setdefault(f"{where}: no rows of counters in the answer")
        for one, row in rows.items():
            for reading in _row_readings(one, row, complaints):
                readings[reading.object, reading.counter] = reading
    return tuple(readings.values()), tuple(complaints)


def counted(names: Mapping[str, str], kind: CounterObject) -> dict[str, CountedObject]:
    """Identifiers of a name map -> what they stand for."""
    found = {}
    for name, identifier in names.items():
        one = CountedObject(kind, name) if kind is CounterObject.POOL else _numbered(kind, name)
        if one is not None:
            found[identifier] = one
    return found


def _numbered(kind: CounterObject, name: str) -> CountedObject | None:
    match = _NUMBERED.fullmatch(name)
    return CountedObject(kind, match[1], int(match[2])) if match else None


def _rows(
    names: Sequence[str], value: dict[str, Value], identified: Mapping[str, CountedObject]
) -> Iterator[tuple[CountedObject, dict[str, Value]]]:
    if len(names) < 2 or names[0] != COUNTERS:
        return
    if names[1] in identified:
        yield identified[names[1]], value
    elif names[-1] == QUEUES:
        for name, row in value.items():
            one = _numbered(CounterObject.QUEUE, name)
            if one is not None and isinstance(row, dict):
                yield one, row
    elif names[1].endswith("*"):
        for name, row in value.items():
            if isinstance(row, dict):
                yield CountedObject(CounterObject.PORT, name), row
    else:
        yield CountedObject(CounterObject.PORT, "/".join(names[1:])), value


def _row_readings(
    one: CountedObject, row: Mapping[str, Value], complaints: dict[str, None]
) -> Iterator[CounterReading]:
    fields = FIELDS[one.kind]
    numbers = {}
    for field, value in row.items():
        priority = _PFC.fullmatch(field) if one.kind is CounterObject.PORT else None
        if field not in fields and priority is None and not field.startswith("SAI_PORT_STAT_IF_"):
            continue
        number = counter_value(value)
        if number is None:
            # Platforms without a counter say N/A.
            if value != "N/A":
                complaints.setdefault(f"{one}: {field} is {str(value)[:32]!r}, no counter")
        elif priority is not None:
            counter = f"pfc_{priority[2].lower()}"
            yield CounterReading(
                CountedObject(CounterObject.PRIORITY, one.name, int(priority[1])), counter, number
            )
        else:
            numbers[field] = number
            if field in fields:
                yield CounterReading(one, fields[field], number)
    for counter, parts in _TOTALS:
        if one.kind is CounterObject.PORT and all(part in numbers for part in parts):
            yield CounterReading(one, counter, sum(numbers[part] for part in parts) % (1 << 64))
